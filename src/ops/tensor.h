/* A weight matrix, or one per expert: [groups][rows][cols], each row in `dtype`, rows without
 * padding. Row r of a product C = A * W^T is output feature r. Read-only, not owned. */
#ifndef OPS_TENSOR_H
#define OPS_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "format/dtype.h"

struct tensor {
    const void *data;
    enum dtype dtype;
    int64_t groups, rows, cols;
    /* NULL: rows as described. Else MXFP4 or Q8_0 as GPUs want it: `data` has the tiles of
     * kernels/pack/mxfp4_tiles.h or q8_0_tiles.h, group after group, and this their scales. */
    const void *scales;
};

static inline const void *tensor_row(const struct tensor *t, int64_t group, int64_t row)
{
    return (const char *)t->data +
           (size_t)(group * t->rows + row) * dtype_row_bytes(t->dtype, t->cols);
}

static inline size_t tensor_bytes(const struct tensor *t)
{
    return (size_t)(t->groups * t->rows) * dtype_row_bytes(t->dtype, t->cols);
}

#endif
