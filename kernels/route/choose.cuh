/* The choice of a token's experts by a warp. */
#ifndef KERNELS_ROUTE_CHOOSE_CUH
#define KERNELS_ROUTE_CHOOSE_CUH

#include "common.cuh"

enum { TOP_K_MAX = 8 };

/* Made top_k times: the largest logit below (or equal to, and behind) the last one. To weight[top_k] and
 * expert[top_k]. */
__device__ inline void choose_experts(const float *logits, int n_experts, int top_k, float *weight,
                                      int32_t *expert)
{
    int lane = threadIdx.x % WARP;
    bool nan = false;
    for (int e = lane; e < n_experts; e += WARP) nan |= isnan(logits[e]);
    nan = __any_sync(FULL_MASK, nan);
    float last = __int_as_float(0x7f800000), first = 0, total = 0;
    int last_expert = -1;
    float exponent[TOP_K_MAX];
    for (int j = 0; j < top_k; j++) {
        float best = -__int_as_float(0x7f800000);
        int best_expert = 0x7fffffff;
        for (int e = lane; e < n_experts; e += WARP) {
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
        if (lane == 0) expert[j] = nan ? j : best_expert;
    }
    for (int j = 0; j < top_k; j++)
        if (lane == 0) weight[j] = nan ? __int_as_float(0x7fc00000) : exponent[j] / total;
}

#endif
