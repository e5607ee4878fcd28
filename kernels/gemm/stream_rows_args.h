/* What host and device know of the products of few rows with dense weights (stream_rows.cuh). */
#ifndef KERNELS_GEMM_STREAM_ROWS_ARGS_H
#define KERNELS_GEMM_STREAM_ROWS_ARGS_H

#include "types.h"

enum { STREAM_THREADS = 256, STREAM_ROWS_MAX = 32 };

/* Dynamic shared memory of a block with T tiles of 16 features and 8 * N columns. */
#define STREAM_SHARED(T, N) (STREAM_THREADS / 32 * 4 * ((T)*16 * ((N)*8 + 1) + (N)*8))

/* out[i] += x[i] w^T + bias for m rows. */
struct stream_added_args {
    int64_t m, n, k;
    const float *x;
    const void *w, *scales; /* scales: where they lie apart */
    const float *bias;      /* or NULL */
    float *out;
};
SOL_STATIC_ASSERT(sizeof(struct stream_added_args) == 64, "host and device agree");

#endif
