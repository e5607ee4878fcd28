/* Products by NVIDIA's library, where it is installed. */
#ifndef GPU_MATMUL_H
#define GPU_MATMUL_H

#include "gpu/device.h"

/* What a product may use besides its operands: as much as NVIDIA's documents advise for Hopper. */
enum { GPU_MATMUL_WORKSPACE = 32 << 20 };

/* C = X W^T + bias, sums in float32. Pointers are multiples of 16. */
struct gpu_matmul {
    int64_t m, n, k, x_stride; /* x_stride: elements from a row of x to the next */
    const void *x, *w;         /* bf16 [m][k], [n][k] */
    const float *bias;         /* [n] or NULL */
    void *c;                   /* float32 [m][n] */
    bool f16;                  /* operands and results are fp16 instead; no bias then */
    void *workspace;           /* GPU_MATMUL_WORKSPACE bytes */
};

/* Whether the library is there; if not *why (may be NULL) says what is missing. */
bool gpu_matmul_usable(const char **why);

/* Puts the product on the stream, graphs included. The library's choice of an algorithm is kept for
 * each shape until gpu_close, for all streams. Failures as with gpu_put; SOL_E_UNSUPPORTED where
 * the library has no algorithm. */
void gpu_put_matmul(struct gpu_stream *stream, const struct gpu_matmul *product);

#endif
