/* MXFP4 and Q8_0 in tiles as kernels read them: every element where its lane, word and pair are, by
 * the layouts that kernels/pack/mxfp4_tiles.h and q8_0_tiles.h state; of MXFP4 its bits those that
 * make a bf16 by shifts, an exclusive or and a mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "format/dtype.h"
#include "ops/cuda/pack_cuda.h"

/* The pair as a kernel makes it: two bf16, 2^-126 times the values. */
static uint32_t pair_of(uint32_t word, uint32_t pair)
{
    const uint32_t shifted[] = {word ^ word << 5, word << 3, word << 6, word >> 7 ^ word << 4};
    return shifted[pair] & 0x81c081c0u;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Row and column of one group, read from the packed tensor as lane (g, t) of a warp would. */
static float read_q8_0(const struct tensor *t, int64_t group, int64_t row, int64_t column)
{
    int64_t tiles = (t->rows + 7) / 8, units = (t->cols + 63) / 64;
    int64_t unit = (group * tiles + row / 8) * units + column / 64;
    int64_t g = row % 8, lane = 4 * g + column % 8 / 2, word = column % 64 / 16;
    const uint8_t *bytes = (const uint8_t *)t->data + unit * 512 + lane * 16 + word * 4;
    uint16_t scale;
    memcpy(&scale, (const char *)t->scales + unit * 32 + g * 4 + column % 64 / 32 * 2,
           sizeof scale);
    return (float)(bytes[column % 16 / 8 * 2 + column % 2] - 128) * f16_to_f32(scale);
}

static float read_mxfp4(const struct tensor *t, int64_t group, int64_t row, int64_t column)
{
    int64_t tiles = (t->rows + 15) / 16, units = (t->cols + 63) / 64;
    int64_t unit = (group * tiles + row / 16) * units + column / 64;
    int64_t g = row % 8, lane = 4 * g + column % 8 / 2, word = row % 16 / 8 * 2 + column % 64 / 32;
    uint32_t bits;
    memcpy(&bits, (const char *)t->data + unit * 512 + lane * 16 + word * 4, sizeof bits);
    uint32_t pair = pair_of(bits, (uint32_t)(column % 32 / 8));
    uint32_t scale =
        ((const uint8_t *)t->scales)[unit * 32 + g * 4 + row % 16 / 8 * 2 + column % 64 / 32];
    float value = from_bits(column % 2 ? pair & 0xffff0000u : pair << 16) * 0x1p126f;
    return scale ? value * from_bits(scale << 23) : value * 0x1p-127f;
}

static float read_packed(const struct tensor *t, int64_t group, int64_t row, int64_t column)
{
    return t->dtype == DTYPE_Q8_0 ? read_q8_0(t, group, row, column)
                                  : read_mxfp4(t, group, row, column);
}

static void draw_blocks(struct rng *rng, enum dtype dtype, unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)rng_next(rng);
    for (size_t i = 0; dtype == DTYPE_MXFP4 && i < bytes; i += 17)
        data[i] = (unsigned char)rng_range(rng, 0, 200);
    for (size_t i = 0; dtype == DTYPE_Q8_0 && i < bytes; i += 34) {
        uint16_t scale = f16_from_f32(0.01f * rng_normal(rng));
        memcpy(data + i, &scale, sizeof scale);
    }
}

static void check_shape(struct rng *rng, enum dtype dtype, int64_t groups, int64_t rows,
                        int64_t cols)
{
    size_t row_bytes = dtype_row_bytes(dtype, cols);
    struct tensor plain = {.dtype = dtype, .groups = groups, .rows = rows, .cols = cols};
    unsigned char *data = malloc((size_t)(groups * rows) * row_bytes);
    void *memory = malloc(tensor_packed_bytes(&plain));
    float *wanted = malloc((size_t)cols * sizeof *wanted);
    assert_true(data && memory && wanted);
    draw_blocks(rng, dtype, data, (size_t)(groups * rows) * row_bytes);
    plain.data = data;
    struct tensor packed;
    tensor_pack_host(&plain, memory, &packed);
    assert_true(packed.layout == LAYOUT_TILES);
    assert_true((uintptr_t)packed.scales > (uintptr_t)packed.data);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t r = 0; r < rows; r++) {
            dtype_info(dtype)->decode(tensor_row(&plain, g, r), wanted, cols);
            for (int64_t c = 0; c < cols; c++)
                if (read_packed(&packed, g, r, c) != wanted[c])
                    fail_msg("[%lld][%lld][%lld]: %g, not %g", (long long)g, (long long)r,
                             (long long)c, (double)read_packed(&packed, g, r, c),
                             (double)wanted[c]);
        }
    free(wanted);
    free(memory);
    free(data);
}

static void test_layout(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    const enum dtype types[] = {DTYPE_MXFP4, DTYPE_Q8_0};
    for (int i = 0; i < 2; i++) {
        check_shape(&rng, types[i], 1, 16, 64);
        check_shape(&rng, types[i], 3, 17, 96); /* neither whole tiles nor whole units */
        check_shape(&rng, types[i], 2, 1, 32);
        check_shape(&rng, types[i], 2, 48, 320);
    }
}

/* What a tile lacks is zero, so that kernels need not ask where a matrix ends. */
static void test_padding(void **state)
{
    (void)state;
    const struct block_mxfp4 blocks[] = {{127, {0x77, 0x77}}, {127, {0x77, 0x77}}};
    struct tensor plain = {
        .data = blocks, .dtype = DTYPE_MXFP4, .groups = 1, .rows = 2, .cols = 32};
    struct tensor packed;
    unsigned char memory[2048];
    assert_in_range(tensor_packed_bytes(&plain), 512 + 32, sizeof memory);
    memset(memory, 0xff, sizeof memory);
    tensor_pack_host(&plain, memory, &packed);
    struct tensor whole = packed;
    whole.rows = 16;
    whole.cols = 64;
    for (int64_t r = 0; r < 16; r++)
        for (int64_t c = 0; c < 64; c++) {
            bool there = r < 2 && (c < 2 || (c >= 16 && c < 18));
            assert_true(read_packed(&whole, 0, r, c) == (there ? 6.0f : 0.0f));
        }
}

static void test_q8_0_padding(void **state)
{
    (void)state;
    const struct block_q8_0 block = {f16_from_f32(2), {-128, 127, 1}};
    struct tensor plain = {.data = &block, .dtype = DTYPE_Q8_0, .groups = 1, .rows = 1, .cols = 32};
    struct tensor packed;
    unsigned char memory[1024];
    assert_in_range(tensor_packed_bytes(&plain), 512 + 32, sizeof memory);
    memset(memory, 0xff, sizeof memory);
    tensor_pack_host(&plain, memory, &packed);
    struct tensor whole = packed;
    whole.rows = 8;
    whole.cols = 64;
    for (int64_t r = 0; r < 8; r++)
        for (int64_t c = 0; c < 64; c++)
            assert_true(read_packed(&whole, 0, r, c) ==
                        (r == 0 && c < 32 ? 2.0f * block.q[c] : 0.0f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layout),
                                       cmocka_unit_test(test_padding),
                                       cmocka_unit_test(test_q8_0_padding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
