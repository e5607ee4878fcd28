/* Activations: rows of `cols` numbers, one `stride` numbers behind the other. Not owned. */
#ifndef OPS_MATRIX_H
#define OPS_MATRIX_H

#include <assert.h>
#include <stdbool.h>

#include "format/dtype.h"

struct matrix {
    void *data; /* first: where an op's arguments have a matrix is where the pointer is */
    enum dtype dtype;
    uint32_t pad; /* no hidden padding: ops/args.h */
    int64_t rows, cols, stride;
};

static inline struct matrix matrix_f32(void *data, int64_t rows, int64_t cols)
{
    return (struct matrix){data, DTYPE_F32, 0, rows, cols, cols};
}

/* Float32 without gaps: what a variant may take its matrices for (op.h). */
static inline bool matrix_is_plain(const struct matrix *m)
{
    return m->dtype == DTYPE_F32 && m->stride == m->cols;
}

/* A matrix without data is one that a call does without: plain, and nothing is read of it. */
static inline struct matrix matrix_of(enum dtype dtype, void *data, int64_t rows, int64_t cols)
{
    return (struct matrix){data, dtype, 0, rows, cols, cols};
}

static inline bool matrix_is_typed(const struct matrix *m)
{
    return (m->dtype == DTYPE_F32 || m->dtype == DTYPE_BF16) && m->stride == m->cols;
}

/* In bf16 rows are whole lines of 128 bytes, as products on matrix instructions read them, and
 * begin where their copies can. */
enum { MATRIX_LINE = 64 };

static inline bool matrix_has_lines(const struct matrix *m)
{
    return m->stride == m->cols && m->cols % MATRIX_LINE == 0 && (uintptr_t)m->data % 16 == 0;
}

static inline bool matrix_may_be_narrow(const struct matrix *m)
{
    return m->dtype == DTYPE_F32 && matrix_has_lines(m);
}

static inline bool matrix_is_narrow(const struct matrix *m)
{
    return m->dtype == DTYPE_BF16 && matrix_has_lines(m);
}

static inline double matrix_bytes(const struct matrix *m)
{
    return (double)(m->rows * m->cols) * (double)dtype_info(m->dtype)->block_bytes;
}

/* The rows [first, first + count) of a matrix without gaps. */
static inline struct matrix matrix_rows(const struct matrix *m, int64_t first, int64_t count)
{
    const struct matrix before = matrix_of(m->dtype, m->data, first, m->cols);
    return matrix_of(m->dtype, (char *)m->data + (size_t)matrix_bytes(&before), count, m->cols);
}

static inline float *matrix_floats(const struct matrix *m)
{
    assert(matrix_is_plain(m));
    return m->data;
}

#endif
