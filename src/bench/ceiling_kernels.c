/* Sixteen (AVX2: ten) independent accumulators cover latency x units of every core so far: 4 cycles
 * x 2 units for FMA and VNNI, 6 x 1 for bf16 dots on Zen 4. The reading loops sum with one cheap
 * instruction a load, so that only the loads count. */
#include "bench/ceiling_kernels.h"

#include <string.h>

#include "base/cpu.h"

/* Checking each load would measure the sanitizer. */
#define UNCHECKED __attribute__((no_sanitize("thread", "address")))

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET(isa) __attribute__((target(isa)))

#define FOR_8(x)    x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7)
#define FOR_10(x)   FOR_8(x) x(8) x(9)
#define FOR_16(x)   FOR_10(x) x(10) x(11) x(12) x(13) x(14) x(15)

/* ---- reading ---- */

#define ZERO(i) __m512i s##i = _mm512_setzero_si512();
#define LOAD(i) s##i = _mm512_xor_si512(s##i, _mm512_load_si512(at + 64 * i));
#define LOAD_FAR(i)                                                                                \
    s##i = _mm512_xor_si512(s##i, _mm512_load_si512(at + 64 * (i & 1) + (i / 2) * part));
#define PREFETCH(i) _mm_prefetch(at + 4096 + 64 * i, _MM_HINT_T0);
#define FOLD(i)     total = _mm512_xor_si512(total, s##i);

TARGET("avx512f") UNCHECKED static uint64_t read_avx512(const void *data, size_t size)
{
    const char *at = data, *end = at + size;
    FOR_8(ZERO)
    for (; at < end; at += 512) {
        FOR_8(LOAD)
    }
    __m512i total = _mm512_setzero_si512();
    FOR_8(FOLD)
    return (uint64_t)_mm512_reduce_add_epi64(total);
}

/* The prefetch reaches into the next page, which the hardware's own prefetchers do not. */
TARGET("avx512f") UNCHECKED static uint64_t read_avx512_prefetch(const void *data, size_t size)
{
    const char *at = data, *end = at + size;
    FOR_8(ZERO)
    for (; at < end; at += 512) {
        FOR_8(PREFETCH)
        FOR_8(LOAD)
    }
    __m512i total = _mm512_setzero_si512();
    FOR_8(FOLD)
    return (uint64_t)_mm512_reduce_add_epi64(total);
}

/* Four streams at once: each gets its own hardware prefetcher. */
TARGET("avx512f") UNCHECKED static uint64_t read_avx512_streams(const void *data, size_t size)
{
    size_t part = size / 4;
    const char *at = data, *end = at + part;
    FOR_8(ZERO)
    for (; at < end; at += 128) {
        FOR_8(LOAD_FAR)
    }
    __m512i total = _mm512_setzero_si512();
    FOR_8(FOLD)
    return (uint64_t)_mm512_reduce_add_epi64(total);
}

#define ZERO_AVX2(i) __m256i s##i = _mm256_setzero_si256();
#define LOAD_AVX2(i)                                                                               \
    s##i = _mm256_xor_si256(s##i, _mm256_load_si256((const __m256i *)(const void *)(at + 32 * i)));
#define FOLD_AVX2(i) total = _mm256_xor_si256(total, s##i);

TARGET("avx2") UNCHECKED static uint64_t read_avx2(const void *data, size_t size)
{
    const char *at = data, *end = at + size;
    FOR_8(ZERO_AVX2)
    for (; at < end; at += 256) {
        FOR_8(LOAD_AVX2)
    }
    __m256i total = _mm256_setzero_si256();
    FOR_8(FOLD_AVX2)
    return (uint64_t)_mm256_extract_epi64(total, 0);
}

/* ---- writing and copying ---- */

#define STORE(i)  _mm512_store_si512(to + 64 * i, value);
#define STREAM(i) _mm512_stream_si512((__m512i *)(void *)(to + 64 * i), value);
#define COPY(i)   _mm512_store_si512(to + 64 * i, _mm512_load_si512(from + 64 * i));
#define COPY_FAR(i)                                                                                \
    _mm512_stream_si512((__m512i *)(void *)(to + 64 * i), _mm512_load_si512(from + 64 * i));
#define STORE_AVX2(i) _mm256_store_si256((__m256i *)(void *)(to + 32 * i), value);
#define COPY_AVX2(i)                                                                               \
    _mm256_store_si256((__m256i *)(void *)(to + 32 * i),                                           \
                       _mm256_load_si256((const __m256i *)(const void *)(from + 32 * i)));

TARGET("avx512f") UNCHECKED static void write_avx512(void *out, const void *in, size_t size)
{
    (void)in;
    __m512i value = _mm512_set1_epi32(1);
    for (char *to = out, *end = to + size; to < end; to += 512) {
        FOR_8(STORE)
    }
}

/* Past the caches: no line is read before it is overwritten. */
TARGET("avx512f") UNCHECKED static void write_avx512_stream(void *out, const void *in, size_t size)
{
    (void)in;
    __m512i value = _mm512_set1_epi32(1);
    for (char *to = out, *end = to + size; to < end; to += 512) {
        FOR_8(STREAM)
    }
    _mm_sfence();
}

TARGET("avx512f") UNCHECKED static void copy_avx512(void *out, const void *in, size_t size)
{
    const char *from = in;
    for (char *to = out, *end = to + size; to < end; to += 512, from += 512) {
        FOR_8(COPY)
    }
}

TARGET("avx512f") UNCHECKED static void copy_avx512_stream(void *out, const void *in, size_t size)
{
    const char *from = in;
    for (char *to = out, *end = to + size; to < end; to += 512, from += 512) {
        FOR_8(COPY_FAR)
    }
    _mm_sfence();
}

TARGET("avx2") UNCHECKED static void write_avx2(void *out, const void *in, size_t size)
{
    (void)in;
    __m256i value = _mm256_set1_epi32(1);
    for (char *to = out, *end = to + size; to < end; to += 256) {
        FOR_8(STORE_AVX2)
    }
}

TARGET("avx2") UNCHECKED static void copy_avx2(void *out, const void *in, size_t size)
{
    const char *from = in;
    for (char *to = out, *end = to + size; to < end; to += 256, from += 256) {
        FOR_8(COPY_AVX2)
    }
}

/* ---- multiplying ---- */

/* The sums start at different values: the compiler would merge equal ones. */
#define START_F32(i)   __m512 s##i = _mm512_set1_ps(1.0f + 0.01f * i);
#define STEP_F32(i)    s##i = _mm512_fmadd_ps(s##i, a, b);
#define FOLD_F32(i)    total = _mm512_add_ps(total, s##i);
#define START_F32_2(i) __m256 s##i = _mm256_set1_ps(1.0f + 0.01f * i);
#define STEP_F32_2(i)  s##i = _mm256_fmadd_ps(s##i, a, b);
#define FOLD_F32_2(i)  total = _mm256_add_ps(total, s##i);
#define STEP_BF16(i)   s##i = _mm512_dpbf16_ps(s##i, a, b);
#define START_I8(i)    __m512i s##i = _mm512_set1_epi32(i);
#define STEP_I8(i)                                                                                 \
    s##i = _mm512_dpbusd_epi32(s##i, a, b);                                                        \
    __asm__("" : "+v"(s##i)); /* gcc 12 would copy them to and fro */
#define FOLD_I8(i)    total = _mm512_add_epi32(total, s##i);
#define START_I8_2(i) __m256i s##i = _mm256_set1_epi32(i);
#define FOLD_I8_2(i)  total = _mm256_add_epi16(total, s##i);
/* Sums of 16 bits, which are enough for a block of 4-bit values; others need twice the operations.
 * The product does not depend on the sum: as an intrinsic it would leave the loop. The empty asm
 * keeps gcc 12 from adding products to each other, on the stack. */
#define STEP_I8_2(i)                                                                               \
    {                                                                                              \
        __m256i product;                                                                           \
        __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(product) : "x"(a), "x"(b));                \
        s##i = _mm256_add_epi16(s##i, product);                                                    \
        __asm__("" : "+x"(s##i));                                                                  \
    }

/* s = s * a + b stays near 1, far from denormals and infinity. */
TARGET("avx512f")
static double multiply_f32_avx512(int64_t iterations)
{
    __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f), total = _mm512_setzero_ps();
    FOR_16(START_F32)
    for (int64_t n = 0; n < iterations; n++) {
        FOR_16(STEP_F32)
    }
    FOR_16(FOLD_F32)
    return (double)_mm512_reduce_add_ps(total);
}

TARGET("avx2,fma")
static double multiply_f32_avx2(int64_t iterations)
{
    __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f), total = _mm256_setzero_ps();
    FOR_10(START_F32_2)
    for (int64_t n = 0; n < iterations; n++) {
        FOR_10(STEP_F32_2)
    }
    FOR_10(FOLD_F32_2)
    return (double)_mm256_cvtss_f32(total);
}

TARGET("avx512f,avx512bw,avx512bf16")
static double multiply_bf16_avx512(int64_t iterations)
{
    __m512 total = _mm512_setzero_ps();
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(-0.5f)), b = a;
    FOR_16(START_F32)
    for (int64_t n = 0; n < iterations; n++) {
        FOR_16(STEP_BF16)
    }
    FOR_16(FOLD_F32)
    return (double)_mm512_reduce_add_ps(total);
}

TARGET("avx512f,avx512bw,avx512vnni")
static double multiply_i8_avx512(int64_t iterations)
{
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1), total = _mm512_setzero_si512();
    FOR_16(START_I8)
    for (int64_t n = 0; n < iterations; n++) {
        FOR_16(STEP_I8)
    }
    FOR_16(FOLD_I8)
    return (double)_mm512_reduce_add_epi32(total);
}

TARGET("avx2")
static double multiply_i8_avx2(int64_t iterations)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-1), total = _mm256_setzero_si256();
    FOR_10(START_I8_2)
    for (int64_t n = 0; n < iterations; n++) {
        FOR_10(STEP_I8_2)
    }
    FOR_10(FOLD_I8_2)
    return (double)_mm256_extract_epi32(total, 0);
}
#endif

/* ---- any processor: what the compiler makes of plain C ---- */

UNCHECKED static uint64_t read_plain(const void *data, size_t size)
{
    const char *at = data, *end = at + size;
    uint64_t sum[8] = {0};
    for (; at < end; at += 64) {
        uint64_t block[8];
        memcpy(block, at, sizeof block);
        for (int i = 0; i < 8; i++) sum[i] ^= block[i];
    }
    for (int i = 1; i < 8; i++) sum[0] ^= sum[i];
    return sum[0];
}

/* The C library's own, which know the machine. */
UNCHECKED static void write_plain(void *out, const void *in, size_t size)
{
    (void)in;
    memset(out, 1, size);
}

UNCHECKED static void copy_plain(void *out, const void *in, size_t size)
{
    memcpy(out, in, size);
}

static double multiply_f32_plain(int64_t iterations)
{
    float sum[32];
    for (int i = 0; i < 32; i++) sum[i] = 1.0f + 0.01f * (float)i;
    for (int64_t n = 0; n < iterations; n++)
        for (int i = 0; i < 32; i++) sum[i] = sum[i] * 0.999f + 0.001f;
    for (int i = 1; i < 32; i++) sum[0] += sum[i];
    return (double)sum[0];
}

const struct ceiling_reader ceiling_readers[] = {
#if defined(__x86_64__)
    {"avx512", CPU_AVX512, read_avx512},
    {"avx512_prefetch", CPU_AVX512, read_avx512_prefetch},
    {"avx512_streams", CPU_AVX512, read_avx512_streams},
    {"avx2", CPU_AVX2, read_avx2},
#endif
    {"plain", 0, read_plain},
    {NULL, 0, NULL},
};

const struct ceiling_mover ceiling_writers[] = {
#if defined(__x86_64__)
    {"avx512", CPU_AVX512, write_avx512}, {"avx512_stream", CPU_AVX512, write_avx512_stream},
    {"avx2", CPU_AVX2, write_avx2},
#endif
    {"memset", 0, write_plain},           {NULL, 0, NULL},
};

const struct ceiling_mover ceiling_copiers[] = {
#if defined(__x86_64__)
    {"avx512", CPU_AVX512, copy_avx512}, {"avx512_stream", CPU_AVX512, copy_avx512_stream},
    {"avx2", CPU_AVX2, copy_avx2},
#endif
    {"memcpy", 0, copy_plain},           {NULL, 0, NULL},
};

static const struct ceiling_multiplier f32[] = {
#if defined(__x86_64__)
    {"avx512", CPU_AVX512, 16 * 32, multiply_f32_avx512},
    {"avx2", CPU_AVX2, 10 * 16, multiply_f32_avx2},
#endif
    {"plain", 0, 32 * 2, multiply_f32_plain},
    {NULL, 0, 0, NULL},
};

static const struct ceiling_multiplier bf16[] = {
#if defined(__x86_64__)
    {"avx512_bf16", CPU_AVX512 | CPU_AVX512_BF16, 16 * 64, multiply_bf16_avx512},
#endif
    {NULL, 0, 0, NULL},
};

static const struct ceiling_multiplier i8[] = {
#if defined(__x86_64__)
    {"avx512_vnni", CPU_AVX512 | CPU_AVX512_VNNI, 16 * 128, multiply_i8_avx512},
    {"avx2", CPU_AVX2, 10 * 64, multiply_i8_avx2},
#endif
    {NULL, 0, 0, NULL},
};

const struct ceiling_multiplier *const ceiling_multipliers[NUMERICS_RATES] = {
    [NUMERICS_EXACT] = f32,
    [NUMERICS_BF16] = bf16,
    [NUMERICS_I8] = i8,
};
