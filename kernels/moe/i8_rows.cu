/* Rows in int8, gathered: numbers in bf16 over a scale of each row, the largest magnitude becoming 127. In each 32
 * columns bytes are in the order in which weights are decoded (mxfp4_byte_column): a lane has two neighbouring
 * columns of each 8, so that it makes whole words. A warp a row. Where a number is infinite or none, the scale
 * is none, and so is all that is made of the row. */
#include "common.cuh"
#include "inline.cuh"
#include "moe/i8_rows_args.h"
#include "pack/mxfp4_tiles.h"

enum { EIGHTS = 4, INFINITE = 0x7f800000 };

/* Two numbers from column j on, rounded to bf16. */
INLINE float2 load_two(const float *row, int64_t j)
{
    float2 x = *(const float2 *)(row + j);
    return {bf16_to_f32(f32_to_bf16(x.x)), bf16_to_f32(f32_to_bf16(x.y))};
}

INLINE float2 load_two(const uint16_t *row, int64_t j)
{
    uint32_t x = *(const uint32_t *)(row + j);
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
}

INLINE uint32_t magnitude(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

template <class T> INLINE void make_row(const i8_rows_args &a)
{
    int64_t row = blockIdx.x * (int64_t)(I8_ROWS_THREADS / WARP) + threadIdx.x / WARP;
    if (row >= a.rows) return;
    const T *from = (const T *)a.a + (a.a_rows ? a.a_rows[row] : row) * a.k;
    int lane = threadIdx.x % WARP;
    uint32_t largest = 0; /* bits of magnitudes are in order, numbers before what is none */
#pragma unroll 4
    for (int64_t j = 2 * lane; j < a.k; j += 2 * WARP) {
        float2 x = load_two(from, j);
        largest = max(largest, max(magnitude(x.x), magnitude(x.y)));
    }
    largest = __reduce_max_sync(FULL_MASK, largest);
    float by = 127 / __uint_as_float(largest);
    if (largest >= INFINITE || !(by < INFINITY)) by = 0;
    int32_t sum = 0;
#pragma unroll 4
    for (int64_t j = lane / 4 * 32; j < a.k_padded; j += WARP / 4 * 32) {
        int32_t byte[2][EIGHTS] = {}; /* of the first half of 32 columns, and of the second */
#pragma unroll
        for (int e = 0; e < EIGHTS && j < a.k; e++) {
            float2 x = load_two(from, j + 8 * e + lane % 4 * 2);
            byte[e / 2][e % 2 * 2] = (int32_t)rintf(x.x * by);
            byte[e / 2][e % 2 * 2 + 1] = (int32_t)rintf(x.y * by);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int32_t *b = byte[h];
            sum += b[0] + b[1] + b[2] + b[3];
            *(uint32_t *)(a.out + row * a.k_padded + j + 16 * h + lane % 4 * 4) =
                (b[0] & 255) | (b[1] & 255) << 8 | (b[2] & 255) << 16 | (uint32_t)b[3] << 24;
        }
    }
    sum = __reduce_add_sync(FULL_MASK, sum);
    if (lane == 0) a.out_rows[row] = {by > 0 ? __uint_as_float(largest) / 127 : __uint_as_float(largest) * 0, sum};
}

KERNEL_OF(I8_ROWS_THREADS, i8_rows_f32, i8_rows_args)
{
    wait_for_input();
    let_next_start();
    make_row<float>(a);
}

KERNEL_OF(I8_ROWS_THREADS, i8_rows_bf16, i8_rows_args)
{
    wait_for_input();
    let_next_start();
    make_row<uint16_t>(a);
}
