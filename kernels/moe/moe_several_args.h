/* Arguments of the kernels for the experts of several rows on Hopper, shared by host and device. */
#ifndef KERNELS_MOE_MOE_SEVERAL_ARGS_H
#define KERNELS_MOE_MOE_SEVERAL_ARGS_H

#include "format_args.h"
#include "tensor_map_args.h"

enum {
    MOE_SEVERAL_ROWS = 32,      /* rows of an expert that are multiplied at a time */
    MOE_SEVERAL_WARPGROUPS = 3, /* of a block, that multiply; a third of k each */
    MOE_SEVERAL_HELPERS = 128,  /* threads that finish sums */
    MOE_SEVERAL_THREADS = MOE_SEVERAL_WARPGROUPS * 128 + MOE_SEVERAL_HELPERS,
    MOE_SEVERAL_REGISTERS = 152,        /* of a thread that multiplies */
    MOE_SEVERAL_REGISTERS_HELPERS = 56, /* and of a helper */
    MOE_SEVERAL_STEP = 64,  /* rows of weights: features, or half as many and their gates */
    MOE_SEVERAL_UNITS = 15, /* of a tile, for each warpgroup, at most */
    MOE_SEVERAL_K = MOE_SEVERAL_WARPGROUPS * UNIT_COLUMNS, /* k is a multiple */
    MOE_SEVERAL_K_MAX = MOE_SEVERAL_UNITS * MOE_SEVERAL_K,
    MOE_SEVERAL_GROUPS_MAX = 128,
    MOE_SEVERAL_SLOTS_MAX = 4096,
    MOE_SEVERAL_PIECES_MAX = MOE_SEVERAL_GROUPS_MAX + MOE_SEVERAL_SLOTS_MAX / MOE_SEVERAL_ROWS,
    MOE_SEVERAL_BOX = 8, /* rows that a copy brings, of a unit's columns */
    /* Floats between the sums of neighbouring rows: those of a warp go to different banks. */
    MOE_SEVERAL_SUM_STRIDE = MOE_SEVERAL_STEP + 4,
    MOE_SEVERAL_SUMS = MOE_SEVERAL_WARPGROUPS * MOE_SEVERAL_ROWS * MOE_SEVERAL_SUM_STRIDE,
    MOE_SEVERAL_STATE = 3328, /* bytes of tables and barriers */
};

/* Bytes of dynamic shared memory: rows of a piece, of k activations in bf16, sums, tables. */
#define MOE_SEVERAL_SHARED(k) ((k)*2 * MOE_SEVERAL_ROWS + MOE_SEVERAL_SUMS * 4 + MOE_SEVERAL_STATE)

/* Weights in MXFP4 tiles. Rows are ordered by expert. */
struct moe_several_args {
    struct tensor_map x; /* [][k] in bf16 */
    const int32_t *group_offsets;
    const void *w[2], *scales[2]; /* gate and up, or down */
    const float *bias[2];         /* [groups][n] or NULL */
    const void *plain_x;          /* what the map describes */
    void *out;                    /* [][n] in bf16 */
    int32_t k, n, groups;
    float alpha, limit;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct moe_several_args) == 256, "host and device agree");

#endif
