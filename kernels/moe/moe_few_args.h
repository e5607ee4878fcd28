/* Arguments of the kernels for the experts of few rows on Hopper, shared by host and device. */
#ifndef KERNELS_MOE_MOE_FEW_ARGS_H
#define KERNELS_MOE_MOE_FEW_ARGS_H

#include "gemm/expert_rows_args.h"
#include "gemm/few_rows_args.h"

enum {
    MOE_FEW_COLUMNS = 8,   /* rows of an expert that are multiplied at a time */
    MOE_FEW_WARPS = 12,    /* of a block, that multiply; */
    MOE_FEW_HELPERS = 128, /* threads that bring activations and finish sums */
    MOE_FEW_THREADS = MOE_FEW_WARPS * 32 + MOE_FEW_HELPERS,
    MOE_FEW_REGISTERS = 152,        /* of a thread that multiplies */
    MOE_FEW_REGISTERS_HELPERS = 56, /* and of a helper */
    MOE_FEW_UNITS = 4,              /* of a tile, for each warp */
    MOE_FEW_K_MAX = MOE_FEW_UNITS * MOE_FEW_WARPS * UNIT_COLUMNS,
    MOE_FEW_STATE = 5120, /* bytes of tables and barriers */
    MOE_FEW_PIECES_MAX = EXPERT_ROWS_GROUPS_MAX + EXPERT_ROWS_MAX / MOE_FEW_COLUMNS,
    /* Floats between the sums of neighbouring columns: those of a warp go to different banks. */
    MOE_FEW_SUM_STRIDE = FEW_ROWS_FEATURES + 4,
    MOE_FEW_SUMS = 2 * MOE_FEW_WARPS * MOE_FEW_COLUMNS * MOE_FEW_SUM_STRIDE,
};

/* Bytes of dynamic shared memory: tables and barriers, columns of two pieces, of k activations
 * each, sums. */
#define MOE_FEW_SHARED(k)                                                                          \
    (MOE_FEW_STATE +                                                                               \
     2 * MOE_FEW_COLUMNS * FEW_ROWS_COLUMN_BYTES(k, FEW_ROWS_STEP_TILES, FEW_ROWS_PAD_TILES) +     \
     MOE_FEW_SUMS * 4)

/* Weights in MXFP4 tiles. A slot is one of a row's choices; slots are ordered by expert. */
struct moe_few_args {
    int64_t hidden, intermediate, slots, n_experts;
    const float *normed;                         /* [rows][hidden] */
    const int32_t *group_offsets, *token_of_row; /* as struct routing */
    const void *gate, *gate_scales, *up, *up_scales, *down, *down_scales;
    const float *gate_bias, *up_bias; /* [n_experts][intermediate] or NULL */
    const float *down_bias;           /* [n_experts][hidden] or NULL */
    char *act;                        /* [slots] columns (few_rows.cuh) of intermediate */
    float *y;                         /* [slots][hidden] */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct moe_few_args) == 152, "host and device agree");

#endif
