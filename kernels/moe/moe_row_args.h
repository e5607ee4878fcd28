/* Arguments of the kernels for the experts of one row or two, shared by host and device. */
#ifndef KERNELS_MOE_MOE_ROW_ARGS_H
#define KERNELS_MOE_MOE_ROW_ARGS_H

#include "types.h"

enum {
    /* A block of gate and up: pairs of their tiles, threads, values of a row that they hold. */
    MOE_UP_PAIRS = 3,
    MOE_UP_THREADS = 384,
    MOE_UP_HIDDEN_MAX = 8 * MOE_UP_THREADS,
    /* Experts of a row at most: those of a block of down, of a pair half of them each. */
    MOE_DOWN_SLOTS = 4,
    /* Among so many experts kernels choose. */
    MOE_ROW_EXPERTS_FEW = 32,
    MOE_ROW_EXPERTS_MAX = 128,
};

/* Weights in MXFP4 tiles, as struct moe_args (src/ops/args.h). */
struct moe_row_args {
    int64_t hidden, intermediate, top_k, n_experts;
    const float *normed; /* [rows][hidden] */
    const void *gate, *gate_scales, *up, *up_scales, *down, *down_scales;
    const float *gate_bias, *up_bias; /* [n_experts][intermediate] */
    const float *down_bias;           /* [n_experts][hidden] */
    const float *halves;              /* [rows][n_experts][2] half logits, of kernels that choose */
    float *weight;                    /* struct routing: read, or written by kernels that choose */
    int32_t *expert, *group_offsets, *token_of_row, *row_of_slot;
    char *act; /* [rows][top_k][FEW_ROWS_PARTS] columns (few_rows.cuh) of intermediate */
    float *x;  /* [rows][hidden], in place */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct moe_row_args) == 184, "host and device agree");

#endif
