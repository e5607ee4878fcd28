// spills: attn_out_route_f32 32
/* Norm, router and choice, a cluster of blocks a row (blockIdx.y): each has the whole normalised row and
 * multiplies it with its share of the router, two warps an expert; the first block chooses. The router's
 * weights are on their way before the row is there. Of several rows, the one that is done last puts the
 * slots in the order of experts. */
#include "attn_out/attn_out_args.h"
#include "gemm/few_rows.cuh"

enum {
    BLOCKS = 8,
    WARPS = 8,
    THREADS = WARPS * WARP,
    CHUNKS = 2,
    HIDDEN_MAX = 3072,
    EXPERTS_MAX = THREADS,
    TOP_K_MAX = 8,
    SLOTS_MAX = ATTN_OUT_SLOTS_MAX,
    LOADS = HIDDEN_MAX / 2 / 4 / WARP, /* of a lane, for half a row */
};

#if __CUDA_ARCH__ >= 900
#define FROM_SM_90(statement) statement

__device__ inline uint32_t cluster_rank()
{
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Stores to the first block's shared memory, at the place `local` has here. */
__device__ inline void put_first(const float *local, float value)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(local), first;
    asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(first) : "r"(address));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(first), "f"(value) : "memory");
}

__device__ inline void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ inline void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

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
        const QUAD *from = (const QUAD *)a.router + item * quads;
#pragma unroll
        for (int n = 0; n < LOADS; n++)
            w[n] = __ldg(from + min(threadIdx.x % WARP + n * WARP, quads - 1));
    }
    /* The items that come later are fetched as far as the second cache. */
    __device__ static void ask(const attn_out_kernel_args &a, uint32_t item, uint32_t quads)
    {
        const char *from = (const char *)((const QUAD *)a.router + item * quads);
        for (uint32_t at = threadIdx.x % WARP * 128; at < quads * sizeof(QUAD); at += WARP * 128)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
    }
    __device__ float times(const float4 *row, uint32_t quads) const
    {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < LOADS; n++) {
            uint32_t at = threadIdx.x % WARP + n * WARP;
            float4 x = row[min(at, quads - 1)], y = wide(w[n]);
            float part = y.x * x.x + y.y * x.y + y.z * x.z + y.w * x.w;
            sum += at < quads ? part : 0;
        }
        return warp_sum(sum);
    }
};

/* What the first block decides; the j-th choice at j. */
struct choices {
    int32_t expert[TOP_K_MAX];
    float logit[TOP_K_MAX];
    int32_t nan;
};

/* A thread an expert finds the place of its logit: behind the larger ones, and behind equal ones of a
 * lower index. `logits` goes on with -infinity to a multiple of 4. */
__device__ inline void choose(const float *logits, int n_experts, int top_k, choices &chosen)
{
    int e = (int)threadIdx.x, place = 0;
    float mine = e < n_experts ? logits[e] : 0;
    for (int i = 0; i < n_experts; i += 4) {
        float4 others = *(const float4 *)(logits + i);
        place += others.x > mine || (others.x == mine && i < e);
        place += others.y > mine || (others.y == mine && i + 1 < e);
        place += others.z > mine || (others.z == mine && i + 2 < e);
        place += others.w > mine || (others.w == mine && i + 3 < e);
    }
    int nan = __syncthreads_or(isnan(mine));
    if (nan) place = e; /* the first ones, whatever they are */
    if (e < n_experts && place < top_k) chosen.expert[place] = e, chosen.logit[place] = mine;
    if (e == 0) chosen.nan = nan;
    __syncthreads();
}

/* Of choice j, before it is divided by the sum. Infinity minus itself is NaN: the reference says so too. */
__device__ inline float weight_of(const choices &chosen, int j)
{
    return chosen.nan ? __int_as_float(0x7fc00000) : expf(chosen.logit[j] - chosen.logit[0]);
}

/* The tables of struct routing for one row: rows are its slots by rising expert. */
__device__ inline void put_routing(const attn_out_kernel_args &a, const choices &chosen)
{
    int top_k = (int)a.top_k, i = (int)threadIdx.x;
    for (int e = i; e <= a.n_experts; e += THREADS) {
        int before = 0;
        for (int j = 0; j < top_k; j++) before += chosen.expert[j] < e;
        a.group_offsets[e] = before;
    }
    if (i >= top_k) return;
    int row = 0;
    float total = 0, mine = 0;
    for (int j = 0; j < top_k; j++) {
        float weight = weight_of(chosen, j);
        row += chosen.expert[j] < chosen.expert[i];
        total += weight;
        if (j == i) mine = weight;
    }
    a.weight[i] = mine / total;
    a.expert[i] = chosen.expert[i];
    a.row_of_slot[i] = row;
    a.token_of_row[i] = 0;
}

__device__ uint32_t arrivals; /* of rows; 0 between launches */

/* One of several rows: its choices, and behind the last one the tables. */
__device__ inline void join_routing(const attn_out_kernel_args &a, const choices &chosen)
{
    __shared__ __align__(16) int32_t experts[SLOTS_MAX];
    __shared__ int last;
    int top_k = (int)a.top_k, slots = a.m * top_k, i = (int)threadIdx.x;
    if (i < top_k) {
        float total = 0, mine = 0;
        for (int j = 0; j < top_k; j++) {
            float weight = weight_of(chosen, j);
            total += weight;
            if (j == i) mine = weight;
        }
        a.weight[blockIdx.y * top_k + i] = mine / total;
        a.expert[blockIdx.y * top_k + i] = chosen.expert[i];
    }
    __threadfence();
    __syncthreads();
    if (i == 0) {
        last = atomicAdd(&arrivals, 1) + 1 == (uint32_t)a.m;
        if (last) arrivals = 0;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int s = i; s < SLOTS_MAX; s += THREADS)
        experts[s] = s < slots ? __ldcg(a.expert + s) : 0x7fffffff;
    __syncthreads();
    for (int n = i; n <= a.n_experts; n += THREADS) {
        int before = 0;
        for (int s = 0; s < slots; s += 4) {
            int4 e = *(const int4 *)(experts + s);
            before += (e.x < n) + (e.y < n) + (e.z < n) + (e.w < n);
        }
        a.group_offsets[n] = before;
    }
    for (int s = i; s < slots; s += THREADS) {
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

template <class QUAD> __device__ inline void route_row(const attn_out_kernel_args &a)
{
    __shared__ __align__(16) float row[HIDDEN_MAX];
    __shared__ float parts[2 * EXPERTS_MAX], scratch[WARP];
    __shared__ choices chosen;
    held_row<CHUNKS, THREADS> normed;
    half_row<QUAD> router;
    uint32_t rank = cluster_rank(), items = 2 * (uint32_t)a.n_experts, quads = (uint32_t)a.hidden / 8;
    uint32_t item = rank * WARPS + threadIdx.x / WARP;
    router.take(a, min(item, items - 1), quads);
    for (uint32_t i = item + BLOCKS * WARPS; i < items; i += BLOCKS * WARPS) router.ask(a, i, quads);
    ask_near(a.norm, a.hidden);
    float bias = a.router_bias && threadIdx.x < a.n_experts ? a.router_bias[threadIdx.x] : 0;
    cluster_arrive(); /* the first block's memory may be written once it runs */
    wait_for_input();
    let_next_start();
    int64_t start = blockIdx.y * a.hidden;
    normed.take(a.x + start, a.hidden);
    normed.norm(a.x + start, a.norm, a.hidden, a.eps, scratch);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        uint32_t c = threadIdx.x + i * THREADS;
        if (8 * c < a.hidden) put_floats(row + 8 * c, normed.x[i]);
    }
    __syncthreads();
    cluster_wait();
    for (bool held = true; item < items; item += BLOCKS * WARPS, held = false) {
        if (!held) router.take(a, item, quads);
        float sum = router.times((const float4 *)row + item % 2 * quads, quads);
        if (threadIdx.x % WARP == 0) put_first(&parts[item], sum);
    }
    cluster_arrive();
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        uint32_t c = threadIdx.x + i * THREADS;
        if (8 * c < a.hidden && c % BLOCKS == rank) put_floats(a.normed + start + 8 * c, normed.x[i]);
    }
    cluster_wait();
    if (rank) return;
    uint32_t e = threadIdx.x;
    row[e] = e < a.n_experts ? parts[2 * e] + parts[2 * e + 1] + bias : -__int_as_float(0x7f800000);
    __syncthreads();
    choose(row, (int)a.n_experts, (int)a.top_k, chosen);
    if (a.m == 1)
        put_routing(a, chosen);
    else
        join_routing(a, chosen);
}

#else
#define FROM_SM_90(statement) /* it needs clusters */
#endif

#define ROUTE(name, quad)                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                        \
        name(const __grid_constant__ attn_out_kernel_args a)                                        \
    {                                                                                               \
        FROM_SM_90(route_row<quad>(a));                                                             \
    }

ROUTE(attn_out_route_f32, float4)
ROUTE(attn_out_route_bf16, uint2)
