/* Arguments of the products of experts that have few rows, shared by host and device. */
#ifndef KERNELS_GEMM_EXPERT_ROWS_ARGS_H
#define KERNELS_GEMM_EXPERT_ROWS_ARGS_H

#include "types.h"

enum {
    EXPERT_ROWS_THREADS = 256,
    EXPERT_ROWS_BLOCKS = 2, /* on an SM */
    EXPERT_ROWS_TOP_K_MAX = 8,
    EXPERT_ROWS_K_MAX = 3072, /* a tile is held in the registers of a block */
    EXPERT_ROWS_GROUPS_MAX = 128,
    EXPERT_ROWS_MAX = 512,
};

/* Weights in MXFP4 tiles. Two matrices: out = swiglu(x w[0]^T + bias[0], x w[1]^T + bias[1]). */
struct expert_rows_args {
    int64_t rows, n, k, groups;
    const float *x;        /* [][k] */
    const int32_t *x_rows; /* [rows] of x, or NULL: row i */
    const void *w[2], *scales[2];
    const float *bias[2]; /* [groups][n] or NULL */
    const int32_t *group_offsets;
    float *out; /* [rows][n] */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct expert_rows_args) == 120, "host and device agree");

/* After the down projections: x[i] += sum_j weight[i][j] y[row_of_slot[i][j]]. */
struct join_rows_args {
    int64_t n, top_k; /* n: a multiple of 4 */
    const float *y, *weight;
    const int32_t *row_of_slot;
    float *x;
};
SOL_STATIC_ASSERT(sizeof(struct join_rows_args) == 48, "host and device agree");

#endif
