/* Number formats against values computed from their bit fields with ldexp, every code of every
 * format. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "format/dtype.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* A float format by its fields; NaNs and infinities are left to the callers. */
static double from_fields(unsigned code, int exp_bits, int man_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1;
    int sign = code >> (exp_bits + man_bits) & 1u;
    int exponent = (int)(code >> man_bits & ((1u << exp_bits) - 1u));
    int mantissa = (int)(code & ((1u << man_bits) - 1u));
    double value = exponent == 0 ? ldexp(mantissa, 1 - bias - man_bits)
                                 : ldexp(mantissa + (1 << man_bits), exponent - bias - man_bits);
    return sign ? -value : value;
}

static void assert_same(double got, double want, unsigned code)
{
    if (isnan(want) ? isnan(got) : (got == want && signbit(got) == signbit(want))) return;
    fail_msg("code 0x%x: got %.9g, want %.9g", code, got, want);
}

static void test_f16_every_code(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 65536; code++) {
        double want = from_fields(code, 5, 10);
        if ((code & 0x7c00) == 0x7c00)
            want = code & 0x3ff ? NAN : code & 0x8000 ? -INFINITY : INFINITY;
        float got = f16_to_f32((uint16_t)code);
        assert_same(got, want, code);
        if (isnan(want)) {
            assert_int_equal(f16_from_f32(got), code | 0x200);
        } else {
            assert_int_equal(f16_from_f32(got), code);
        }
    }
}

static void test_bf16_every_code(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 65536; code++) {
        double want = from_fields(code, 8, 7);
        if ((code & 0x7f80) == 0x7f80)
            want = code & 0x7f ? NAN : code & 0x8000 ? -INFINITY : INFINITY;
        float got = bf16_to_f32((uint16_t)code);
        assert_same(got, want, code);
        if (isnan(want)) {
            assert_int_equal(bf16_from_f32(got), code | 0x40);
        } else {
            assert_int_equal(bf16_from_f32(got), code);
        }
    }
}

static void test_fp8_every_code(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        double want = (code & 0x7f) == 0x7f ? NAN : from_fields(code, 4, 3);
        assert_same(fp8_e4m3_to_f32((uint8_t)code), want, code);
        assert_int_equal(fp8_e4m3_from_f32(fp8_e4m3_to_f32((uint8_t)code)), code);

        want = from_fields(code, 5, 2);
        if ((code & 0x7c) == 0x7c) want = code & 3 ? NAN : code & 0x80 ? -INFINITY : INFINITY;
        assert_same(fp8_e5m2_to_f32((uint8_t)code), want, code);
        unsigned back = isnan(want) ? (code & 0x80) | 0x7e : code;
        assert_int_equal(fp8_e5m2_from_f32(fp8_e5m2_to_f32((uint8_t)code)), back);
    }
}

static void test_scales_and_e2m1_every_code(void **state)
{
    (void)state;
    const struct dtype_info *info = dtype_info(DTYPE_E8M0);
    for (int code = 0; code < 256; code++) {
        float got = e8m0_to_f32((uint8_t)code);
        assert_same(got, code == 255 ? NAN : ldexp(1.0, code - 127), (unsigned)code);
        uint8_t back = 77;
        info->encode(&got, &back, 1);
        assert_int_equal(back, code);
    }
    for (unsigned code = 0; code < 16; code++) {
        assert_same(e2m1_to_f32((uint8_t)code), from_fields(code, 2, 1), code);
        assert_same(e2m1_to_f32((uint8_t)(code | 0xf0)), from_fields(code, 2, 1), code);
        assert_int_equal(e2m1_from_f32(e2m1_to_f32((uint8_t)code)), code);
    }
}

/* Between two neighbouring codes: just below the middle goes down, the middle to the even code,
 * just above goes up. Covers subnormals, and the step between binades. */
#define CHECK_TIES(to, from, type, last)                                                           \
    for (unsigned code = 0; code < (last); code++) {                                               \
        double a = to((type)code), b = to((type)(code + 1)), middle = (a + b) / 2;                 \
        float tie = (float)middle;                                                                 \
        if ((double)tie != middle) continue; /* bf16 subnormals at float32's own edge */           \
        assert_int_equal(from(tie), code & 1 ? code + 1 : code);                                   \
        assert_int_equal(from(nextafterf(tie, 0.0f)), code);                                       \
        assert_int_equal(from(nextafterf(tie, INFINITY)), code + 1);                               \
    }

static void test_ties_to_even(void **state)
{
    (void)state;
    CHECK_TIES(f16_to_f32, f16_from_f32, uint16_t, 0x7bffu)
    CHECK_TIES(bf16_to_f32, bf16_from_f32, uint16_t, 0x7f7fu)
    CHECK_TIES(fp8_e4m3_to_f32, fp8_e4m3_from_f32, uint8_t, 0x7eu)
    CHECK_TIES(fp8_e5m2_to_f32, fp8_e5m2_from_f32, uint8_t, 0x7bu)
    CHECK_TIES(e2m1_to_f32, e2m1_from_f32, uint8_t, 7u)
}

static void test_too_large(void **state)
{
    (void)state;
    assert_int_equal(f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(f16_from_f32(-1e30f), 0xfc00);
    assert_int_equal(bf16_from_f32(3.4e38f), 0x7f80);
    assert_int_equal(bf16_from_f32(-INFINITY), 0xff80);
    assert_int_equal(fp8_e4m3_from_f32(464.0f), 0x7e);
    assert_int_equal(fp8_e4m3_from_f32(1e9f), 0x7e);
    assert_int_equal(fp8_e4m3_from_f32(-INFINITY), 0xfe);
    assert_int_equal(fp8_e4m3_from_f32(NAN) & 0x7f, 0x7f);
    assert_int_equal(fp8_e5m2_from_f32(61440.0f), 0x7c);
    assert_int_equal(fp8_e5m2_from_f32(61439.0f), 0x7b);
    assert_int_equal(fp8_e5m2_from_f32(-INFINITY), 0xfc);
    assert_int_equal(e2m1_from_f32(1e30f), 7);
    assert_int_equal(e2m1_from_f32(-INFINITY), 15);
    assert_int_equal(e2m1_from_f32(NAN), 0);
    assert_int_equal(f16_from_f32(1e-40f), 0);
    assert_int_equal(f16_from_f32(-1e-40f), 0x8000);
    assert_int_equal(fp8_e5m2_from_f32(1e-40f), 0);

    const float scales[] = {0.0f,    -1.0f,  INFINITY,    3.0f,       1.5f,
                            3.4e38f, 1e-45f, 0x1.8p-127f, 0x1.9p-127f};
    const uint8_t want[] = {0, 255, 255, 128, 128, 254, 0, 0, 1};
    uint8_t got[COUNT(scales)];
    dtype_info(DTYPE_E8M0)->encode(scales, got, COUNT(scales));
    assert_memory_equal(got, want, sizeof want); /* 1.5: codes 127 and 128; 3: 128 and 129 */
}

static void test_mxfp4_orders(void **state)
{
    (void)state;
    struct block_mxfp4 block;
    float gguf[32], hf[32];
    for (int i = 0; i < 16; i++) block.nibbles[i] = (uint8_t)(i | ((i + 5) & 15) << 4);
    for (int scale = 0; scale < 256; scale++) {
        block.scale = (uint8_t)scale;
        dtype_info(DTYPE_MXFP4)->decode(&block, gguf, 32);
        mxfp4_hf_decode(block.nibbles, block.scale, hf);
        for (int j = 0; j < 16; j++) {
            double factor = scale == 255 ? NAN : ldexp(1.0, scale - 127);
            double low = (float)(from_fields((unsigned)j, 2, 1) * factor);
            double high = (float)(from_fields((unsigned)(j + 5) & 15, 2, 1) * factor);
            assert_same(gguf[j], low, (unsigned)j);
            assert_same(gguf[j + 16], high, (unsigned)j);
            assert_same(hf[2 * j], low, (unsigned)j);
            assert_same(hf[2 * j + 1], high, (unsigned)j);
        }
    }
}

/* Every value that a block can hold comes back, when its largest one fixes the same scale. */
static void test_mxfp4_round_trip(void **state)
{
    (void)state;
    const struct dtype_info *info = dtype_info(DTYPE_MXFP4);
    for (int scale = 0; scale <= 252; scale++) { /* above, 4 and 6 times 2^(scale-127) overflow */
        struct block_mxfp4 block = {.scale = (uint8_t)scale}, back;
        for (int i = 0; i < 16; i++) block.nibbles[i] = (uint8_t)(i | (15 - i) << 4);
        float values[32];
        info->decode(&block, values, 32);
        info->encode(values, &back, 32);
        assert_memory_equal(&back, &block, sizeof block);
    }
}

static void test_mxfp4_encode(void **state)
{
    (void)state;
    const struct dtype_info *info = dtype_info(DTYPE_MXFP4);
    struct block_mxfp4 block;
    float values[32] = {7.9f, 2.5f, 3.5f, -5.0f, -0.25f, 0.75f}; /* 7.9: scale 1, saturates to 6 */
    info->encode(values, &block, 32);
    assert_int_equal(block.scale, 127);
    const uint8_t want[] = {7, 4, 6, 14, 8, 2};
    for (int i = 0; i < COUNT(want); i++) assert_int_equal(block.nibbles[i], want[i]);

    memset(values, 0, sizeof values);
    info->encode(values, &block, 32);
    assert_int_equal(block.scale, 0);
    values[31] = 1e-45f; /* smaller than the smallest scale can show: rounds to 0 */
    info->encode(values, &block, 32);
    info->decode(&block, values, 32);
    for (int i = 0; i < 32; i++) assert_true(values[i] == 0.0f);
    values[3] = 3.4028235e38f;
    info->encode(values, &block, 32);
    assert_int_equal(block.scale, 252);
    values[3] = INFINITY;
    info->encode(values, &block, 32);
    assert_int_equal(block.scale, 255);
    values[3] = -NAN;
    info->encode(values, &block, 32);
    assert_int_equal(block.scale, 255);
}

/* Steps of e2m1 are at most a sixth of the largest, the scale errs by a sixteenth. */
static void test_nvfp4(void **state)
{
    (void)state;
    const struct dtype_info *info = dtype_info(DTYPE_NVFP4);
    struct block_nvfp4 block = {0x40, {0x21, 0xf7}}; /* scale 2; .5 1 6 -6 */
    float values[16], back[16];
    struct rng rng;
    rng_seed(&rng, 1);
    assert_true(info->factors && info->gguf < 0);
    info->decode(&block, back, 16);
    assert_true(back[0] == 1 && back[1] == 2 && back[2] == 12 && back[3] == -12 && back[4] == 0);
    block.scale = 0xc0; /* with its sign */
    info->decode(&block, back, 16);
    assert_true(back[0] == -1 && back[3] == 12);
    for (int scale = -5; scale <= 10; scale++) {
        float amax = 0;
        for (int i = 0; i < 16; i++) values[i] = ldexpf(rng_normal(&rng), scale);
        for (int i = 0; i < 16; i++) amax = fmaxf(amax, fabsf(values[i]));
        info->encode(values, &block, 16);
        info->decode(&block, back, 16);
        for (int i = 0; i < 16; i++)
            assert_true(fabsf(back[i] - values[i]) <= amax * (1.0f / 6 + 1.0f / 16));
    }
    values[5] = -INFINITY;
    info->encode(values, &block, 16);
    assert_int_equal(block.scale, 0x7f);
    memset(values, 0, sizeof values);
    values[1] = -1e30f;
    info->encode(values, &block, 16);
    info->decode(&block, back, 16);
    assert_true(back[1] == -6 * 448 && back[0] == 0);
}

static void test_q8_0(void **state)
{
    (void)state;
    const struct dtype_info *info = dtype_info(DTYPE_Q8_0);
    unsigned char
        raw[1 + 2 * sizeof(struct block_q8_0)]; /* one byte off: any alignment is served */
    float values[64], back[64];
    struct rng rng;
    rng_seed(&rng, 1);
    for (int scale = -20; scale <= 22; scale++) {
        for (int i = 0; i < 64; i++) values[i] = ldexpf(rng_normal(&rng), scale);
        info->encode(values, raw + 1, 64);
        info->decode(raw + 1, back, 64);
        for (int b = 0; b < 2; b++) {
            float amax = 0;
            for (int i = 0; i < 32; i++) amax = fmaxf(amax, fabsf(values[32 * b + i]));
            /* Half a step, what rounding d to fp16 moves at 127 steps, and fp16's smallest number.
             */
            double bound = amax / 127 * (0.5 + 127.0 / 2048) + 127 * ldexp(1, -25);
            if (amax > 127 * 65504.0f) continue;
            for (int i = 32 * b; i < 32 * b + 32; i++) {
                if (fabs((double)back[i] - values[i]) > bound) {
                    fail_msg("2^%d: %g came back as %g", scale, (double)values[i], (double)back[i]);
                }
            }
        }
    }
}

static void test_q8_0_extremes(void **state)
{
    (void)state;
    const struct dtype_info *info = dtype_info(DTYPE_Q8_0);
    struct block_q8_0 block;
    float values[32] = {127.0f, -127.0f, 0.5f, -0.5f, 1.49f}, back[32];
    info->encode(values, &block, 32);
    assert_int_equal(block.scale, 0x3c00);
    const int want[] = {127, -127, 1, -1, 1}; /* ties away from zero, as ggml */
    for (int i = 0; i < COUNT(want); i++) assert_int_equal(block.q[i], want[i]);

    const float large[] = {3.4e38f, 127 * 65504.0f, 1e-45f, 0.0f};
    const float shown[] = {127 * 65504.0f, 127 * 65504.0f, 0.0f, 0.0f};
    for (int c = 0; c < COUNT(large); c++) {
        memset(values, 0, sizeof values);
        values[9] = -large[c];
        info->encode(values, &block, 32);
        info->decode(&block, back, 32);
        assert_true(back[9] == -shown[c]);
        assert_true(back[8] == 0.0f);
    }
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int c = 0; c < COUNT(bad); c++) {
        memset(values, 0, sizeof values);
        values[0] = 1.0f;
        values[31] = bad[c];
        info->encode(values, &block, 32);
        info->decode(&block, back, 32);
        for (int i = 0; i < 32; i++) assert_true(isnan(back[i]));
    }
}

/* The row functions of the table agree with the single-number ones, at odd addresses too. */
static void test_rows(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 2);
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const struct dtype_info *info = dtype_info((enum dtype)t);
        enum dtype named = DTYPE_COUNT;
        assert_true(dtype_from_name(info->name, &named));
        assert_int_equal(named, t);
        assert_int_equal(dtype_row_bytes((enum dtype)t, 7 * info->block), 7 * info->block_bytes);
        float values[96], once[96], twice[96];
        unsigned char raw[1 + 96 * 4];
        for (int i = 0; i < 96; i++) values[i] = fabsf(rng_normal(&rng));
        info->encode(values, raw + 1, 96);
        info->decode(raw + 1, once, 96);
        info->encode(once, raw + 1, 96);
        info->decode(raw + 1, twice, 96);
        for (int i = 0; i < 96; i++) {
            assert_true(fabsf(once[i] - values[i]) <= 0.5f + values[i] * 0.42f);
            assert_true(once[i] == twice[i] || t == DTYPE_Q8_0); /* q8_0 may pick another d */
        }
    }
    enum dtype none;
    assert_false(dtype_from_name("q4_k", &none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_every_code), cmocka_unit_test(test_bf16_every_code),
        cmocka_unit_test(test_fp8_every_code), cmocka_unit_test(test_scales_and_e2m1_every_code),
        cmocka_unit_test(test_ties_to_even),   cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_mxfp4_orders),   cmocka_unit_test(test_mxfp4_round_trip),
        cmocka_unit_test(test_mxfp4_encode),   cmocka_unit_test(test_nvfp4),
        cmocka_unit_test(test_q8_0),           cmocka_unit_test(test_q8_0_extremes),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
