/* Down projections of a row's experts, weighted, into the residual stream. A block owns 16 features;
 * its warps share the experts, and each expert's columns. All blocks run at the same time.
 *
 * Which experts were chosen is read before the kernel before has ended, so that their weights are on
 * the way early: whoever chose them must have ended before that one began, as the router does, which
 * moe_up has waited for. */
#include "gemm/few_rows.cuh"
#include "moe_down/moe_down_args.h"

enum {
    SLOTS = 4,
    SPLITS = 2,
    WARPS = SLOTS * SPLITS,
    THREADS = WARPS * WARP,
    PARTS = 3,
    CHUNKS = 6,
    DEPTH = 6,
};

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    moe_down_row(const __grid_constant__ moe_down_kernel_args a)
{
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[WARPS];
    dot<mxfp4_weights, 1, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, units = unit_count(a.intermediate);
    uint32_t slot = warp / SPLITS, split = warp % SPLITS, top_k = (uint32_t)a.top_k;
    uint32_t slot_bytes = PARTS * column_bytes<mxfp4_weights>(a.intermediate);
    bool works = slot < top_k;
    int64_t row = 0;
    if (works) {
        product.weights[0].set(a.down, a.down_scales, a.intermediate,
                               (int64_t)__ldcg(a.expert + slot) * tile_count(a.hidden) + blockIdx.x);
        product.open(split, SPLITS, units);
        row = __ldcg(a.row_of_slot + slot);
    }
    /* The first threads finish the block's features: what they need then is fetched now. */
    int64_t feature = (int64_t)blockIdx.x * FEATURES + threadIdx.x;
    bool finishes = threadIdx.x < FEATURES && feature < a.hidden;
    float bias[SLOTS] = {0}, weight[SLOTS] = {0};
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || j >= top_k) continue;
        if (a.down_bias) bias[j] = a.down_bias[__ldcg(a.expert + j) * a.hidden + feature];
        weight[j] = __ldcg(a.weight + j);
    }
    wait_for_input();
    let_next_start();
    held_row<CHUNKS, SPLITS * WARP> act;
    act.take(works ? a.act + row * a.intermediate : nullptr, a.intermediate);
    float total = finishes ? a.x[feature] : 0;
    act.spread<mxfp4_weights, PARTS>(a.intermediate, columns + slot * slot_bytes);
    __syncthreads();

    float sum[1][4] = {{0, 0, 0, 0}};
    const char *x = lane_column<mxfp4_weights>(columns + slot * slot_bytes, a.intermediate, PARTS);
    if (works) product.run(sum, x, split, SPLITS, units);
    partial[warp].put<mxfp4_weights>(sum[0]);
    __syncthreads();
    if (!finishes) return;
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (j >= top_k) break;
        float y = total_of<PARTS, SPLITS>(partial + j * SPLITS, (int)threadIdx.x, 0);
        total += weight[j] * (y + bias[j]);
    }
    a.x[feature] = total;
}
