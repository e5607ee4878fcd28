/* What the host knows of kernels/gemm/few_rows.cuh: how much shared memory its columns take, and
 * which operands its kernels can read. */
#ifndef OPS_CUDA_FEW_ROWS_OPERANDS_H
#define OPS_CUDA_FEW_ROWS_OPERANDS_H

#include <stdio.h>

#include "gemm/few_rows_args.h"
#include "gpu/device.h"
#include "ops/op.h"
#include "ops/tensor.h"

/* Bytes of a column of k activations, for tiles or for rows of bf16. */
static inline size_t few_rows_column(int64_t k, enum layout layout)
{
    return layout == LAYOUT_TILES
               ? FEW_ROWS_COLUMN_BYTES((size_t)k, FEW_ROWS_STEP_TILES, FEW_ROWS_PAD_TILES)
               : FEW_ROWS_COLUMN_BYTES((size_t)k, FEW_ROWS_STEP_ROWS, FEW_ROWS_PAD_ROWS);
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

/* Experts in packed MXFP4 and their biases, or none, that 16-byte loads can read. */
static inline bool few_rows_experts(const struct tensor *w, const float *bias,
                                    char why[OP_REASON_MAX])
{
    if (!few_rows_mxfp4(w)) return few_rows_refuse(why, "it reads weights in packed mxfp4");
    if (!few_rows_aligned(w->data) || !few_rows_aligned(w->scales))
        return few_rows_refuse(why, "weights at addresses that are no multiple of 16");
    if (few_rows_aligned(bias)) return true;
    return few_rows_refuse(why, "biases at addresses that are no multiple of 16");
}

/* What kernels read that take single elements (kernels/weights.cuh). */
static inline bool few_rows_any(const struct tensor *t, char why[OP_REASON_MAX])
{
    const struct dtype_info *info = dtype_info(t->dtype);
    if (info->is_weights && !info->factors) return true;
    snprintf(why, OP_REASON_MAX, "no weights in %s", info->name);
    return false;
}

/* What kernels for one row or two read of dense weights. */
static inline bool few_rows_dense(const struct tensor *t, char why[OP_REASON_MAX])
{
    return few_rows_bf16(t) || few_rows_q8_0(t)
               ? true
               : few_rows_refuse(
                     why, "it reads weights in bf16, rows of 16-byte pieces, or packed q8_0");
}

/* What kernels for one row, or for two, ask. */
static inline bool few_rows_just(int64_t m, int64_t rows, char why[OP_REASON_MAX])
{
    if (m != rows)
        snprintf(why, OP_REASON_MAX, "%lld rows; it is for %s", (long long)m,
                 rows == 1 ? "one" : "two");
    return m == rows;
}

#endif
