// spills: moe_up_two 24
/* The experts of one row or two, exact: gate, up and swiglu, then the down projections, weighted, into the
 * residual stream. Between the two, activations lie as the columns that the second product reads: they are
 * cut into parts once, where they are made, and not by every block that needs them. */
#include "gemm/few_rows.cuh"
#include "moe/moe_row_args.h"
#include "swiglu/swiglu.cuh"

enum { PARTS = FEW_ROWS_PARTS };
typedef mxfp4_weights weights;

/* The columns of a slot, counted over the rows. */
__device__ inline char *act_of(const moe_row_args &a, uint32_t slot)
{
    return a.act + (int64_t)slot * (PARTS * column_bytes<weights>(a.intermediate));
}

/* ---- gate, up and swiglu ---- */

/* blockIdx.y is the slot of ROWS rows; 4 warps share a pair of tiles, the same features of gate and of up, along
 * the columns. All blocks run at the same time. */
template <int ROWS> __device__ inline void moe_up(const moe_row_args &a)
{
    enum { PAIRS = MOE_UP_PAIRS, THREADS = MOE_UP_THREADS, WARPS = THREADS / WARP, SPLITS = WARPS / PAIRS, DEPTH = 3 };
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[2][WARPS];
    dot<weights, 2, SPLITS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, split = warp % SPLITS, units = unit_count(a.hidden);
    uint32_t tiles = tile_count(TILES_MXFP4, a.intermediate), tile = blockIdx.x * PAIRS + warp / SPLITS;
    uint32_t expert[ROWS], row_bytes = PARTS * column_bytes<weights>(a.hidden);
    bool works = tile < tiles;
    auto set = [&](uint32_t group) {
        product.weights[0].set(a.gate, a.gate_scales, a.hidden, group * tiles + tile);
        product.weights[1].set(a.up, a.up_scales, a.hidden, group * tiles + tile);
    };
    wait_for_input();
    let_next_start();
    held_row<1, THREADS> x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        x[r].take(a.normed + r * a.hidden, a.hidden);
        expert[r] = (uint32_t)a.expert[r * a.top_k + blockIdx.y];
    }
    if (works) set(expert[0]);
    /* Stores wait behind loads that memory has not answered yet, so the rows go first. */
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r].template spread<weights, PARTS>(a.hidden, columns + r * row_bytes);
    if (works) product.open(split, units);
    /* The first threads finish the block's features: what they need then is fetched now. */
    uint32_t pair = threadIdx.x / FEATURES, at = threadIdx.x % FEATURES;
    uint32_t feature = (blockIdx.x * PAIRS + pair) * FEATURES + at;
    uint32_t bytes = column_bytes<weights>(a.intermediate), all = unit_count(a.intermediate) * UNIT_COLUMNS;
    bool finishes = pair < PAIRS && feature < a.intermediate;
    float gate[ROWS], up[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        gate[r] = finishes && a.gate_bias ? a.gate_bias[expert[r] * a.intermediate + feature] : 0;
        up[r] = finishes && a.up_bias ? a.up_bias[expert[r] * a.intermediate + feature] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float sum[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        if (works) product.run(sum, lane_column<weights>(columns + r * row_bytes, a.hidden, PARTS), split, units);
        if (r + 1 < ROWS && works) { /* on their way while this row is finished */
            set(expert[(r + 1) % ROWS]);
            product.open(split, units);
        }
        if (r) __syncthreads(); /* the row before has been added up */
        partial[0][warp].template put<weights>(sum[0]);
        partial[1][warp].template put<weights>(sum[1]);
        __syncthreads();
        char *act = act_of(a, r * (uint32_t)a.top_k + blockIdx.y);
        /* Zeros behind the last feature: weights are there, and zeros too. */
        if (blockIdx.x == 0 && a.intermediate + threadIdx.x < all)
            put_value<weights, PARTS>(act, bytes, (uint32_t)a.intermediate + threadIdx.x, 0);
        if (!finishes) continue;
        gate[r] += total_of<PARTS, SPLITS>(partial[0] + pair * SPLITS, at, 0);
        up[r] += total_of<PARTS, SPLITS>(partial[1] + pair * SPLITS, at, 0);
        put_value<weights, PARTS>(act, bytes, feature, swiglu(gate[r], up[r], a.alpha, a.limit));
    }
}

extern "C" __global__ void __launch_bounds__(MOE_UP_THREADS, 2)
    moe_up_row(const __grid_constant__ moe_row_args a)
{
    moe_up<1>(a);
}

extern "C" __global__ void __launch_bounds__(MOE_UP_THREADS, 2)
    moe_up_two(const __grid_constant__ moe_row_args a)
{
    moe_up<2>(a);
}

/* ---- down ---- */

/* A block owns 16 features of some of the experts of ROWS rows: a pair of blocks has all of them where there are
 * clusters, else one block; its warps share the experts, and each expert's columns. All blocks run at the
 * same time.
 *
 * Which experts were chosen is read before the kernel before has ended, so that their weights are on
 * the way early: whoever chose them must have ended before that one began, as the router does, which
 * moe_up has waited for.
 *
 * SLOTS of a row's choices a block, DEPTH units of a warp on their way. */
template <int ROWS, int SLOTS, int DEPTH, bool PAIR> __device__ inline void moe_down(const moe_row_args &a)
{
    enum { WARPS = FEW_ROWS_THREADS / WARP, SPLITS = WARPS / (ROWS * SLOTS), AHEAD = 2 };
    __shared__ partial_tile partial[WARPS];
    pair_sum<PAIR, ROWS * FEATURES> pair;
    dot<weights, 1, SPLITS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, units = unit_count(a.intermediate), top_k = (uint32_t)a.top_k;
    uint32_t own = warp / SPLITS, split = warp % SPLITS, first = pair.rank() * SLOTS, slot = first + own % SLOTS;
    uint32_t tile = PAIR ? blockIdx.x / FEW_ROWS_PAIR : blockIdx.x, choice = own / SLOTS * top_k + slot;
    bool works = slot < top_k;
    pair.begin();
    if (works) {
        product.weights[0].set(a.down, a.down_scales, a.intermediate,
                               (int64_t)__ldcg(a.expert + choice) * tile_count(TILES_MXFP4, a.hidden) + tile);
        product.open(split, units);
    }
    /* The first threads finish the block's features: what they need then is fetched now. */
    uint32_t at = threadIdx.x % FEATURES, r = threadIdx.x / FEATURES;
    int64_t feature = (int64_t)tile * FEATURES + at;
    bool finishes = r < ROWS && feature < a.hidden;
    float bias[SLOTS] = {0}, weight[SLOTS] = {0};
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || first + j >= top_k) continue;
        if (a.down_bias) bias[j] = a.down_bias[__ldcg(a.expert + r * top_k + first + j) * a.hidden + feature];
        weight[j] = __ldcg(a.weight + r * top_k + first + j);
    }
    pair.ready(ROWS * FEATURES);
    wait_for_input();
    let_next_start();
    float *x = a.x + r * a.hidden + feature, total = finishes && first == 0 ? *x : 0;
    float sum[1][4] = {{0, 0, 0, 0}};
    if (works)
        product.template run<AHEAD>(sum, lane_column<weights>(act_of(a, choice), a.intermediate, PARTS), split,
                                    units);
    partial[warp].template put<weights>(sum[0]);
    __syncthreads();
    if (r >= ROWS) return;
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || first + j >= top_k) break;
        float y = total_of<PARTS, SPLITS>(partial + (r * SLOTS + j) * SPLITS, (int)at, 0);
        total += weight[j] * (y + bias[j]);
    }
    if (pair.join(threadIdx.x, total) && finishes) *x = total;
}

#define DOWN(name, rows, slots, depth, blocks)                                                      \
    extern "C" __global__ void __launch_bounds__(FEW_ROWS_THREADS, blocks)                          \
        name(const __grid_constant__ moe_row_args a)                                                \
    {                                                                                               \
        moe_down<rows, slots, depth, false>(a);                                                     \
    }
#if __CUDA_ARCH__ >= 900
#define DOWN_PAIR(name, rows, slots, depth, blocks)                                                 \
    extern "C" __global__ void __launch_bounds__(FEW_ROWS_THREADS, blocks)                          \
        name(const __grid_constant__ moe_row_args a)                                                \
    {                                                                                               \
        moe_down<rows, slots / FEW_ROWS_PAIR, depth, true>(a);                                      \
    }
#else
#define DOWN_PAIR(name, rows, slots, depth, blocks) /* it needs clusters */
#endif

DOWN(moe_down_row, 1, MOE_DOWN_SLOTS, 6, 2)
DOWN(moe_down_two, 2, MOE_DOWN_SLOTS, 6, 2)
DOWN_PAIR(moe_down_row_pair, 1, MOE_DOWN_SLOTS, 4, 3)
DOWN_PAIR(moe_down_two_pair, 2, MOE_DOWN_SLOTS, 4, 3)
