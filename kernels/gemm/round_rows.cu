/* Activations as the operand of a product: a block a row, 16 bytes of bf16 a thread at a time. */
#include "common.cuh"
#include "gemm/gemm_wgmma_args.h"

KERNEL_OF(ROUND_THREADS, round_rows, round_rows_args)
{
    wait_for_input();
    let_next_start();
    int64_t row = blockIdx.x;
    const float *from = (const float *)a.a + (a.a_rows ? a.a_rows[row] : row) * a.k;
    uint4 *to = (uint4 *)(a.out + row * a.k_padded);
    bool aligned = a.k % 4 == 0 && ((uint64_t)a.a & 15) == 0;
    for (int j = threadIdx.x; j < a.k_padded / 8; j += ROUND_THREADS) {
        float x[8];
        if (aligned && 8 * j + 8 <= a.k) {
            *(float4 *)x = ((const float4 *)from)[2 * j];
            *(float4 *)(x + 4) = ((const float4 *)from)[2 * j + 1];
        } else {
#pragma unroll
            for (int n = 0; n < 8; n++) x[n] = 8 * j + n < a.k ? from[8 * j + n] : 0;
        }
        to[j] = uint4{f32_to_bf16x2(x[0], x[1]), f32_to_bf16x2(x[2], x[3]),
                      f32_to_bf16x2(x[4], x[5]), f32_to_bf16x2(x[6], x[7])};
    }
}

KERNEL_OF(ROUND_THREADS, gather_rows, round_rows_args)
{
    wait_for_input();
    let_next_start();
    int64_t row = blockIdx.x, pieces = a.k / 8;
    const uint4 *from = (const uint4 *)a.a + a.a_rows[row] * pieces;
    uint4 *to = (uint4 *)a.out + row * pieces;
    for (int j = threadIdx.x; j < pieces; j += ROUND_THREADS) to[j] = from[j];
}
