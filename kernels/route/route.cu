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

/* A stable sort by counting. Every warp has a stretch of slots: it counts its experts, learns how many rows
 * the experts and warps before it take, and hands out its own in order. */
enum { GROUP_WARPS = ROUTE_COUNT_THREADS / WARP, HELD = 8 };

/* Calls visit(s, expert) for the warp's slots in order, expert -1 behind the last one. The first rounds are
 * in registers, so that their loads do not wait for one another. */
template <class F>
__device__ inline void each_slot(const route_kernel_args &a, const int (&held)[HELD], int begin, int end,
                                 F visit)
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < HELD; n++)
        if (begin + n * WARP < end) visit(begin + n * WARP + lane, held[n]);
    for (int s = begin + HELD * WARP + lane; s - lane < end; s += WARP)
        visit(s, s < end ? a.expert[s] : -1);
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

KERNEL_OF(GROUP_WARPS *WARP, route_count, route_kernel_args)
{
    __shared__ int32_t rows[GROUP_WARPS][EXPERTS_MAX], first[EXPERTS_MAX + 1];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, e = threadIdx.x;
    for (int i = threadIdx.x; i < GROUP_WARPS * EXPERTS_MAX; i += GROUP_WARPS * WARP)
        rows[i / EXPERTS_MAX][i % EXPERTS_MAX] = 0;
    if (e < EXPERTS_MAX) first[e + 1] = 0;
    int slots = (int)(a.m * a.top_k), top_k = (int)a.top_k;
    int each = (slots + GROUP_WARPS * WARP - 1) / (GROUP_WARPS * WARP) * WARP;
    int begin = warp * each, end = min(begin + each, slots), held[HELD];
    wait_for_input();
    let_next_start();
#pragma unroll
    for (int n = 0; n < HELD; n++) {
        int s = begin + n * WARP + lane;
        held[n] = s < end ? a.expert[s] : -1;
    }
    __syncthreads();
    each_slot(a, held, begin, end, [&](int, int expert) {
        uint32_t same = __match_any_sync(FULL_MASK, expert);
        if (expert >= 0 && lane == __ffs(same) - 1) rows[warp][expert] += __popc(same);
        __syncwarp();
    });
    __syncthreads();
    if (e < a.n_experts) { /* counts become what the warps before have */
        int32_t count = 0;
#pragma unroll
        for (int w = 0; w < GROUP_WARPS; w++) {
            int32_t mine = rows[w][e];
            rows[w][e] = count;
            count += mine;
        }
        first[e + 1] = count;
    }
    __syncthreads();
    if (warp == 0) sum_counts(first);
    __syncthreads();
    if (e <= a.n_experts) a.group_offsets[e] = first[e];
    each_slot(a, held, begin, end, [&](int s, int expert) {
        uint32_t same = __match_any_sync(FULL_MASK, expert);
        int32_t row = expert >= 0 ? first[expert] + rows[warp][expert] : 0;
        __syncwarp();
        if (expert >= 0 && lane == __ffs(same) - 1) rows[warp][expert] += __popc(same);
        __syncwarp();
        if (expert < 0) return;
        row += __popc(same & ((1u << lane) - 1));
        a.row_of_slot[s] = row;
        a.token_of_row[row] = s / top_k;
    });
}
