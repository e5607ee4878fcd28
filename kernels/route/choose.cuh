/* The choice of a token's experts by a warp. */
#ifndef KERNELS_ROUTE_CHOOSE_CUH
#define KERNELS_ROUTE_CHOOSE_CUH

#include "common.cuh"

/* A row's choice at the lane of its number: lanes from top_k on have none. */
struct choice {
    int32_t expert;
    float weight;
};

/* Order of logits as that of numbers; 0 is below all of them. */
__device__ inline uint32_t order_of(float logit)
{
    uint32_t bits = __float_as_uint(logit + 0.0f); /* -0 is 0 */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float logit_of(uint32_t order)
{
    return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/* The largest logit top_k times, the lower index first of equal ones. A lane has every 32nd of at most
 * EXPERTS experts; NaN among them takes the first ones, whatever they are. Infinity minus itself is NaN:
 * the reference says so too. */
template <int EXPERTS, class LOGIT>
__device__ inline choice choose(LOGIT logit_at, int n_experts, int top_k)
{
    enum { EACH = EXPERTS / WARP };
    int lane = threadIdx.x % WARP;
    uint32_t order[EACH], first = 0, mine = 0;
    bool nan = false;
    choice chosen = {0, 0};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int e = lane + i * WARP;
        float logit = e < n_experts ? logit_at(e) : 0;
        nan |= isnan(logit);
        order[i] = e < n_experts ? order_of(logit) : 0;
    }
    nan = __any_sync(FULL_MASK, nan);
    for (int j = 0; j < top_k; j++) {
        uint32_t best = 0, at = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (order[i] > best) best = order[i], at = i;
        uint32_t most = __reduce_max_sync(FULL_MASK, best), e = at * WARP + lane;
        e = __reduce_min_sync(FULL_MASK, best == most ? e : ~0u);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (e == i * WARP + lane) order[i] = 0;
        if (j == 0) first = most;
        if (j == lane) mine = most, chosen.expert = nan ? j : (int32_t)e;
    }
    float weight = expf(logit_of(mine) - logit_of(first)), total = 0;
    for (int j = 0; j < top_k; j++) total += __shfl_sync(FULL_MASK, weight, j);
    chosen.weight = nan ? __int_as_float(0x7fc00000) : weight / total;
    return chosen;
}

/* Of logits that lie in a row, to weight[top_k] and expert[top_k]. */
template <int EXPERTS>
__device__ inline void choose_experts(const float *logits, int n_experts, int top_k, float *weight,
                                      int32_t *expert)
{
    int lane = threadIdx.x % WARP;
    choice chosen = choose<EXPERTS>([&](int e) { return logits[e]; }, n_experts, top_k);
    if (lane < top_k) weight[lane] = chosen.weight, expert[lane] = chosen.expert;
}

#endif
