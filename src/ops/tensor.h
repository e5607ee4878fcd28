/* A weight matrix, or one per expert: [groups][rows][cols]. Row r of a product C = A * W^T is
 * output feature r. Read-only, not owned. */
#ifndef OPS_TENSOR_H
#define OPS_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "format/dtype.h"

struct tensor {
    const void *data;
    enum dtype dtype;
    enum layout layout; /* tiles (kernels/format_args.h) are on a GPU only, group after group */
    int64_t groups, rows, cols;
    const void *scales; /* of tiles, where their format has any; those of rows are among the data */
    const float *factors; /* [groups] where the format has two levels of scales */
};

/* In rows. */
static inline const void *tensor_row(const struct tensor *t, int64_t group, int64_t row)
{
    return (const char *)t->data +
           (size_t)(group * t->rows + row) * dtype_row_bytes(t->dtype, t->cols);
}

static inline void tensor_decode_row(const struct tensor *t, int64_t group, int64_t row, float *out)
{
    dtype_info(t->dtype)->decode(tensor_row(t, group, row), out, t->cols);
    for (int64_t i = 0; t->factors && i < t->cols; i++) out[i] *= t->factors[group];
}

static inline size_t tensor_bytes(const struct tensor *t)
{
    return (size_t)(t->groups * t->rows) * dtype_row_bytes(t->dtype, t->cols);
}

static inline bool tensor_is(const struct tensor *t, enum dtype dtype, enum layout layout)
{
    return t->dtype == dtype && t->layout == layout;
}

#endif
