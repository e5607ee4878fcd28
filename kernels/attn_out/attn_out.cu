/* Norm, router and choice for one row, by a cluster of blocks: each has the whole normalised row and
 * multiplies it with its share of the router, two warps an expert; the first block chooses. The router's
 * weights are on their way before the row is there. */
#include "attn_out/attn_out_args.h"
#include "gemm/few_rows.cuh"

enum {
    BLOCKS = 8,
    WARPS = 8,
    THREADS = WARPS * WARP,
    CHUNKS = 2,
    HIDDEN_MAX = 3072,
    EXPERTS_MAX = 256,
    TOP_K_MAX = 8,
    LOADS = HIDDEN_MAX / 2 / 4 / WARP, /* of a lane, for half a row */
    HELD = EXPERTS_MAX / WARP,         /* logits of a lane */
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

/* In the order of the numbers themselves; both zeros alike. */
__device__ inline uint32_t sortable(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* What lane j knows of the j-th choice. */
struct choice {
    int32_t expert;
    float weight;
};

/* The largest logits, the lower index first where they are equal; by one warp. */
__device__ inline choice choose(const float *logits, int n_experts, int top_k)
{
    int lane = threadIdx.x % WARP;
    uint32_t key[HELD];
    bool nan = false;
#pragma unroll
    for (int n = 0; n < HELD; n++) {
        int e = lane + n * WARP;
        key[n] = e < n_experts ? sortable(logits[e]) : 0;
        nan |= e < n_experts && isnan(logits[e]);
    }
    nan = __any_sync(FULL_MASK, nan);
    choice mine = {0x7fffffff, 0};
    float first = 0, total = 0;
    for (int j = 0; j < top_k; j++) {
        uint32_t best = 0;
        int at = 0;
#pragma unroll
        for (int n = 0; n < HELD; n++)
            if (key[n] > best) best = key[n], at = n;
        uint32_t highest = __reduce_max_sync(FULL_MASK, best);
        uint32_t candidate = best == highest ? lane + at * WARP : 0xffffffffu;
        int e = nan ? j : (int)__reduce_min_sync(FULL_MASK, candidate);
#pragma unroll
        for (int n = 0; n < HELD; n++)
            if (e == lane + n * WARP) key[n] = 0;
        float logit = logits[e];
        if (j == 0) first = logit;
        /* Infinity minus itself would be NaN: the reference says so too. */
        float weight = nan ? __int_as_float(0x7fc00000) : expf(logit - first);
        total += weight;
        if (lane == j) mine = {e, weight};
    }
    mine.weight /= total;
    return mine;
}

/* The tables of struct routing for one row: rows are its slots by rising expert. */
__device__ inline void put_routing(const attn_out_kernel_args &a, const choice &mine)
{
    int lane = threadIdx.x % WARP, top_k = (int)a.top_k, row = 0;
    for (int base = 0; base <= a.n_experts; base += WARP) {
        int before = 0;
        for (int j = 0; j < top_k; j++)
            before += __shfl_sync(FULL_MASK, mine.expert, j) < base + lane;
        if (base + lane <= a.n_experts) a.group_offsets[base + lane] = before;
    }
    for (int j = 0; j < top_k; j++) row += __shfl_sync(FULL_MASK, mine.expert, j) < mine.expert;
    if (lane >= top_k) return;
    a.weight[lane] = mine.weight;
    a.expert[lane] = mine.expert;
    a.row_of_slot[lane] = row;
    a.token_of_row[lane] = 0;
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
    normed_row<CHUNKS> normed;
    half_row<QUAD> router;
    uint32_t rank = cluster_rank(), items = 2 * (uint32_t)a.n_experts, quads = (uint32_t)a.hidden / 8;
    uint32_t item = rank * WARPS + threadIdx.x / WARP;
    router.take(a, min(item, items - 1), quads);
    normed.take_gain(a.norm, a.hidden);
    float bias = a.router_bias && threadIdx.x < a.n_experts ? a.router_bias[threadIdx.x] : 0;
    cluster_arrive(); /* the first block's memory may be written once it runs */
    wait_for_input();
    let_next_start();
    normed.take(a.x, a.hidden, a.eps, scratch);
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
        if (8 * c < a.hidden && c % BLOCKS == rank) put_floats(a.normed + 8 * c, normed.x[i]);
    }
    cluster_wait();
    if (rank) return;
    if (threadIdx.x < a.n_experts)
        row[threadIdx.x] = parts[2 * threadIdx.x] + parts[2 * threadIdx.x + 1] + bias;
    __syncthreads();
    if (threadIdx.x < WARP) put_routing(a, choose(row, (int)a.n_experts, (int)a.top_k));
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
