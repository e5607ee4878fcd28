/* dq of a tile, from the sums that blocks of self_attention_backward_wgmma.cu made of it. */
#ifndef KERNELS_SELF_ATTENTION_FINISH_DQ_CUH
#define KERNELS_SELF_ATTENTION_FINISH_DQ_CUH

#include "common.cuh"
#include "inline.cuh"
#include "self_attention/quads.cuh"
#include "self_attention/self_attention_backward_args.h"

/* The sums of two warpgroups, 64 rows and 64 dimensions each, times the scale. A warp, of the first
 * eight of the block, has what was one warp's: 16 rows. */
template <int DIM> INLINE void finish_dq(const self_attention_backward_wgmma_args &a, int index)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, group = warp / 4;
    int pair = index / a.q_tiles, tile = index % a.q_tiles;
    int sequence = pair / a.n_heads, head = pair % a.n_heads;
    const float4 *sums = (const float4 *)(a.sums + (int64_t)index * BACK_TILE);
    float4 x[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        x[j] = __ldcg(sums + group * 1024 + j * 128 + warp % 4 * WARP + lane);
    int row = tile * BACK_ROWS(DIM) + (DIM == 64 ? group * 64 : 0) + warp % 4 * 16 + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bool valid = row + 8 * h < a.length;
        int64_t token = (int64_t)sequence * a.length + row + 8 * h;
        uint16_t *to = a.dq + (token * a.n_heads + head) * DIM + (DIM == 128 ? group * 64 : 0);
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = h ? f32_to_bf16x2(x[j + i].z * a.scale, x[j + i].w * a.scale)
                         : f32_to_bf16x2(x[j + i].x * a.scale, x[j + i].y * a.scale);
            quad_transpose(w);
            if (valid) *(uint4 *)(to + (j + lane % 4) * 8) = uint4{w[0], w[1], w[2], w[3]};
        }
    }
}

#endif
