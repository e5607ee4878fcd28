/* Two kernels: a warp a token chooses its experts; one block then sorts the slots by expert, by one of two
 * ways. */
#include "common.cuh"
#include "route/choose.cuh"
#include "route/route_args.h"

enum { EXPERTS_MAX = ROUTE_EXPERTS_MAX };

KERNEL_OF(ROUTE_THREADS, route_choose, route_kernel_args)
{
    wait_for_input();
    let_next_start();
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (i < a.m)
        choose_experts<EXPERTS_MAX>(a.logits + i * a.n_experts, (int)a.n_experts, (int)a.top_k,
                                    a.weight + i * a.top_k, a.expert + i * a.top_k);
}

/* A thread an expert counts its slots, then hands out their rows in order: stable without atomics. */
KERNEL_OF(ROUTE_THREADS, route_group, route_kernel_args)
{
    __shared__ int32_t counts[EXPERTS_MAX + 1];
    wait_for_input();
    let_next_start();
    int e = threadIdx.x;
    int64_t slots = a.m * a.top_k;
    int32_t count = 0;
    if (e < a.n_experts)
        for (int64_t s = 0; s < slots; s++) count += a.expert[s] == e;
    if (e < a.n_experts) counts[e + 1] = count;
    if (e == 0) counts[0] = 0;
    __syncthreads();
    if (e == 0)
        for (int64_t n = 0; n < a.n_experts; n++) counts[n + 1] += counts[n];
    __syncthreads();
    if (e < a.n_experts) a.group_offsets[e] = counts[e];
    if (e == 0) a.group_offsets[a.n_experts] = counts[a.n_experts];
    int32_t row = e < a.n_experts ? counts[e] : 0;
    for (int64_t s = 0; e < a.n_experts && s < slots; s++) {
        if (a.expert[s] != e) continue;
        a.row_of_slot[s] = row;
        a.token_of_row[row++] = (int32_t)(s / a.top_k);
    }
}

/* A stable sort by counting, in one reading. A block puts as many slots as it has threads, a warp 32 of them;
 * how many slots of an expert other blocks put before and behind, every block counts for itself. */
enum {
    COUNT_WARPS = ROUTE_COUNT_THREADS / WARP,
    HELD = 8,                  /* slots of a thread whose loads do not wait for one another */
    COPIES = 4,                /* of counts, so that fewer threads add to the same one */
    BETWEEN = EXPERTS_MAX + 8, /* of copies, in other banks */
};

/* The lanes that have the same expert, or -1. */
__device__ inline uint32_t lanes_of_same(int expert)
{
    uint32_t same = FULL_MASK;
#pragma unroll
    for (int bit = 1; bit <= EXPERTS_MAX; bit *= 2) {
        uint32_t set = __ballot_sync(FULL_MASK, expert & bit);
        same &= expert & bit ? set : ~set;
    }
    return same;
}

/* first[e + 1] from a count to the sum of all counts up to e's, by one warp. */
__device__ inline void sum_counts(int32_t *first)
{
    enum { EACH = EXPERTS_MAX / WARP };
    int lane = threadIdx.x % WARP, sum = 0, count[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += count[i] = first[lane * EACH + i + 1];
    int before = sum;
    for (int step = 1; step < WARP; step *= 2) {
        int other = __shfl_up_sync(FULL_MASK, before, step);
        if (lane >= step) before += other;
    }
    before -= sum;
#pragma unroll
    for (int i = 0; i < EACH; i++) first[lane * EACH + i + 1] = before += count[i];
    if (lane == 0) first[0] = 0;
}

/* This thread's slot's expert, or -1; those of other blocks' slots are counted before or behind. */
__device__ inline int count_others(const route_kernel_args &a, int slots, int32_t *before, int32_t *behind)
{
    int mine = -1, copy = threadIdx.x % COPIES * BETWEEN;
    for (int from = 0; from < slots; from += HELD * ROUTE_COUNT_THREADS) {
        int held[HELD];
#pragma unroll
        for (int n = 0; n < HELD; n++) {
            int s = from + n * ROUTE_COUNT_THREADS + (int)threadIdx.x;
            held[n] = s < slots ? a.expert[s] : -1;
        }
#pragma unroll
        for (int n = 0; n < HELD; n++) {
            int block = from / ROUTE_COUNT_THREADS + n;
            if (block == (int)blockIdx.x)
                mine = held[n];
            else if (held[n] >= 0)
                atomicAdd((block < (int)blockIdx.x ? before : behind) + copy + held[n], 1);
        }
    }
    return mine;
}

KERNEL_OF(ROUTE_COUNT_THREADS, route_count, route_kernel_args)
{
    __shared__ int32_t rows[COUNT_WARPS][EXPERTS_MAX], first[EXPERTS_MAX + 1];
    __shared__ int32_t before[COPIES * BETWEEN], behind[COPIES * BETWEEN];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, e = threadIdx.x;
    int slots = (int)(a.m * a.top_k), s = (int)(blockIdx.x * ROUTE_COUNT_THREADS + threadIdx.x);
    for (int i = threadIdx.x; i < COUNT_WARPS * EXPERTS_MAX; i += ROUTE_COUNT_THREADS)
        rows[i / EXPERTS_MAX][i % EXPERTS_MAX] = 0;
    for (int i = threadIdx.x; i < COPIES * BETWEEN; i += ROUTE_COUNT_THREADS) before[i] = behind[i] = 0;
    __syncthreads();
    let_next_start(); /* who follows waits before it reads what is chosen or sorted */
    wait_for_input();
    int mine = count_others(a, slots, before, behind);
    uint32_t same = lanes_of_same(mine);
    int row = __popc(same & ((1u << lane) - 1)); /* among this warp's of the expert */
    if (mine >= 0 && row == 0) rows[warp][mine] = __popc(same);
    __syncthreads();
    if (e < EXPERTS_MAX) { /* counts become what blocks and warps before have */
        int32_t count = 0, rest = 0;
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            count += before[i * BETWEEN + e];
            rest += behind[i * BETWEEN + e];
        }
#pragma unroll
        for (int w = 0; w < COUNT_WARPS; w++) {
            int32_t has = rows[w][e];
            rows[w][e] = count;
            count += has;
        }
        first[e + 1] = count + rest;
    }
    __syncthreads();
    if (warp == 0) sum_counts(first);
    __syncthreads();
    if (blockIdx.x == 0 && e <= a.n_experts) a.group_offsets[e] = first[e];
    if (mine < 0) return;
    row += first[mine] + rows[warp][mine];
    a.row_of_slot[s] = row;
    a.token_of_row[row] = s / (int)a.top_k;
}
