// spills: attn_out_route_f32_many 128
// spills: attn_out_route_bf16_many 32
/* attn_out for one row or two, exact, and the router's part of it for several. */
#include "attn_out/attn_out_args.h"
#include "barriers.cuh"
#include "gemm/few_rows.cuh"
#include "gemm/pair_sum.cuh"
#include "route/choose.cuh"

#if __CUDA_ARCH__ >= 900
#define FROM_SM_90(...) __VA_ARGS__
#else
#define FROM_SM_90(...) /* it needs clusters */
#endif

/* ---- projection and residual ---- */

/* A pair of blocks owns 16 features, each of them half of the columns. */
enum {
    ADD_THREADS = FEW_ROWS_THREADS,
    ADD_WARPS = ADD_THREADS / WARP,
    ADD_CHUNKS = FEW_ROWS_HELD_MAX / FEW_ROWS_PAIR / 8 / ADD_THREADS,
    PARTS = FEW_ROWS_PARTS,
};

#if __CUDA_ARCH__ >= 900
/* A warp finishes the block: a lane a feature of a row. */
template <class W, int ROWS, int DEPTH> __device__ inline void add_projection(const attn_out_add_args &a)
{
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[ADD_WARPS];
    pair_sum<true, ROWS * FEATURES> pair;
    held_row<ADD_CHUNKS, ADD_THREADS> row[ROWS];
    dot<W, 1, ADD_WARPS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, steps = step_count<W>(a.k);
    uint32_t half = (steps + 1) / 2, first = pair.rank() * half, end = min(first + half, steps);
    uint32_t k = first < end ? min(half * W::STEP, (uint32_t)a.k - first * W::STEP) : 0;
    uint32_t tile = blockIdx.x / FEW_ROWS_PAIR * FEATURES, at = threadIdx.x % FEATURES, r = threadIdx.x / FEATURES;
    pair.begin();
    product.weights[0].set(a.w, a.scales, a.k, tile + g, tile + 8 + g);
    product.open(first + warp, end);
    bool finishes = r < ROWS;
    float total = finishes && first == 0 && a.bias ? a.bias[tile + at] : 0, *x = a.x + r * a.n + tile + at;
    pair.ready(ROWS * FEATURES);
    wait_for_input();
    let_next_start();
#pragma unroll
    for (int i = 0; i < ROWS; i++) row[i].take(a.attn + i * a.k + first * W::STEP, k);
    if (finishes && first == 0) total += *x;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (k) row[i].template spread<W, PARTS>(k, columns + i * PARTS * column_bytes<W>(k));
    __syncthreads();

    float sum[1][4] = {{0, 0, 0, 0}};
    product.run(sum, lane_column<W>(columns, k, ROWS * PARTS), first + warp, end, first);
    partial[warp].template put<W>(sum[0]);
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    if (!finishes) return;
    total += total_of<PARTS, ADD_WARPS>(partial, (int)at, (int)r);
    if (pair.join(threadIdx.x, total)) *x = total;
}
#endif

#define ADD(name, weights, rows, depth)                                                             \
    extern "C" __global__ void __launch_bounds__(ADD_THREADS, 3)                                    \
        name(const __grid_constant__ attn_out_add_args a)                                           \
    {                                                                                               \
        FROM_SM_90(add_projection<weights, rows, depth>(a));                                        \
    }

ADD(attn_out_add_bf16, bf16_weights, 1, 4)
ADD(attn_out_add_q8_0, q8_0_weights, 1, 2)
ADD(attn_out_add_bf16_two, bf16_weights, 2, 4)
ADD(attn_out_add_q8_0_two, q8_0_weights, 2, 2)

/* ---- norm, router and choice ---- */

/* Norm, router and choice, a cluster of blocks a row (blockIdx.y): each has the whole row and multiplies it
 * with its share of the router, half an expert a warp; the norm's scale comes in behind the products. The
 * router's weights are on their way before the row is there. Sums go straight to the first block, which
 * chooses. Of several rows, the one that is done last puts the slots in the order of experts. */
enum {
    BLOCKS = ATTN_OUT_CLUSTER,
    HIDDEN_MAX = ATTN_OUT_HIDDEN_MAX,
    SLOTS_MAX = ATTN_OUT_SLOTS_MAX,
    LOADS = HIDDEN_MAX / 2 / 4 / WARP, /* of a lane, for half a row */
};

#if __CUDA_ARCH__ >= 900

/* Four weights of the router. */
__device__ inline float4 wide(float4 v)
{
    return v;
}

__device__ inline float4 wide(uint2 v)
{
    return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16),
            __uint_as_float(v.y & 0xffff0000u)};
}

/* Half an expert's row of the router, QUAD being four weights as they lie there. */
template <class QUAD> struct half_row {
    QUAD w[LOADS];

    /* Lanes beyond the end take the last ones again: no branch may stand between the loads. */
    __device__ void take(const attn_out_kernel_args &a, uint32_t item, uint32_t quads)
    {
        uint32_t first = item * quads, at = first + threadIdx.x % WARP, last = first + quads - 1;
#pragma unroll
        for (int n = 0; n < LOADS; n++)
            w[n] = __ldg((const QUAD *)((const char *)a.router + min(at + n * WARP, last) * sizeof(QUAD)));
    }
    /* The items that come later are fetched as far as the second cache. */
    __device__ static void ask(const attn_out_kernel_args &a, uint32_t item, uint32_t quads)
    {
        const char *from = (const char *)((const QUAD *)a.router + item * quads);
        for (uint32_t at = threadIdx.x % WARP * 128; at < quads * sizeof(QUAD); at += WARP * 128)
            ask_l2(from + at);
    }
    __device__ float times(const float4 *row, uint32_t quads) const
    {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < LOADS; n++) {
            uint32_t at = threadIdx.x % WARP + n * WARP;
            float4 x = row[at], y = wide(w[n]); /* some number beyond the end */
            float part = y.x * x.x + y.y * x.y + y.z * x.z + y.w * x.w;
            sum += at < quads ? part : 0;
        }
        return warp_sum(sum);
    }
};

/* One row: its choice, known to a warp, and the tables. */
__device__ inline void put_routing(const attn_out_kernel_args &a, choice chosen)
{
    int top_k = (int)a.top_k, lane = threadIdx.x % WARP;
    if (lane < top_k) {
        a.weight[lane] = chosen.weight;
        a.expert[lane] = chosen.expert;
    }
    put_tables({a.group_offsets, a.token_of_row, a.row_of_slot}, chosen.expert, top_k, (int)a.n_experts, top_k);
}

/* One of several rows: its choices, known to the first warp, and behind the last one the tables. */
__device__ inline void join_routing(const attn_out_kernel_args &a, choice chosen, int threads)
{
    __shared__ __align__(16) int32_t experts[SLOTS_MAX];
    __shared__ int last;
    int top_k = (int)a.top_k, slots = a.m * top_k, i = (int)threadIdx.x;
    if (i < top_k) {
        a.weight[blockIdx.y * top_k + i] = chosen.weight;
        a.expert[blockIdx.y * top_k + i] = chosen.expert;
    }
    __threadfence();
    __syncthreads();
    if (i == 0) {
        uint32_t *routed = a.counters + COUNTER_ROUTED;
        last = atomicAdd(routed, 1) + 1 == (uint32_t)a.m;
        if (last) *routed = 0;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int s = i; s < SLOTS_MAX; s += threads)
        experts[s] = s < slots ? __ldcg(a.expert + s) : 0x7fffffff;
    __syncthreads();
    for (int n = i; n <= a.n_experts; n += threads) {
        int before = 0;
        for (int s = 0; s < slots; s += 4) {
            int4 e = *(const int4 *)(experts + s);
            before += (e.x < n) + (e.y < n) + (e.z < n) + (e.w < n);
        }
        a.group_offsets[n] = before;
    }
    for (int s = i; s < slots; s += threads) {
        int row = 0, mine = experts[s];
        for (int o = 0; o < slots; o += 4) {
            int4 e = *(const int4 *)(experts + o);
            row += e.x < mine || (e.x == mine && o < s);
            row += e.y < mine || (e.y == mine && o + 1 < s);
            row += e.z < mine || (e.z == mine && o + 2 < s);
            row += e.w < mine || (e.w == mine && o + 3 < s);
        }
        a.row_of_slot[s] = row;
        a.token_of_row[row] = s / top_k;
    }
}

__device__ inline void put_floats(float *to, const float x[8])
{
    ((float4 *)to)[0] = {x[0], x[1], x[2], x[3]};
    ((float4 *)to)[1] = {x[4], x[5], x[6], x[7]};
}

/* Half a logit, but for the norm's scale, to the first block. */
template <class QUAD>
__device__ inline void put_logit(const half_row<QUAD> &router, const float *row, const float *parts,
                                 uint32_t item, uint32_t items, uint32_t quads, uint32_t barrier)
{
    if (item >= items) return;
    float sum = router.times((const float4 *)row + item % 2 * quads, quads);
    if (threadIdx.x % WARP == 0) put_across(shared_address(parts + item), sum, barrier, 0);
}

/* A row, with the norm's gain, in the registers of a block's threads and in shared memory; its squares are in
 * `scratch` behind a barrier. */
template <int CHUNKS, int THREADS>
__device__ inline void stage_row(held_row<CHUNKS, THREADS> &held, const attn_out_kernel_args &a, const float *x,
                                 float *row, float *scratch)
{
    held.take(x, a.hidden);
    held.put_squares(scratch);
    held.apply(a.norm, a.hidden);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        uint32_t c = threadIdx.x + i * THREADS;
        if (8 * c < a.hidden) put_floats(row + 8 * c, held.x[i]);
    }
}

/* Block number `rank` of `blocks` has its share of the chunks of the normed row. */
template <int CHUNKS, int THREADS>
__device__ inline void put_normed(const held_row<CHUNKS, THREADS> &held, const attn_out_kernel_args &a,
                                  int64_t start, uint32_t rank, uint32_t blocks)
{
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        uint32_t c = threadIdx.x + i * THREADS;
        if (8 * c < a.hidden && c % blocks == rank) put_floats(a.normed + start + 8 * c, held.x[i]);
    }
}

/* EXPERTS at most; HELD items of each warp are in registers before the row is there. */
template <class QUAD, int EXPERTS, int THREADS, int HELD>
__device__ inline void route_row(const attn_out_kernel_args &a)
{
    enum { WARPS = THREADS / WARP, STRIDE = BLOCKS * WARPS, CHUNKS = (HIDDEN_MAX / 8 + THREADS - 1) / THREADS };
    __shared__ __align__(16) float row[HIDDEN_MAX];
    __shared__ float2 parts[EXPERTS];
    __shared__ float bias[EXPERTS], scratch[WARP];
    held_row<CHUNKS, THREADS> normed;
    __shared__ uint64_t there;
    half_row<QUAD> router[HELD];
    uint32_t rank = cluster_rank(), items = 2 * (uint32_t)a.n_experts, quads = (uint32_t)a.hidden / 8;
    uint32_t item = rank * WARPS + threadIdx.x / WARP, e = threadIdx.x, barrier = shared_address(&there);
    if (e == 0) {
        barrier_init(barrier, 1);
        barrier_init_done();
    }
    __syncwarp();
    cluster_arrive(); /* the first block's memory may be written once it runs and its barrier is set */
#pragma unroll
    for (int n = 0; n < HELD; n++) router[n].take(a, min(item + n * STRIDE, items - 1), quads);
    for (uint32_t i = item + HELD * STRIDE; i < items; i += STRIDE) router[0].ask(a, i, quads);
    ask_near(a.norm, a.hidden);
    if (e < a.n_experts) bias[e] = a.router_bias ? a.router_bias[e] : 0;
    cluster_wait();
    if (e == 0) barrier_expect(barrier, items * sizeof(float));
    wait_for_input();
    let_next_start();
    int64_t start = blockIdx.y * a.hidden;
    stage_row(normed, a, a.x + start, row, scratch);
    __syncthreads();
#pragma unroll
    for (int n = 0; n < HELD; n++) put_logit(router[n], row, &parts[0].x, item + n * STRIDE, items, quads, barrier);
#pragma unroll 1
    for (uint32_t i = item + HELD * STRIDE; i < items; i += STRIDE) {
        router[0].take(a, i, quads);
        put_logit(router[0], row, &parts[0].x, i, items, quads, barrier);
    }
    float scale = normed.scale_of(a.x + start, a.hidden, a.eps, scratch);
    normed.times(scale);
    put_normed(normed, a, start, rank, BLOCKS);
    if (rank || (a.m == 1 && threadIdx.x >= WARP)) return;
    barrier_wait_cluster(barrier, 0);
    choice chosen = {0, 0};
    if (threadIdx.x < WARP)
        chosen = choose<EXPERTS>([&](int i) { return (parts[i].x + parts[i].y) * scale + bias[i]; },
                                     (int)a.n_experts, (int)a.top_k);
    if (a.m == 1)
        put_routing(a, chosen);
    else
        join_routing(a, chosen, THREADS);
}

/* Norm and router alone, by as many blocks as there are half experts for their warps: halves of logits go to memory,
 * and whoever needs the choice chooses. So no block waits for another. */
template <class QUAD> __device__ inline void logits_of_row(const attn_out_kernel_args &a)
{
    enum { THREADS = ATTN_OUT_THREADS, CHUNKS = (HIDDEN_MAX / 8 + THREADS - 1) / THREADS };
    __shared__ __align__(16) float row[HIDDEN_MAX];
    __shared__ float scratch[WARP];
    held_row<CHUNKS, THREADS> normed;
    half_row<QUAD> router;
    uint32_t items = 2 * (uint32_t)a.n_experts, quads = (uint32_t)a.hidden / 8;
    uint32_t own = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, item = min(own, items - 1);
    router.take(a, item, quads);
    float bias = item % 2 == 0 && a.router_bias ? a.router_bias[item / 2] : 0;
    ask_near(a.norm, a.hidden);
    wait_for_input();
    let_next_start();
    int64_t start = blockIdx.y * a.hidden;
    stage_row(normed, a, a.x + start, row, scratch);
    __syncthreads();
    float scale = normed.scale_of(a.x + start, a.hidden, a.eps, scratch);
    float half = router.times((const float4 *)row + item % 2 * quads, quads) * scale + bias;
    if (threadIdx.x % WARP == 0 && own < items) a.halves[blockIdx.y * items + item] = half;
    normed.times(scale);
    put_normed(normed, a, start, blockIdx.x, gridDim.x);
}

#endif

#define ROUTE(name, quad, experts, threads, held, registers)                                        \
    extern "C" __global__ void __maxnreg__(registers)                                               \
        name(const __grid_constant__ attn_out_kernel_args a)                                        \
    {                                                                                               \
        FROM_SM_90(route_row<quad, experts, threads, held>(a));                                     \
    }

/* A block fits an SM beside one of the projection. */
ROUTE(attn_out_route_f32, float4, ATTN_OUT_EXPERTS_FEW, ATTN_OUT_THREADS, 1, 128)
ROUTE(attn_out_route_bf16, uint2, ATTN_OUT_EXPERTS_FEW, ATTN_OUT_THREADS, 1, 128)
ROUTE(attn_out_route_f32_many, float4, ATTN_OUT_EXPERTS_MAX, ATTN_OUT_THREADS_MANY, 1, 80)
ROUTE(attn_out_route_bf16_many, uint2, ATTN_OUT_EXPERTS_MAX, ATTN_OUT_THREADS_MANY, 2, 80)

#define LOGITS(name, quad)                                                                          \
    extern "C" __global__ void __maxnreg__(96)                                                      \
        name(const __grid_constant__ attn_out_kernel_args a)                                        \
    {                                                                                               \
        FROM_SM_90(logits_of_row<quad>(a));                                                         \
    }

LOGITS(attn_out_logits_f32, float4)
LOGITS(attn_out_logits_bf16, uint2)
