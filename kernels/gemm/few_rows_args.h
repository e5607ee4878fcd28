/* Sizes of the kernels for few rows (few_rows.cuh), shared by host and device. */
#ifndef KERNELS_GEMM_FEW_ROWS_ARGS_H
#define KERNELS_GEMM_FEW_ROWS_ARGS_H

#include "format_args.h"

enum {
    FEW_ROWS_FEATURES = 16,   /* of a tile */
    FEW_ROWS_PARTS = 3,       /* columns of an exact row */
    FEW_ROWS_THREADS = 256,   /* of a block */
    FEW_ROWS_BLOCKS = 2,      /* of products alone, on an SM */
    FEW_ROWS_PAIR = 2,        /* blocks of a cluster that share a tile */
    FEW_ROWS_HELD_MAX = 4096, /* values of a row that a block has in registers */
};

/* Columns of activations in bf16, for weights in rows and in tiles: values of a step along k, and
 * the bytes that lead neighbouring columns to different banks. */
enum {
    FEW_ROWS_STEP_ROWS = 32,
    FEW_ROWS_STEP_TILES = UNIT_COLUMNS,
    FEW_ROWS_PAD_ROWS = 64,
    FEW_ROWS_PAD_TILES = 16,
};

/* Bytes of a column of k activations: whole steps, whole lines of shared memory, the pad. */
#define FEW_ROWS_COLUMN_BYTES(k, step, pad)                                                        \
    ((((k) + (step)-1) / (step) * (2 * (step)) + 127) / 128 * 128 + (pad))

#endif
