/* Gate and up projections of a row's experts, and swiglu. blockIdx.y is the slot; 4 warps share a pair
 * of tiles, the same features of gate and of up, along the columns. All blocks run at the same time. */
#include "gemm/few_rows.cuh"
#include "moe_up/moe_up_args.h"
#include "swiglu/swiglu.cuh"

enum {
    PAIRS = MOE_UP_PAIRS,
    THREADS = MOE_UP_THREADS,
    WARPS = THREADS / WARP,
    SPLITS = WARPS / PAIRS,
    PARTS = FEW_ROWS_PARTS,
    DEPTH = 3,
};

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    moe_up_row(const __grid_constant__ moe_up_kernel_args a)
{
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[2][WARPS];
    dot<mxfp4_weights, 2, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, split = warp % SPLITS, units = unit_count(a.hidden);
    uint32_t tiles = tile_count(TILES_MXFP4, a.intermediate), tile = blockIdx.x * PAIRS + warp / SPLITS;
    wait_for_input();
    let_next_start();
    held_row<1, THREADS> x;
    x.take(a.normed, a.hidden);
    uint32_t expert = (uint32_t)a.expert[blockIdx.y];
    if (tile < tiles) {
        product.weights[0].set(a.gate, a.gate_scales, a.hidden, expert * tiles + tile);
        product.weights[1].set(a.up, a.up_scales, a.hidden, expert * tiles + tile);
    }
    /* Stores wait behind loads that memory has not answered yet, so the row goes first. */
    x.spread<mxfp4_weights, PARTS>(a.hidden, columns);
    if (tile < tiles) product.open(split, SPLITS, units);
    /* The first threads finish the block's features: what they need then is fetched now. */
    uint32_t pair = threadIdx.x / FEATURES, at = threadIdx.x % FEATURES;
    uint32_t feature = (blockIdx.x * PAIRS + pair) * FEATURES + at;
    bool finishes = pair < PAIRS && feature < a.intermediate;
    float gate = 0, up = 0;
    if (finishes && a.gate_bias) gate = a.gate_bias[expert * a.intermediate + feature];
    if (finishes && a.up_bias) up = a.up_bias[expert * a.intermediate + feature];
    int32_t row = a.row_of_slot[blockIdx.y];
    __syncthreads();

    float sum[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    if (tile < tiles)
        product.run(sum, lane_column<mxfp4_weights>(columns, a.hidden, PARTS), split, SPLITS, units);
    partial[0][warp].put<mxfp4_weights>(sum[0]);
    partial[1][warp].put<mxfp4_weights>(sum[1]);
    __syncthreads();
    if (!finishes) return;
    gate += total_of<PARTS, SPLITS>(partial[0] + pair * SPLITS, at, 0);
    up += total_of<PARTS, SPLITS>(partial[1] + pair * SPLITS, at, 0);
    a.act[row * a.intermediate + feature] = swiglu(gate, up, a.alpha, a.limit);
}
