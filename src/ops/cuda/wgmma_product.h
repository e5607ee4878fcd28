/* The host's side of the products on wgmma (kernels/gemm/gemm_wgmma.cuh), for the ops that use
 * them. */
#ifndef OPS_CUDA_WGMMA_PRODUCT_H
#define OPS_CUDA_WGMMA_PRODUCT_H

#include <stdbool.h>

#include "gemm/gemm_wgmma_args.h"
#include "ops/args.h"
#include "ops/op.h"

/* Whether a product with these weights is served: bf16, packed MXFP4 or packed Q8_0, sizes and
 * addresses. */
bool wgmma_serves(const struct tensor *w, char why[OP_REASON_MAX]);

/* The tiles of dense products, of bf16 and Q8_0, and of products of packed MXFP4; of gated ones; of
 * WGMMA_HEADS; of WGMMA_ADDED; of WGMMA_BF16, the same number for the gated product and the other;
 * of those with rows in int8. */
extern const struct op_choices wgmma_gemm_choices, wgmma_up_choices, wgmma_heads_choices,
    wgmma_added_choices, wgmma_moe_choices, wgmma_i8_choices;

/* Where the results of q, k and v go (WGMMA_HEADS), besides c, which gets q's. */
struct wgmma_heads {
    struct tensor k, v; /* weights, in the format of w, which has q's. Heads of 64 */
    const float *k_bias, *v_bias;
    struct cache_args cache;
    const float *turns;        /* as struct gemm_wgmma_args */
    const int32_t *cache_rows; /* likewise */
};

/* One product: C = X W^T + bias, or with `up` the gated one of w = gate and up. */
struct wgmma_product {
    enum wgmma_result result; /* ADDED and HEADS: of bf16 or Q8_0; BF16: of MXFP4 */
    int64_t m;
    struct tensor w, up; /* up.data NULL: plain */
    const float *bias, *up_bias;
    const int32_t *group_offsets; /* or NULL */
    const void *x;                /* of many_rows_operand, or of i8_rows_put */
    const struct i8_row *x_rows;  /* of i8_rows_put, or NULL; MXFP4 and WGMMA_BF16 alone */
    void *c;                      /* float32, or bf16 as `result` says */
    float alpha, limit;
    int choice; /* of those of the result; WGMMA_F32: of wgmma_gemm_choices, gated wgmma_up_choices
                 */
    const struct wgmma_heads *heads; /* or NULL */
};
void wgmma_multiply(struct gpu_stream *stream, const struct wgmma_product *product);

#endif
