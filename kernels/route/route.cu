/* Two kernels: a warp a token chooses its experts; one block then sorts the slots by expert, by one of two
 * ways. */
#include "common.cuh"
#include "route/route_args.h"

enum { TOP_K_MAX = 8 };

/* The choice is made top_k times: the largest logit below (or equal to, and behind) the last one. */
KERNEL_OF(128, route_choose, route_kernel_args)
{
    wait_for_input();
    let_next_start();
    int lane = threadIdx.x % WARP;
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (i >= a.m) return;
    const float *logits = a.logits + i * a.n_experts;
    bool nan = false;
    for (int64_t e = lane; e < a.n_experts; e += WARP) nan |= isnan(logits[e]);
    nan = __any_sync(FULL_MASK, nan);
    float last = __int_as_float(0x7f800000), first = 0, total = 0;
    int last_expert = -1;
    float exponent[TOP_K_MAX];
    for (int j = 0; j < a.top_k; j++) {
        float best = -__int_as_float(0x7f800000);
        int best_expert = 0x7fffffff;
        for (int e = lane; e < a.n_experts; e += WARP) {
            float x = logits[e];
            bool left = x < last || (x == last && e > last_expert);
            if (left && (x > best || best_expert == 0x7fffffff)) best = x, best_expert = e;
        }
        for (int step = WARP / 2; step; step /= 2) {
            float x = __shfl_xor_sync(FULL_MASK, best, step);
            int e = __shfl_xor_sync(FULL_MASK, best_expert, step);
            bool none = best_expert == 0x7fffffff;
            if (e != 0x7fffffff && (none || x > best || (x == best && e < best_expert)))
                best = x, best_expert = e;
        }
        last = best;
        last_expert = best_expert;
        if (j == 0) first = best;
        /* Infinity minus itself would be NaN: the reference says so too. */
        exponent[j] = expf(best - first);
        total += exponent[j];
        if (lane == 0) a.expert[i * a.top_k + j] = nan ? j : best_expert;
    }
    for (int j = 0; j < a.top_k; j++)
        if (lane == 0)
            a.weight[i * a.top_k + j] = nan ? __int_as_float(0x7fc00000) : exponent[j] / total;
}

/* A thread an expert counts its slots, then hands out their rows in order: stable without atomics. */
KERNEL_OF(128, route_group, route_kernel_args)
{
    __shared__ int32_t counts[129];
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
enum { GROUP_WARPS = 32, EXPERTS_MAX = 128 };

KERNEL_OF(GROUP_WARPS *WARP, route_count, route_kernel_args)
{
    __shared__ int32_t rows[GROUP_WARPS][EXPERTS_MAX], first[EXPERTS_MAX + 1];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, e = threadIdx.x;
    for (int i = threadIdx.x; i < GROUP_WARPS * EXPERTS_MAX; i += GROUP_WARPS * WARP)
        rows[i / EXPERTS_MAX][i % EXPERTS_MAX] = 0;
    wait_for_input();
    let_next_start();
    int slots = (int)(a.m * a.top_k), top_k = (int)a.top_k;
    int each = (slots + GROUP_WARPS * WARP - 1) / (GROUP_WARPS * WARP) * WARP;
    int begin = warp * each, end = min(begin + each, slots);
    __syncthreads();
    for (int s = begin + lane; s - lane < end; s += WARP) {
        int expert = s < end ? a.expert[s] : -1;
        uint32_t same = __match_any_sync(FULL_MASK, expert);
        if (expert >= 0 && lane == __ffs(same) - 1) rows[warp][expert] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    if (e < a.n_experts) { /* counts become what the warps before have */
        int32_t count = 0;
        for (int w = 0; w < GROUP_WARPS; w++) {
            int32_t mine = rows[w][e];
            rows[w][e] = count;
            count += mine;
        }
        first[e + 1] = count;
    }
    __syncthreads();
    if (e == 0) {
        first[0] = 0;
        for (int n = 0; n < a.n_experts; n++) first[n + 1] += first[n];
    }
    __syncthreads();
    if (e <= a.n_experts) a.group_offsets[e] = first[e];
    for (int s = begin + lane; s - lane < end; s += WARP) {
        int expert = s < end ? a.expert[s] : -1;
        uint32_t same = __match_any_sync(FULL_MASK, expert);
        int32_t row = expert >= 0 ? first[expert] + rows[warp][expert] : 0;
        __syncwarp();
        if (expert >= 0 && lane == __ffs(same) - 1) rows[warp][expert] += __popc(same);
        __syncwarp();
        if (expert < 0) continue;
        row += __popc(same & ((1u << lane) - 1));
        a.row_of_slot[s] = row;
        a.token_of_row[row] = s / top_k;
    }
}
