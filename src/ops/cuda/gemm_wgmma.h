/* The host's side of the products on wgmma (kernels/gemm/gemm_wgmma.cuh), for the ops that use
 * them. */
#ifndef OPS_CUDA_GEMM_WGMMA_H
#define OPS_CUDA_GEMM_WGMMA_H

#include <stdbool.h>

#include "gemm/gemm_wgmma_args.h"
#include "ops/args.h"
#include "ops/op.h"

/* Whether a product with these weights is served: Hopper, bf16 or packed MXFP4, sizes and
 * addresses. */
bool wgmma_serves(const struct tensor *w, const struct op_device *device, char why[OP_REASON_MAX]);

/* Bytes of `rows` rows of k columns in bf16, as round_rows writes them. */
size_t wgmma_rows_bytes(int64_t rows, int64_t k);
/* Puts the kernel that rounds (and gathers) a's rows to `out`. */
void wgmma_round_rows(struct gpu *gpu, int64_t rows, int64_t k, const float *a,
                      const int32_t *a_rows, void *out);

/* The tiles of dense products of bf16, products of packed MXFP4, and gated ones. */
extern const struct op_choices wgmma_gemm_choices, wgmma_up_choices;

/* One product: C = X W^T + bias, or with `up` the gated one of w = gate and up. */
struct wgmma_product {
    int64_t m;
    struct tensor w, up; /* up.data NULL: plain */
    const float *bias, *up_bias;
    const int32_t *group_offsets; /* or NULL */
    const void *x;                /* of wgmma_round_rows */
    float *c;
    float alpha, limit;
    int choice; /* of wgmma_gemm_choices; gated: of wgmma_up_choices */
};
void wgmma_multiply(struct gpu *gpu, const struct wgmma_product *product);

#endif
