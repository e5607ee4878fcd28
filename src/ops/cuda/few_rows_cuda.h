/* What the host knows of kernels/gemm/few_rows.cuh: how much shared memory its columns take, and
 * which operands its kernels can read. */
#ifndef OPS_CUDA_FEW_ROWS_CUDA_H
#define OPS_CUDA_FEW_ROWS_CUDA_H

#include <stdio.h>

#include "gpu/device.h"
#include "ops/op.h"
#include "ops/tensor.h"

enum {
    FEW_ROWS_FEATURES = 16,         /* of a tile */
    FEW_ROWS_THREADS = 256,         /* of a block */
    FEW_ROWS_PARTS = 3,             /* columns of an exact row */
    FEW_ROWS_HELD_MAX = 4096,       /* values of a row that a block has in registers */
    FEW_ROWS_SHARED_MAX = 90 << 10, /* of a block, so that two fit an SM */
};

/* Bytes of a column of k activations, for tiles or for rows of bf16. */
static inline size_t few_rows_column(int64_t k, enum layout layout)
{
    bool tiled = layout == LAYOUT_TILES;
    size_t step = tiled ? 64 : 32, steps = ((size_t)k + step - 1) / step;
    size_t bytes = steps * (tiled ? 128 : 64);
    return (bytes + 127) / 128 * 128 + (tiled ? 16 : 64);
}

static inline bool few_rows_aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

/* bf16 rows that 16-byte loads can read. */
static inline bool few_rows_bf16(const struct tensor *t)
{
    return tensor_is(t, DTYPE_BF16, LAYOUT_ROWS) && t->cols % 8 == 0 && few_rows_aligned(t->data);
}

static inline bool few_rows_mxfp4(const struct tensor *t)
{
    return tensor_is(t, DTYPE_MXFP4, LAYOUT_TILES);
}

static inline bool few_rows_q8_0(const struct tensor *t)
{
    return tensor_is(t, DTYPE_Q8_0, LAYOUT_TILES);
}

static inline bool few_rows_refuse(char why[OP_REASON_MAX], const char *reason)
{
    snprintf(why, OP_REASON_MAX, "%s", reason);
    return false;
}

/* What kernels read that take single elements (kernels/weights.cuh). */
static inline bool few_rows_any(const struct tensor *t, char why[OP_REASON_MAX])
{
    const struct dtype_info *info = dtype_info(t->dtype);
    if (info->is_weights && !info->factors) return true;
    snprintf(why, OP_REASON_MAX, "no weights in %s", info->name);
    return false;
}

/* What kernels for a single row read of dense weights. */
static inline bool few_rows_dense(const struct tensor *t, char why[OP_REASON_MAX])
{
    return few_rows_bf16(t) || few_rows_q8_0(t)
               ? true
               : few_rows_refuse(
                     why, "it reads weights in bf16, rows of 16-byte pieces, or packed q8_0");
}

/* Whether the products of few rows, `together` at a time, are put as no more blocks than run at a
 * time, two on an SM: then they take one tile's time, 3 to 7 us on an H100, where the products of
 * many rows take 9 to 11. */
static inline bool few_rows_at_once(int64_t m, int64_t n, int64_t together,
                                    const struct op_device *device)
{
    int64_t tiles = (n + FEW_ROWS_FEATURES - 1) / FEW_ROWS_FEATURES;
    return tiles * ((m + together - 1) / together) <= 2 * (int64_t)gpu_info(device->gpu)->sm_count;
}

/* What every kernel for a single row asks. */
static inline bool few_rows_one(int64_t m, char why[OP_REASON_MAX])
{
    if (m != 1) snprintf(why, OP_REASON_MAX, "%lld rows; it is for one", (long long)m);
    return m == 1;
}

#endif
