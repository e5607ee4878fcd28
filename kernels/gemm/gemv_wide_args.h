/* Sizes of gemv_wide.cu, shared by host and device. */
#ifndef KERNELS_GEMM_GEMV_WIDE_ARGS_H
#define KERNELS_GEMM_GEMV_WIDE_ARGS_H

enum {
    GEMV_WIDE_THREADS = 512, /* of a block */
    GEMV_WIDE_BLOCKS = 2,    /* on an SM */
    GEMV_WIDE_PAIR = 2,      /* features that a warp multiplies at a time */
    GEMV_WIDE_STEP = 256,    /* columns that a warp reads of a feature at a time */
    GEMV_WIDE_AHEAD = 3,     /* steps that are on their way */
    GEMV_WIDE_ROWS_MAX = 2,
    /* Columns of a row that is normed: whole rounds, 8 a thread at most. */
    GEMV_WIDE_HELD_MAX = 3840,
    /* Features: products of fewer are faster with warps that share a feature. */
    GEMV_WIDE_MIN = 1 << 13,
};

/* Columns with those that fill the last steps, of which there are whole rounds of AHEAD. */
#define GEMV_WIDE_COLUMNS(k)                                                                       \
    (((k) + GEMV_WIDE_STEP * GEMV_WIDE_AHEAD - 1) / (GEMV_WIDE_STEP * GEMV_WIDE_AHEAD) *           \
     (GEMV_WIDE_STEP * GEMV_WIDE_AHEAD))

#endif
