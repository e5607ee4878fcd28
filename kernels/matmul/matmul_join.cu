/* What becomes of a product whose k was cut into parts: their sum, in order. */
#include "common.cuh"
#include "matmul/matmul_args.h"

KERNEL_OF(MATMUL_JOIN_THREADS, matmul_join, matmul_join_args)
{
    wait_for_input();
    let_next_start();
    int64_t at = ((int64_t)blockIdx.x * MATMUL_JOIN_THREADS + threadIdx.x) * 4;
    if (at >= a.count) return;
    float sums[4] = {};
    for (int s = 0; s < a.splits; s++) {
        float4 part = __ldg((const float4 *)(a.parts + s * a.count + at));
        sums[0] += part.x, sums[1] += part.y, sums[2] += part.z, sums[3] += part.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sums[i] *= a.alpha;
        if (a.beta == 0) continue;
        sums[i] += a.beta * (a.bf16 ? bf16_to_f32(((const uint16_t *)a.add)[at + i])
                                    : ((const float *)a.add)[at + i]);
    }
    if (a.bf16)
        *(uint2 *)((uint16_t *)a.out + at) =
            uint2{f32_to_bf16x2(sums[0], sums[1]), f32_to_bf16x2(sums[2], sums[3])};
    else
        *(float4 *)((float *)a.out + at) = make_float4(sums[0], sums[1], sums[2], sums[3]);
}
