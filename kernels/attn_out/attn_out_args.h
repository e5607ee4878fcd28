/* Arguments of the kernels of attn_out, shared by host and device. */
#ifndef KERNELS_ATTN_OUT_ATTN_OUT_ARGS_H
#define KERNELS_ATTN_OUT_ATTN_OUT_ARGS_H

#include "counters_args.h"
#include "types.h"

/* Norm, router and choice: a row is a cluster's. */
enum {
    ATTN_OUT_CLUSTER = 8,
    ATTN_OUT_THREADS = 256, /* of a block, up to ATTN_OUT_EXPERTS_FEW experts; else */
    ATTN_OUT_THREADS_MANY = 512,
    ATTN_OUT_EXPERTS_FEW = 32,
    ATTN_OUT_EXPERTS_MAX = 128,
    ATTN_OUT_HIDDEN_MAX = 3072,
    ATTN_OUT_SLOTS_MAX = 256, /* choices of all rows */
};

/* The projection of one row or two into the residual stream: x += attn w^T + bias. */
struct attn_out_add_args {
    int64_t n, k;      /* n: a multiple of 16 */
    const float *attn; /* [rows][k] */
    const void *w, *scales;
    const float *bias; /* [n] or NULL */
    float *x;          /* [rows][n], in place */
};
SOL_STATIC_ASSERT(sizeof(struct attn_out_add_args) == 56, "host and device agree");

/* What follows the projection, as struct attn_out_args (src/ops/args.h). */
struct attn_out_kernel_args {
    int64_t hidden, n_experts, top_k;
    const float *x, *norm;
    const void *router;       /* [n_experts][hidden], float32 or bf16 by the kernel's name */
    const float *router_bias; /* [n_experts] or NULL */
    float *normed;            /* of many rows perhaps bf16 */
    float *halves; /* [m][n_experts][2] half logits, of kernels that leave the choice to others */
    float *weight; /* struct routing, of those that choose */
    int32_t *expert, *group_offsets, *token_of_row, *row_of_slot;
    uint32_t *counters; /* of the stream */
    float eps;
    int32_t m;
};
SOL_STATIC_ASSERT(sizeof(struct attn_out_kernel_args) == 128, "host and device agree");

#endif
