/* Down projections of few rows' experts, then their weighted sums into the residual stream, in the
 * order of each row's choices. */
#include "gemm/expert_rows.cuh"
#include "inline.cuh"

EXPERT_ROWS(moe_down_f32_2, 1, 1, 3, true)
EXPERT_ROWS(moe_down_bf16_8, 1, 1, 1, true)
EXPERT_ROWS(moe_down_bf16_16, 1, 2, 1, true)

/* Four features a thread, a row in blockIdx.y. All that the products did not write is there before
 * they end. OWN: some experts are other ranks', and their slots have no row. */
template <bool OWN> INLINE void join_rows(const join_rows_args &a)
{
    enum { TOP_K_MAX = EXPERT_ROWS_TOP_K_MAX };
    int64_t at = ((int64_t)blockIdx.x * EXPERT_ROWS_THREADS + threadIdx.x) * 4;
    int64_t slot = blockIdx.y * a.top_k;
    bool works = at < a.n;
    float4 *x = (float4 *)(a.x + blockIdx.y * a.n + at), sum = works ? *x : float4{0, 0, 0, 0};
    float weight[TOP_K_MAX];
    const float *y[TOP_K_MAX];
#pragma unroll
    for (int j = 0; j < TOP_K_MAX; j++) {
        bool used = works && j < a.top_k;
        weight[j] = used ? __ldcg(a.weight + slot + j) : 0;
        y[j] = used ? a.y + __ldcg(a.row_of_slot + slot + j) * a.n + at : nullptr;
        if (OWN && used && __ldcg(a.row_of_slot + slot + j) < 0) y[j] = nullptr;
    }
    let_next_start(); /* who follows reads nothing of this kernel, or of the products, before it has waited */
    wait_for_input();
    if (!works) return;
    float4 part[TOP_K_MAX];
#pragma unroll
    for (int j = 0; j < TOP_K_MAX; j++)
        part[j] = j < a.top_k && (!OWN || y[j]) ? __ldcg((const float4 *)y[j]) : float4{0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < TOP_K_MAX; j++) {
        if (j >= a.top_k) break;
        if (OWN && !y[j]) continue;
        sum.x += weight[j] * part[j].x;
        sum.y += weight[j] * part[j].y;
        sum.z += weight[j] * part[j].z;
        sum.w += weight[j] * part[j].w;
    }
    *x = sum;
}

KERNEL_OF(EXPERT_ROWS_THREADS, moe_down_join, join_rows_args) { join_rows<false>(a); }
KERNEL_OF(EXPERT_ROWS_THREADS, moe_down_join_own, join_rows_args) { join_rows<true>(a); }
