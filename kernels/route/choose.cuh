/* The choice of a token's experts by a warp. */
#ifndef KERNELS_ROUTE_CHOOSE_CUH
#define KERNELS_ROUTE_CHOOSE_CUH

#include "common.cuh"

/* A row's choice at the lane of its number: nobody may read that of lanes from top_k on. */
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

/* Logits by falling size, the lower index first of equal ones. A lane has every 32nd of at most EXPERTS. */
template <int EXPERTS> struct ranking {
    enum { EACH = EXPERTS / WARP };
    uint32_t order[EACH];
    bool nan; /* among them */

    template <class LOGIT> __device__ ranking(LOGIT logit_at, int n_experts) : nan(false)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int e = threadIdx.x % WARP + i * WARP;
            float logit = e < n_experts ? logit_at(e) : 0;
            nan |= isnan(logit);
            order[i] = e < n_experts ? order_of(logit) : 0;
        }
        nan = __any_sync(FULL_MASK, nan);
    }
    /* The largest that is left; it is not left then. */
    __device__ int next(uint32_t &most)
    {
        uint32_t lane = threadIdx.x % WARP, best = 0, at = 0, e;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (order[i] > best) best = order[i], at = i;
        most = __reduce_max_sync(FULL_MASK, best);
        if (EACH == 1)
            e = (uint32_t)__ffs((int)__ballot_sync(FULL_MASK, best == most)) - 1;
        else
            e = __reduce_min_sync(FULL_MASK, best == most ? at * WARP + lane : ~0u);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (e == i * WARP + lane) order[i] = 0;
        return (int)e;
    }
};

/* The expert that comes at `rank` of ROUNDS, for all lanes: a part of choose. */
template <int EXPERTS, int ROUNDS, class LOGIT>
__device__ inline int choose_one(LOGIT logit_at, int n_experts, int rank)
{
    ranking<EXPERTS> ranked(logit_at, n_experts);
    int expert = 0;
#pragma unroll
    for (int j = 0; j < ROUNDS; j++) {
        uint32_t most;
        int e = ranked.next(most);
        if (j == rank) expert = ranked.nan ? j : e;
    }
    return expert;
}

/* The largest logit top_k times. NaN among them takes the first ones, whatever they are. Infinity minus itself is
 * NaN: the reference says so too. ROUNDS: top_k at most, where that is known; without branches it takes less time. */
template <int EXPERTS, int ROUNDS = 0, class LOGIT>
__device__ inline choice choose(LOGIT logit_at, int n_experts, int top_k)
{
    ranking<EXPERTS> ranked(logit_at, n_experts);
    int lane = threadIdx.x % WARP, rounds = ROUNDS ? ROUNDS : top_k;
    uint32_t first = 0, mine = 0;
    choice chosen = {0, 0};
#pragma unroll
    for (int j = 0; j < rounds; j++) {
        uint32_t most;
        int e = ranked.next(most);
        if (j == 0) first = most;
        if (j == lane) mine = most, chosen.expert = ranked.nan ? j : e;
    }
    float weight = expf(logit_of(mine) - logit_of(first)), total = 0;
#pragma unroll
    for (int j = 0; j < rounds; j++) {
        float other = __shfl_sync(FULL_MASK, weight, j);
        if (!ROUNDS || j < top_k) total += other;
    }
    chosen.weight = ranked.nan ? __int_as_float(0x7fc00000) : weight / total;
    return chosen;
}

/* A row's logits in two halves each, [n_experts][2], which other kernels wrote: asked for when it is made. */
template <int EXPERTS> struct half_logits {
    float2 half[EXPERTS / WARP];

    __device__ half_logits(const float *halves, int n_experts)
    {
#pragma unroll
        for (int i = 0; i < EXPERTS / WARP; i++) {
            int e = threadIdx.x % WARP + i * WARP;
            half[i] = __ldcg((const float2 *)halves + min(e, n_experts - 1));
        }
    }
    __device__ float operator()(int e) const { return half[e / WARP].x + half[e / WARP].y; }
};

/* The tables of struct routing for at most 32 slots, by a warp whose lanes have their experts: rows are slots by
 * rising expert. */
struct routing_tables {
    int32_t *group_offsets, *token_of_row, *row_of_slot;
};

__device__ inline void put_tables(const routing_tables &t, int expert, int slots, int n_experts, int top_k)
{
    int lane = threadIdx.x % WARP, row = 0;
    for (int j = 0; j < slots; j++) {
        int other = __shfl_sync(FULL_MASK, expert, j);
        row += other < expert || (other == expert && j < lane);
    }
    if (lane < slots) {
        t.row_of_slot[lane] = row;
        t.token_of_row[row] = lane / top_k;
    }
    int last = (n_experts + WARP) / WARP * WARP; /* whole warps take part below */
    for (int e = lane; e < last; e += WARP) {
        int before = 0;
        for (int j = 0; j < slots; j++) before += __shfl_sync(FULL_MASK, expert, j) < e;
        if (e <= n_experts) t.group_offsets[e] = before;
    }
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
