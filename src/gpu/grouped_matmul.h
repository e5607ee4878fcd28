/* Many products in one call of NVIDIA's library, where it is installed. */
#ifndef GPU_GROUPED_MATMUL_H
#define GPU_GROUPED_MATMUL_H

#include "gpu/matmul.h"

enum { GPU_MATMULS_MAX = 128 }; /* in a call */

/* C = X W^T for each, in fp16, sums in float32, rows without gaps. Addresses of matrices are
 * multiples of 16. */
struct gpu_grouped_matmul {
    int count;
    int m[GPU_MATMULS_MAX], n[GPU_MATMULS_MAX], k[GPU_MATMULS_MAX]; /* none is 0 */
    /* In device memory: the addresses of all X, [m][k], of all W, [n][k], and of all C, [m][n]. */
    const void *const *x, *const *w;
    void *const *c;
    void *workspace; /* GPU_MATMUL_WORKSPACE bytes */
};

/* As gpu_matmul_usable. */
bool gpu_grouped_matmul_usable(const char **why);

/* Puts the products on the stream. Failures as with gpu_put. NVIDIA's documents name nothing that
 * forbids a graph, nor do they say that what the call reads of the host is copied before: who makes
 * a graph of it looks at the results. */
void gpu_put_grouped_matmul(struct gpu_stream *stream, const struct gpu_grouped_matmul *products);

#endif
