// spills: moe_up_two 32
// spills: moe_up_two_chosen 32
// spills: moe_up_two_chosen_many 32
/* The experts of one row or two, exact: gate, up and swiglu, then the down projections, weighted, into the
 * residual stream. Between the two, activations lie as the columns that the second product reads: they are
 * cut into parts once, where they are made, and not by every block that needs them.
 *
 * Which experts these are is known, or each block chooses them by the logits for itself: that takes less time than
 * waiting for one that chooses for all. */
#include "gemm/few_rows.cuh"
#include "gemm/pair_sum.cuh"
#include "moe/moe_row_args.h"
#include "route/choose.cuh"
#include "swiglu/swiglu.cuh"

enum { PARTS = FEW_ROWS_PARTS };
typedef mxfp4_weights weights;

/* The columns of a slot, counted over the rows. */
__device__ inline char *act_of(const moe_row_args &a, uint32_t slot)
{
    return a.act + (int64_t)slot * (PARTS * column_bytes<weights>(a.intermediate));
}

/* Finds the expert of a row's slot, for a whole warp: what that needs is asked for when this is made. EXPERTS: the most
 * among which it chooses; 0: the routing says which expert it is. */
template <int EXPERTS> struct asked_expert {
    half_logits<EXPERTS> logits;

    __device__ asked_expert(const moe_row_args &a, uint32_t row, uint32_t)
        : logits(a.halves + row * 2 * a.n_experts, (int)a.n_experts)
    {
    }
    __device__ int get(const moe_row_args &a, uint32_t slot) const
    {
        return choose_one<EXPERTS, MOE_DOWN_SLOTS>(logits, (int)a.n_experts, (int)slot);
    }
};
template <> struct asked_expert<0> {
    int expert;

    __device__ asked_expert(const moe_row_args &a, uint32_t row, uint32_t slot)
        : expert(__ldcg(a.expert + row * a.top_k + slot))
    {
    }
    __device__ int get(const moe_row_args &, uint32_t) const { return expert; }
};

/* A row's experts and their weights. */
template <int EXPERTS> __device__ inline choice choice_of(const moe_row_args &a, uint32_t row)
{
    int lane = threadIdx.x % WARP, top_k = (int)a.top_k;
    if constexpr (EXPERTS == 0)
        return lane < top_k ? choice{__ldcg(a.expert + row * top_k + lane), __ldcg(a.weight + row * top_k + lane)}
                            : choice{0, 0};
    else
        return choose<EXPERTS, MOE_DOWN_SLOTS>(
            half_logits<EXPERTS>(a.halves + row * 2 * a.n_experts, (int)a.n_experts), (int)a.n_experts, top_k);
}

/* ---- gate, up and swiglu ---- */

/* blockIdx.y is the slot of ROWS rows; 4 warps share a pair of tiles, the same features of gate and of up, along
 * the columns. All blocks run at the same time. */
template <int ROWS, int EXPERTS> __device__ inline void moe_up(const moe_row_args &a)
{
    enum { PAIRS = MOE_UP_PAIRS, THREADS = MOE_UP_THREADS, WARPS = THREADS / WARP, SPLITS = WARPS / PAIRS, DEPTH = 3 };
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[2][WARPS];
    __shared__ uint32_t expert[ROWS];
    dot<weights, 2, SPLITS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, split = warp % SPLITS, units = unit_count(a.hidden);
    uint32_t tiles = tile_count(TILES_MXFP4, a.intermediate), tile = blockIdx.x * PAIRS + warp / SPLITS;
    uint32_t row_bytes = PARTS * column_bytes<weights>(a.hidden);
    bool works = tile < tiles;
    auto set = [&](uint32_t group) {
        product.weights[0].set(a.gate, a.gate_scales, a.hidden, group * tiles + tile);
        product.weights[1].set(a.up, a.up_scales, a.hidden, group * tiles + tile);
    };
    wait_for_input();
    let_next_start();
    /* The last warps, one a row, find the experts; what they need for that is asked for first. */
    uint32_t chosen = min((uint32_t)WARPS - 1 - warp, (uint32_t)ROWS - 1);
    asked_expert<EXPERTS> asked(a, chosen, blockIdx.y);
    held_row<1, THREADS> x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r].take(a.normed + r * a.hidden, a.hidden);
    /* Stores wait behind loads that memory has not answered yet, so the rows go first. */
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r].template spread<weights, PARTS>(a.hidden, columns + r * row_bytes);
    if (warp >= WARPS - ROWS) {
        int own = asked.get(a, blockIdx.y);
        if (threadIdx.x % WARP == 0) expert[chosen] = (uint32_t)own;
    }
    __syncthreads();
    if (works) set(expert[0]);
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

#define UP(name, rows, experts)                                                                     \
    extern "C" __global__ void __launch_bounds__(MOE_UP_THREADS, 2)                                 \
        name(const __grid_constant__ moe_row_args a)                                                \
    {                                                                                               \
        moe_up<rows, experts>(a);                                                                   \
    }

UP(moe_up_row, 1, 0)
UP(moe_up_two, 2, 0)
UP(moe_up_row_chosen, 1, MOE_ROW_EXPERTS_FEW)
UP(moe_up_two_chosen, 2, MOE_ROW_EXPERTS_FEW)
UP(moe_up_row_chosen_many, 1, MOE_ROW_EXPERTS_MAX)
UP(moe_up_two_chosen_many, 2, MOE_ROW_EXPERTS_MAX)

/* ---- down ---- */

/* Where each block chooses for itself, one warp writes the choice of all rows: for who reads it behind the layer. */
template <int ROWS, int EXPERTS> __device__ inline void put_choice(const moe_row_args &a)
{
    int lane = threadIdx.x % WARP, top_k = (int)a.top_k, slots = ROWS * top_k, expert = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        choice chosen = choice_of<EXPERTS>(a, r);
        int own = __shfl_sync(FULL_MASK, chosen.expert, (lane - r * top_k) & (WARP - 1));
        if (lane >= r * top_k && lane < (r + 1) * top_k) expert = own;
        if (lane >= top_k) continue;
        a.expert[r * top_k + lane] = chosen.expert;
        a.weight[r * top_k + lane] = chosen.weight;
    }
    put_tables({a.group_offsets, a.token_of_row, a.row_of_slot}, expert, slots, (int)a.n_experts, top_k);
}

/* A block owns 16 features of some of the experts of ROWS rows: a pair of blocks has all of them where there are
 * clusters, else one block; its warps share the experts, and each expert's columns. All blocks run at the
 * same time.
 *
 * The choice, or the logits, are read before wait_for_input, while moe_up may still run, so that weights are on
 * their way early. The router wrote them, and has ended: moe_up lets this kernel start when it has waited for that.
 * So the tables may be written that early, too.
 *
 * SLOTS of a row's choices a block, DEPTH units of a warp on their way. */
template <int ROWS, int SLOTS, int DEPTH, bool PAIR, int EXPERTS> __device__ inline void moe_down(const moe_row_args &a)
{
    enum { WARPS = FEW_ROWS_THREADS / WARP, SPLITS = WARPS / (ROWS * SLOTS), AHEAD = 2 };
    __shared__ partial_tile partial[WARPS];
    __shared__ choice chosen[ROWS][MOE_DOWN_SLOTS];
    pair_sum<PAIR, ROWS * FEATURES> pair;
    dot<weights, 1, SPLITS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, units = unit_count(a.intermediate), top_k = (uint32_t)a.top_k;
    uint32_t own = warp / SPLITS, split = warp % SPLITS, first = pair.rank() * SLOTS, slot = first + own % SLOTS;
    uint32_t tile = PAIR ? blockIdx.x / FEW_ROWS_PAIR : blockIdx.x;
    bool works = slot < top_k;
    if (EXPERTS && tile >= tile_count(TILES_MXFP4, a.hidden)) { /* a pair of blocks more */
        if (blockIdx.x % FEW_ROWS_PAIR == 0 && warp == 0) put_choice<ROWS, EXPERTS>(a);
        return;
    }
    pair.begin();
    if (warp < ROWS) {
        choice mine = choice_of<EXPERTS>(a, warp);
        if (threadIdx.x % WARP < MOE_DOWN_SLOTS) chosen[warp][threadIdx.x % WARP] = mine;
    }
    __syncthreads();
    if (works) {
        product.weights[0].set(a.down, a.down_scales, a.intermediate,
                               (int64_t)chosen[own / SLOTS][slot].expert * tile_count(TILES_MXFP4, a.hidden) + tile);
        product.open(split, units);
    }
    /* The first threads finish the block's features: what they need then is fetched now. */
    uint32_t at = threadIdx.x % FEATURES, r = threadIdx.x / FEATURES;
    int64_t feature = (int64_t)tile * FEATURES + at;
    bool finishes = r < ROWS && feature < a.hidden;
    float bias[SLOTS] = {0};
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || first + j >= top_k) continue;
        if (a.down_bias) bias[j] = a.down_bias[chosen[r][first + j].expert * a.hidden + feature];
    }
    pair.ready(ROWS * FEATURES);
    wait_for_input();
    let_next_start();
    float *x = a.x + r * a.hidden + feature, total = finishes && first == 0 ? *x : 0;
    float sum[1][4] = {{0, 0, 0, 0}};
    const char *act = act_of(a, own / SLOTS * top_k + slot);
    if (works) product.template run<AHEAD>(sum, lane_column<weights>(act, a.intermediate, PARTS), split, units);
    partial[warp].template put<weights>(sum[0]);
    __syncthreads();
    if (r >= ROWS) return;
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        if (!finishes || first + j >= top_k) break;
        float y = total_of<PARTS, SPLITS>(partial + (r * SLOTS + j) * SPLITS, (int)at, 0);
        total += chosen[r][first + j].weight * (y + bias[j]);
    }
    if (pair.join(threadIdx.x, total) && finishes) *x = total;
}

#define DOWN(name, blocks, ...)                                                                     \
    extern "C" __global__ void __launch_bounds__(FEW_ROWS_THREADS, blocks)                          \
        name(const __grid_constant__ moe_row_args a)                                                \
    {                                                                                               \
        moe_down<__VA_ARGS__>(a);                                                                   \
    }

DOWN(moe_down_row, 2, 1, MOE_DOWN_SLOTS, 6, false, 0)
DOWN(moe_down_two, 2, 2, MOE_DOWN_SLOTS, 6, false, 0)
#if __CUDA_ARCH__ >= 900
#define DOWN_PAIR(name, rows, experts)                                                              \
    DOWN(name, 3, rows, MOE_DOWN_SLOTS / FEW_ROWS_PAIR, 4, true, experts)
#else
#define DOWN_PAIR(name, rows, experts) /* it needs clusters */
#endif
DOWN_PAIR(moe_down_row_pair, 1, 0)
DOWN_PAIR(moe_down_two_pair, 2, 0)
DOWN_PAIR(moe_down_row_chosen, 1, MOE_ROW_EXPERTS_FEW)
DOWN_PAIR(moe_down_two_chosen, 2, MOE_ROW_EXPERTS_FEW)
DOWN_PAIR(moe_down_row_chosen_many, 1, MOE_ROW_EXPERTS_MAX)
DOWN_PAIR(moe_down_two_chosen_many, 2, MOE_ROW_EXPERTS_MAX)
