/* What CUDA C has and C++ has not, for kernels that a processor's compiler compiles as they are:
 * included before everything else. A block is one thread of the host, whose shared memory is
 * therefore thread-local; the block's threads take turns on it (emulate.cpp), and change places
 * only where a barrier, or an exchange between lanes, waits for others. Matrix instructions and
 * copies have their meaning, asynchronous ones at once.
 *
 * All kernels are in one library: functions of two files that have the same name and arguments must
 * be the same, or one of them is called in the place of the other.
 *
 * So arithmetic, indices and layouts are tested, and barriers that not all reach. Races, missing
 * waits for copies, alignment and what some architectures have of their own are not; but sm_12x's
 * block-scaled matrix instructions are, and emulate_async.hpp has what is done behind threads'
 * backs, for kernels of sm_90a and sm_100a. */
#ifndef TESTS_EMULATE_HPP
#define TESTS_EMULATE_HPP

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define __CUDACC__    1
#define __CUDA_ARCH__ 800 /* what every card can do */

/* ---- words ---- */

#define __device__
#define __host__
#define __global__
#define __constant__
#define __grid_constant__
#define __shared__ thread_local
#define __noinline__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) int4 {
    int32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static inline float2 make_float2(float x, float y)
{
    return {x, y};
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

template <class A, class B> static inline auto min(A a, B b)
{
    return a < b ? a : b;
}

template <class A, class B> static inline auto max(A a, B b)
{
    return a < b ? b : a;
}

/* ---- threads ---- */

struct emulated_index {
    uint32_t x, y, z;
};

/* What a thread shows to the others of its warp, in turn at two places: who shows the next thing
 * does not have to wait until all have seen this one. */
struct emulated_words {
    union {
        uint64_t at[8];
        float f[16];
    };
};

enum { EMULATED_THREADS = 2048 }; /* of blocks that run at once */

/* What the threads of a block have to show. */
struct emulated_board {
    int turn[EMULATED_THREADS];
    emulated_words words[2][EMULATED_THREADS];
    int votes[EMULATED_THREADS];
};

struct emulated_block {
    int current, count; /* threads: which runs, of a block */
    int blocks; /* that run at once: a cluster, or all; the threads of one behind the other's */
    emulated_board *board;
};

/* Of a thread of the host, and found by one instruction: what is so has to be small and in a
 * library of its own (threads.cpp), or it cannot be loaded while a program runs. */
#define EMULATED_NEAR thread_local __attribute__((tls_model("initial-exec")))
extern EMULATED_NEAR emulated_block emulated;
extern EMULATED_NEAR emulated_index threadIdx, blockIdx, gridDim, blockDim;

void emulated_block_barrier(void);
void emulated_warp_barrier(void);

/* For what this thread shows next; emulated_warp_barrier, then emulated_lane. */
static inline emulated_words &emulated_next(void)
{
    emulated_board *board = emulated.board;
    return board->words[board->turn[emulated.current] ^= 1][emulated.current];
}

/* What the lanes have shown, from lane 0 on. */
static inline const emulated_words *emulated_lanes(void)
{
    int me = emulated.current;
    return &emulated.board->words[emulated.board->turn[me]][me / 32 * 32];
}

static inline void __syncthreads(void)
{
    emulated_block_barrier();
}

static inline void __syncwarp(void)
{
    emulated_warp_barrier();
}

static inline int __syncthreads_or(int predicate)
{
    int any = 0;
    emulated.board->votes[emulated.current] = predicate != 0;
    emulated_block_barrier();
    int first = emulated.current / emulated.count * emulated.count;
    for (int i = 0; i < emulated.count; i++) any |= emulated.board->votes[first + i];
    emulated_block_barrier();
    return any;
}

template <class T> static inline T emulated_from(T value, uint32_t lane)
{
    memcpy(emulated_next().at, &value, sizeof value);
    emulated_warp_barrier();
    memcpy(&value, emulated_lanes()[lane].at, sizeof value);
    return value;
}

template <class T> static inline T __shfl_sync(unsigned, T value, int lane)
{
    return emulated_from(value, (uint32_t)lane % 32);
}

template <class T> static inline T __shfl_xor_sync(unsigned, T value, int mask)
{
    return emulated_from(value, (threadIdx.x ^ (uint32_t)mask) % 32);
}

template <class T> static inline T __shfl_up_sync(unsigned, T value, int delta)
{
    uint32_t lane = threadIdx.x % 32;
    return emulated_from(value, lane >= (uint32_t)delta ? lane - (uint32_t)delta : lane);
}

template <class T> static inline T __shfl_down_sync(unsigned, T value, int delta)
{
    uint32_t lane = threadIdx.x % 32;
    return emulated_from(value, lane + (uint32_t)delta < 32 ? lane + (uint32_t)delta : lane);
}

/* A bit for each lane of which `holds` says so. */
template <class F> static inline uint32_t emulated_vote(uint64_t word, F holds)
{
    uint32_t bits = 0;
    emulated_next().at[0] = word;
    emulated_warp_barrier();
    for (int i = 0; i < 32; i++) bits |= (uint32_t)holds(emulated_lanes()[i].at[0]) << i;
    return bits;
}

static inline uint32_t __ballot_sync(unsigned, int predicate)
{
    return emulated_vote(predicate != 0, [](uint64_t other) { return other != 0; });
}

static inline int __any_sync(unsigned, int predicate)
{
    return __ballot_sync(~0u, predicate) != 0;
}

static inline uint32_t __match_any_sync(unsigned, int value)
{
    return emulated_vote((uint32_t)value, [=](uint64_t other) { return other == (uint32_t)value; });
}

static inline uint32_t __reduce_add_sync(unsigned, uint32_t value)
{
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

static inline uint32_t __reduce_max_sync(unsigned, uint32_t value)
{
    for (int step = 16; step; step /= 2) value = max(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

static inline uint32_t __reduce_min_sync(unsigned, uint32_t value)
{
    for (int step = 16; step; step /= 2) value = min(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

/* ---- numbers ---- */

template <class To, class From> static inline To emulated_bits(From from)
{
    To to;
    static_assert(sizeof to == sizeof from, "bits");
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline uint32_t __float_as_uint(float x)
{
    return emulated_bits<uint32_t>(x);
}

static inline int32_t __float_as_int(float x)
{
    return emulated_bits<int32_t>(x);
}

static inline float __uint_as_float(uint32_t x)
{
    return emulated_bits<float>(x);
}

static inline float __int_as_float(int32_t x)
{
    return emulated_bits<float>(x);
}

static inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}

static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __vimax3_s32(int a, int b, int c)
{
    return max(a, max(b, c));
}

static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> shift % 32);
}

static inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t select)
{
    uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++)
        result |= (uint32_t)(bytes >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}

static inline float __fdividef(float x, float y)
{
    return x / y;
}

#define __expf expf /* <math.h> has another of that name */

static inline void sincospif(float x, float *sine, float *cosine)
{
    *sine = (float)sin(M_PI * (double)x);
    *cosine = (float)cos(M_PI * (double)x);
}

/* ---- memory ---- */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}

template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}

/* That a thread wrote there (emulate_async.cpp). */
void emulated_global_write(const void *at, uint32_t bytes);

template <class T> static inline void __stcg(T *p, T value)
{
    *p = value;
#ifdef EMULATED_ASYNC
    emulated_global_write(p, sizeof value);
#endif
}

static inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline uint32_t atomicAdd(uint32_t *p, uint32_t value)
{
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}

static inline int32_t atomicAdd(int32_t *p, int32_t value)
{
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}

/* Only ever of shared memory, which one thread of the host has. */
static inline int32_t atomicMax(int32_t *p, int32_t value)
{
    int32_t old = *p;
    *p = max(old, value);
    return old;
}

static inline int32_t atomicMin(int32_t *p, int32_t value)
{
    int32_t old = *p;
    *p = min(old, value);
    return old;
}

extern thread_local char emulated_shared_start[]; /* addresses in shared memory count from here */

static inline uint32_t __cvta_generic_to_shared(const void *p)
{
    return (uint32_t)((const char *)p - emulated_shared_start);
}

static inline char *emulated_shared(uint32_t address)
{
    return emulated_shared_start + (int32_t)address;
}

/* ---- kernels/ptx.cuh ---- */
#define KERNELS_PTX_CUH

static inline uint16_t f32_to_bf16(float value)
{
    uint32_t bits = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline uint32_t f32_to_bf16x2(float low, float high)
{
    return f32_to_bf16(low) | (uint32_t)f32_to_bf16(high) << 16;
}

static inline uint16_t f32_to_f16(float value)
{
    return emulated_bits<uint16_t>((_Float16)value);
}

static inline uint32_t f32_to_f16x2(float low, float high)
{
    return f32_to_f16(low) | (uint32_t)f32_to_f16(high) << 16;
}

/* Of all numbers: without F16C the compiler calls a slow function. */
extern float emulated_f16_values[1 << 16];

static inline float f16_to_f32(uint16_t bits)
{
    return emulated_f16_values[bits];
}

static inline float exp2_unit(float x)
{
    float y = exp2f(x);
    return fabsf(y) < 0x1p-126f ? 0 : y;
}

#define __log2f log2f

static inline void ask_l1(const void *) {}
static inline void ask_l2(const void *) {}
static inline void wait_for_input(void) {}
static inline void let_next_start(void) {}

/* ---- kernels/mma.cuh ---- */
#define KERNELS_MMA_CUH

static inline float emulated_bf16(uint32_t word, int half)
{
    return __uint_as_float(half ? word & 0xffff0000u : word << 16);
}

static inline float emulated_f16(uint32_t word, int half)
{
    return f16_to_f32((uint16_t)(half ? word >> 16 : word));
}

/* What a warp multiplies. */
struct emulated_tiles {
    float a[16][16], b[8][16]; /* [row][k], [column][k] */
};
static_assert(sizeof(emulated_tiles) <= 32 * sizeof(emulated_words), "room of a warp");

/* Sums in double, rounded once. */
template <float NUMBER(uint32_t, int)>
static inline void emulated_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = 2 * (lane % 4);
    emulated_tiles &tiles = *(emulated_tiles *)(&emulated_next() - lane); /* each lane a part */
    for (int i = 0; i < 8; i++)
        tiles.a[g + i % 2 * 8][t + i / 4 * 8 + i / 2 % 2] = NUMBER(a[i % 2 + i / 4 * 2], i / 2 % 2);
    for (int i = 0; i < 4; i++) tiles.b[g][t + i / 2 * 8 + i % 2] = NUMBER(b[i / 2], i % 2);
    emulated_warp_barrier();
    double sum[4];
    for (int i = 0; i < 4; i++) sum[i] = d[i];
    for (int k = 0; k < 16; k++) {
        const double x[2] = {tiles.a[g][k], tiles.a[g + 8][k]},
                     y[2] = {tiles.b[t][k], tiles.b[t + 1][k]};
        for (int i = 0; i < 4; i++) sum[i] += x[i / 2] * y[i % 2];
    }
    for (int i = 0; i < 4; i++) d[i] = (float)sum[i];
}

static inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emulated_mma<emulated_bf16>(d, a, b);
}

static inline void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emulated_mma<emulated_f16>(d, a, b);
}

static inline uint32_t mul_f16x2(uint32_t a, uint32_t b)
{
    return f32_to_f16x2(emulated_f16(a, 0) * emulated_f16(b, 0),
                        emulated_f16(a, 1) * emulated_f16(b, 1));
}

static inline uint4 load_once(const void *from)
{
    return *(const uint4 *)from;
}

static inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    float sum[2];
    for (int i = 0; i < 2; i++)
        sum[i] = (float)((double)emulated_bf16(a, i) * (double)emulated_bf16(b, i) +
                         (double)emulated_bf16(c, i));
    return f32_to_bf16x2(sum[0], sum[1]);
}

static inline uint32_t mul_bf16x2(uint32_t a, uint32_t b)
{
    return fma_bf16x2(a, b, 0x80008000u);
}

/* ---- kernels/numbers.cuh ---- */
#define KERNELS_NUMBERS_CUH

static inline float min_or_nan(float a, float b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

static inline float max_or_nan(float a, float b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? b : a;
}

static inline float reciprocal_unit(float x)
{
    return 1 / x;
}

template <int HALF> static inline uint32_t mul_bf16x2_by(uint32_t a, uint32_t b)
{
    return mul_bf16x2(a, (HALF ? b >> 16 : b & 0xffff) * 0x10001u);
}

/* ---- kernels/peers.cuh ---- */
#define KERNELS_PEERS_CUH

/* Now and then late, the halves in either order. */
void pair_send(void *to, uint64_t a, uint64_t b);
/* Gives others their turn. */
void pair_take(const void *from, uint64_t *a, uint64_t *b);
/* Some wait, in any order, until a word is told behind them. */
void words_send(void *to, uint4 words);
void word_tell(uint32_t *to, uint32_t word);
uint32_t word_seen(const uint32_t *from);
uint32_t word_of_host(const uint32_t *word);
void word_to_host(uint32_t *word, uint32_t value);
uint64_t time_ns(void);

#ifndef EMULATED_ASYNC
/* ---- kernels/copy_async.cuh ---- */
#define KERNELS_COPY_ASYNC_CUH

static inline uint32_t shared_at(const void *p)
{
    return __cvta_generic_to_shared(p);
}

static inline void copy_16(uint32_t to, const void *from, bool valid = true)
{
    if (valid)
        memcpy(emulated_shared(to), from, 16);
    else
        memset(emulated_shared(to), 0, 16);
}

static inline void copy_16_of_256(uint32_t to, const void *from, bool valid)
{
    copy_16(to, from, valid);
}

static inline void copy_commit(void) {}
template <int LEFT> static inline void copy_wait(void) {}

static inline uint4 load_shared_16(uint32_t address)
{
    return *(const uint4 *)emulated_shared(address);
}

static inline uint32_t load_shared_4(uint32_t address)
{
    return *(const uint32_t *)emulated_shared(address);
}

static inline void emulated_ldmatrix(uint32_t *r, uint32_t address, bool transposed)
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    emulated_next().at[0] = address;
    emulated_warp_barrier();
    const emulated_words *lanes = emulated_lanes();
    for (uint32_t i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (uint32_t n = 0; n < 2; n++) {
            uint32_t row = transposed ? 2 * t + n : g, column = transposed ? g : 2 * t + n;
            memcpy(&pair[n], emulated_shared((uint32_t)lanes[8 * i + row].at[0]) + 2 * column, 2);
        }
        r[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

static inline void load_matrices(uint32_t *r, uint32_t address)
{
    emulated_ldmatrix(r, address, false);
}

static inline void load_transposed(uint32_t *r, uint32_t address)
{
    emulated_ldmatrix(r, address, true);
}

/* ---- kernels/copy_small.cuh ---- */
#define KERNELS_COPY_SMALL_CUH

static inline void copy_8(uint32_t to, const void *from, bool valid)
{
    if (valid)
        memcpy(emulated_shared(to), from, 8);
    else
        memset(emulated_shared(to), 0, 8);
}

#endif

/* ---- kernels/mma_block_scaled.cuh ---- */
#define KERNELS_MMA_BLOCK_SCALED_CUH
#define KERNELS_BLOCK_SCALED

/* What a lane shows: the numbers of its words, times 2, and its scales. */
struct emulated_scaled {
    int8_t a[4][8], b[2][8];
    uint8_t a_scales[4], b_scales[4];
    uint64_t pad;
};
static_assert(sizeof(emulated_scaled) == sizeof(emulated_words), "a lane's place");

static inline void emulated_e2m1(int8_t to[8], uint32_t word)
{
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int i = 0; i < 8; i++) to[i] = twice[word >> 4 * i & 15];
}

/* e4m3 without a sign. What the hardware makes of one is not said: NaN, so that it is seen. */
static inline double emulated_ue4m3(uint8_t code)
{
    return code >= 0x7f ? (double)NAN : (double)(__uint_as_float((uint32_t)code << 20) * 0x1p120f);
}

static inline double emulated_ue8m0(uint8_t code)
{
    return code == 255 ? (double)NAN : emulated_bits<double>((uint64_t)(code + 1023 - 127) << 52);
}

/* The sum over a quarter of k for a row of tiles `a` and a column of `b`: from the lanes that have
 * their words, times 4. */
static inline int emulated_quarter(const emulated_scaled *a, const emulated_scaled *b, uint32_t row,
                                   int quarter)
{
    int sum = 0, half = quarter / 2;
    for (int lane = quarter % 2 * 2; lane < quarter % 2 * 2 + 2; lane++)
        for (int i = 0; i < 8; i++)
            sum += a[lane].a[row / 8 + 2 * (uint32_t)half][i] * b[lane].b[half][i];
    return sum;
}

/* Products and sums of a block are exact; those of blocks in double, rounded once. Scale number i
 * of 16 elements is byte FIRST + i / SHARED of its word. */
template <int FIRST, int SHARED, double SCALE(uint8_t)>
static inline void emulated_mma_scaled(float d[4], const uint32_t a[4], const uint32_t b[2],
                                       uint32_t a_scales, uint32_t b_scales, int a_pair, int b_lane)
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    emulated_scaled mine = {};
    for (int i = 0; i < 4; i++) emulated_e2m1(mine.a[i], a[i]);
    for (int i = 0; i < 2; i++) emulated_e2m1(mine.b[i], b[i]);
    memcpy(mine.a_scales, &a_scales, 4);
    memcpy(mine.b_scales, &b_scales, 4);
    memcpy(emulated_next().at, &mine, sizeof mine);
    emulated_warp_barrier();
    emulated_scaled lanes[32];
    memcpy(lanes, emulated_lanes(), sizeof lanes);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = g + i / 2 * 8, column = 2 * t + i % 2;
        const emulated_scaled *left = &lanes[row % 8 * 4], *right = &lanes[column * 4];
        const uint8_t *x = left[2 * (uint32_t)a_pair + row / 8].a_scales,
                      *y = right[b_lane].b_scales;
        double sum = d[i];
        for (int q = 0; q < 4; q++)
            sum += 0.25 * emulated_quarter(left, right, row, q) * SCALE(x[FIRST + q / SHARED]) *
                   SCALE(y[FIRST + q / SHARED]);
        d[i] = (float)sum;
    }
}

template <int A_PAIR, int B_LANE>
static inline void mma_nvfp4(float d[4], const uint32_t a[4], const uint32_t b[2],
                             uint32_t a_scales, uint32_t b_scales)
{
    emulated_mma_scaled<0, 1, emulated_ue4m3>(d, a, b, a_scales, b_scales, A_PAIR, B_LANE);
}

template <int HALF, int A_PAIR, int B_LANE>
static inline void mma_mxfp4(float d[4], const uint32_t a[4], const uint32_t b[2],
                             uint32_t a_scales, uint32_t b_scales)
{
    emulated_mma_scaled<2 * HALF, 2, emulated_ue8m0>(d, a, b, a_scales, b_scales, A_PAIR, B_LANE);
}

#endif
