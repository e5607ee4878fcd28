/* The experts of one row or two, exact: gate, up and swiglu, then the down projections, weighted, into the
 * residual stream. Between the two, activations lie as the columns that the second product reads: they are
 * cut into parts once, where they are made, and not by every block that needs them. */
#include "gemm/few_rows.cuh"
#include "moe/moe_row_args.h"
#include "swiglu/swiglu.cuh"

enum { PARTS = FEW_ROWS_PARTS };
typedef mxfp4_weights weights;

/* The columns of a slot, counted over all rows. */
__device__ inline char *act_of(const moe_row_args &a, uint32_t slot)
{
    return a.act + (int64_t)slot * (PARTS * column_bytes<weights>(a.intermediate));
}

/* ---- gate, up and swiglu ---- */

/* blockIdx.y is the slot and blockIdx.z the row; 4 warps share a pair of tiles, the same features of gate and of up, along the
 * columns. All blocks of a row run at the same time. */
extern "C" __global__ void __launch_bounds__(MOE_UP_THREADS, 2)
    moe_up_row(const __grid_constant__ moe_row_args a)
{
    enum { PAIRS = MOE_UP_PAIRS, THREADS = MOE_UP_THREADS, WARPS = THREADS / WARP, SPLITS = WARPS / PAIRS, DEPTH = 3 };
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[2][WARPS];
    dot<weights, 2, SPLITS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, split = warp % SPLITS, units = unit_count(a.hidden);
    uint32_t tiles = tile_count(TILES_MXFP4, a.intermediate), tile = blockIdx.x * PAIRS + warp / SPLITS;
    uint32_t slot = blockIdx.z * gridDim.y + blockIdx.y;
    wait_for_input();
    let_next_start();
    held_row<1, THREADS> x;
    x.take(a.normed + blockIdx.z * a.hidden, a.hidden);
    uint32_t expert = (uint32_t)a.expert[slot];
    if (tile < tiles) {
        product.weights[0].set(a.gate, a.gate_scales, a.hidden, expert * tiles + tile);
        product.weights[1].set(a.up, a.up_scales, a.hidden, expert * tiles + tile);
    }
    /* Stores wait behind loads that memory has not answered yet, so the row goes first. */
    x.spread<weights, PARTS>(a.hidden, columns);
    if (tile < tiles) product.open(split, units);
    /* The first threads finish the block's features: what they need then is fetched now. */
    uint32_t pair = threadIdx.x / FEATURES, at = threadIdx.x % FEATURES;
    uint32_t feature = (blockIdx.x * PAIRS + pair) * FEATURES + at;
    bool finishes = pair < PAIRS && feature < a.intermediate;
    float gate = 0, up = 0;
    if (finishes && a.gate_bias) gate = a.gate_bias[expert * a.intermediate + feature];
    if (finishes && a.up_bias) up = a.up_bias[expert * a.intermediate + feature];
    __syncthreads();

    float sum[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    if (tile < tiles)
        product.run(sum, lane_column<weights>(columns, a.hidden, PARTS), split, units);
    partial[0][warp].put<weights>(sum[0]);
    partial[1][warp].put<weights>(sum[1]);
    __syncthreads();
    uint32_t bytes = column_bytes<weights>(a.intermediate), all = unit_count(a.intermediate) * UNIT_COLUMNS;
    char *act = act_of(a, slot);
    /* Zeros behind the last feature: weights are there, and zeros too. */
    if (blockIdx.x == 0 && a.intermediate + threadIdx.x < all)
        put_value<weights, PARTS>(act, bytes, (uint32_t)a.intermediate + threadIdx.x, 0);
    if (!finishes) return;
    gate += total_of<PARTS, SPLITS>(partial[0] + pair * SPLITS, at, 0);
    up += total_of<PARTS, SPLITS>(partial[1] + pair * SPLITS, at, 0);
    put_value<weights, PARTS>(act, bytes, feature, swiglu(gate, up, a.alpha, a.limit));
}

/* ---- down ---- */

/* blockIdx.y is the row. A block owns 16 features of some of the experts: a pair of blocks has all of them where there are
 * clusters, else one block; its warps share the experts, and each expert's columns. All blocks of a row
 * run at the same time.
 *
 * Which experts were chosen is read before the kernel before has ended, so that their weights are on
 * the way early: whoever chose them must have ended before that one began, as the router does, which
 * moe_up_row has waited for.
 *
 * SLOTS of the choices a block, DEPTH units of a warp on their way. */
template <int SLOTS, int DEPTH, bool PAIR> __device__ inline void moe_down(const moe_row_args &a)
{
    enum { WARPS = FEW_ROWS_THREADS / WARP, SPLITS = WARPS / SLOTS, AHEAD = 2 };
    __shared__ partial_tile partial[WARPS];
    pair_sum<PAIR, FEATURES> pair;
    dot<weights, 1, SPLITS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, units = unit_count(a.intermediate), top_k = (uint32_t)a.top_k;
    uint32_t own = warp / SPLITS, split = warp % SPLITS, first = pair.rank() * SLOTS, slot = first + own;
    uint32_t tile = PAIR ? blockIdx.x / FEW_ROWS_PAIR : blockIdx.x;
    bool works = slot < top_k;
    const int32_t *expert = a.expert + blockIdx.y * top_k;
    pair.begin();
    if (works) {
        product.weights[0].set(a.down, a.down_scales, a.intermediate,
                               (int64_t)__ldcg(expert + slot) * tile_count(TILES_MXFP4, a.hidden) + tile);
        product.open(split, units);
    }
    /* The first threads finish the block's features: what they need then is fetched now. */
    int64_t feature = (int64_t)tile * FEATURES + threadIdx.x;
    bool finishes = threadIdx.x < FEATURES && feature < a.hidden;
    float bias[SLOTS] = {0}, weight[SLOTS] = {0};
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || first + j >= top_k) continue;
        if (a.down_bias) bias[j] = a.down_bias[__ldcg(expert + first + j) * a.hidden + feature];
        weight[j] = __ldcg(a.weight + blockIdx.y * top_k + first + j);
    }
    pair.ready(FEATURES);
    wait_for_input();
    let_next_start();
    float *x = a.x + blockIdx.y * a.hidden + feature, total = finishes && first == 0 ? *x : 0;
    float sum[1][4] = {{0, 0, 0, 0}};
    if (works)
        product.template run<AHEAD>(sum, lane_column<weights>(act_of(a, blockIdx.y * top_k + slot), a.intermediate, PARTS), split,
                                    units);
    partial[warp].template put<weights>(sum[0]);
    __syncthreads();
    if (threadIdx.x >= WARP) return;
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || first + j >= top_k) break;
        float y = total_of<PARTS, SPLITS>(partial + j * SPLITS, (int)threadIdx.x, 0);
        total += weight[j] * (y + bias[j]);
    }
    if (threadIdx.x < FEATURES && pair.join(threadIdx.x, total) && finishes) *x = total;
}

extern "C" __global__ void __launch_bounds__(FEW_ROWS_THREADS, 2)
    moe_down_row(const __grid_constant__ moe_row_args a)
{
    moe_down<MOE_DOWN_SLOTS, 6, false>(a);
}

extern "C" __global__ void __launch_bounds__(FEW_ROWS_THREADS, 3)
    moe_down_row_pair(const __grid_constant__ moe_row_args a)
{
#if __CUDA_ARCH__ >= 900
    moe_down<MOE_DOWN_SLOTS / FEW_ROWS_PAIR, 4, true>(a);
#endif
}
