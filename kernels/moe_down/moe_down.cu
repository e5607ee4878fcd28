/* Down projections of a row's experts, weighted, into the residual stream. A block owns 16 features of
 * some of the experts: a pair of blocks has all of them where there are clusters, else one block; its
 * warps share the experts, and each expert's columns. All blocks run at the same time.
 *
 * Which experts were chosen is read before the kernel before has ended, so that their weights are on
 * the way early: whoever chose them must have ended before that one began, as the router does, which
 * moe_up has waited for. */
#include "gemm/few_rows.cuh"
#include "moe_down/moe_down_args.h"

enum { THREADS = FEW_ROWS_THREADS, WARPS = THREADS / WARP, PARTS = FEW_ROWS_PARTS };

/* SLOTS of the choices a block, DEPTH units of a warp on their way. */
template <int SLOTS, int DEPTH, bool PAIR> __device__ inline void moe_down(const moe_down_kernel_args &a)
{
    enum { SPLITS = WARPS / SLOTS, LANES = SPLITS * WARP, CHUNKS = MOE_DOWN_INNER_MAX / 8 / LANES };
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[WARPS];
    pair_sum<PAIR> pair;
    held_row<CHUNKS, LANES> act;
    dot<mxfp4_weights, 1, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, units = unit_count(a.intermediate), top_k = (uint32_t)a.top_k;
    uint32_t own = warp / SPLITS, split = warp % SPLITS, first = pair.rank() * SLOTS, slot = first + own;
    uint32_t tile = PAIR ? blockIdx.x / FEW_ROWS_PAIR : blockIdx.x;
    char *mine = columns + own * PARTS * column_bytes<mxfp4_weights>(a.intermediate);
    bool works = slot < top_k;
    int64_t row = 0;
    pair.begin();
    if (works) {
        product.weights[0].set(a.down, a.down_scales, a.intermediate,
                               (int64_t)__ldcg(a.expert + slot) * tile_count(TILES_MXFP4, a.hidden) + tile);
        product.open(split, SPLITS, units);
        row = __ldcg(a.row_of_slot + slot);
    }
    /* The first threads finish the block's features: what they need then is fetched now. */
    int64_t feature = (int64_t)tile * FEATURES + threadIdx.x;
    bool finishes = threadIdx.x < FEATURES && feature < a.hidden;
    float bias[SLOTS] = {0}, weight[SLOTS] = {0};
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || first + j >= top_k) continue;
        if (a.down_bias) bias[j] = a.down_bias[__ldcg(a.expert + first + j) * a.hidden + feature];
        weight[j] = __ldcg(a.weight + first + j);
    }
    pair.ready();
    wait_for_input();
    let_next_start();
    if (works) act.take(a.act + row * a.intermediate, a.intermediate);
    float total = finishes && first == 0 ? a.x[feature] : 0;
    if (works) act.template spread<mxfp4_weights, PARTS>(a.intermediate, mine);
    __syncthreads();

    float sum[1][4] = {{0, 0, 0, 0}};
    if (works)
        product.run(sum, lane_column<mxfp4_weights>(mine, a.intermediate, PARTS), split, SPLITS, units);
    partial[warp].put<mxfp4_weights>(sum[0]);
    __syncthreads();
    if (threadIdx.x >= WARP) return;
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || first + j >= top_k) break;
        float y = total_of<PARTS, SPLITS>(partial + j * SPLITS, (int)threadIdx.x, 0);
        total += weight[j] * (y + bias[j]);
    }
    if (pair.join(total) && finishes) a.x[feature] = total;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    moe_down_row(const __grid_constant__ moe_down_kernel_args a)
{
    moe_down<MOE_DOWN_SLOTS, 6, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    moe_down_row_pair(const __grid_constant__ moe_down_kernel_args a)
{
#if __CUDA_ARCH__ >= 900
    moe_down<MOE_DOWN_SLOTS / FEW_ROWS_PAIR, 4, true>(a);
#endif
}
