/* The rows of attn_in as operands of its products, a block a row: norm, in bf16. What the products'
 * epilogue needs of a row is found here too, once for all heads: its rotations, its place in the cache. */
#include "attn_in/attn_in_many_args.h"
#include "cache.cuh"
#include "gemm/few_rows.cuh"
#include "rope/rope.cuh"

enum { THREADS = ATTN_IN_NORM_THREADS, CHUNKS = ATTN_IN_NORM_HELD_MAX / 8 / THREADS };

KERNEL_OF(THREADS, attn_in_norm, attn_in_norm_args)
{
    __shared__ float scratch[WARP];
    held_row<CHUNKS, THREADS> held;
    let_next_start(); /* who follows asks for weights before it waits */
    wait_for_input();
    int64_t row = blockIdx.x;
    const float *x = a.x + row * a.hidden;
    held.take(x, (uint32_t)a.hidden);
    uint32_t d = threadIdx.x, half = (uint32_t)a.cache.head_dim / 2;
    if (d < half) {
        rotation by;
        by.set(a.position[row], a.inv_freq[d], a.rope_scale);
        ((float2 *)a.turns)[row * half + d] = {by.cosine, by.sine};
    }
    if (d == 0)
        a.cache_rows[row] = (int32_t)cache_row(
            a.cache, cache_page(a.cache, a.sequence[row], a.position[row]), 0, a.position[row]);
    held.norm(x, a.norm, (uint32_t)a.hidden, a.eps, scratch);
    uint4 *out = (uint4 *)(a.out + row * a.padded);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const float *v = held.x[i];
        if (held.chunk(i) < a.padded / 8)
            out[held.chunk(i)] = {f32_to_bf16x2(v[0], v[1]), f32_to_bf16x2(v[2], v[3]),
                                  f32_to_bf16x2(v[4], v[5]), f32_to_bf16x2(v[6], v[7])};
    }
}
