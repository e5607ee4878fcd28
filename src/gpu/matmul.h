/* Products by NVIDIA's library, where it is installed. */
#ifndef GPU_MATMUL_H
#define GPU_MATMUL_H

#include "gpu/device.h"

/* What a product may use besides its operands: as much as NVIDIA's documents advise for Hopper. */
enum { GPU_MATMUL_WORKSPACE = 32 << 20 };

/* Bytes of workspace for a product of this size. They are for sums that are split along k; none
 * where tiles alone fill an H100 (docs/LOG.md, the loss in three forms). */
size_t gpu_matmul_workspace(int64_t batch, int64_t m, int64_t n);

/* C = alpha X W^T + beta add + bias (in FP8 alpha x_scale w_scale X W^T), sums in float32. Pointers
 * are multiples of 16, those of scales too. What is not named in an initializer is 0: one plain
 * product of bf16 to float32. */
struct gpu_matmul {
    int64_t m, n, k, x_stride;      /* x_stride: elements from a row of x to the next */
    int64_t w_stride, c_stride;     /* of w, and of c and add, likewise; 0: rows without gaps */
    const void *x, *w;              /* bf16 [m][k], [n][k] */
    const float *bias;              /* [n] or NULL */
    void *c;                        /* float32 [m][n] */
    bool f16;                       /* operands and results are fp16 instead; no bias then */
    bool f32;                       /* operands are float32, and multiplied as such */
    bool fp8;                       /* operands are e4m3 with scales instead; no bias then */
    bool x_e5m2;                    /* with fp8: x is e5m2 */
    bool fast;                      /* with fp8: sums may have fewer bits */
    const float *x_scale, *w_scale; /* with fp8: one number each, on the device */
    bool narrow;                    /* results, and what is added, are bf16 */
    bool x_transposed;              /* x is [k][m], x_stride from a row of that to the next */
    bool w_transposed;              /* w is [k][n] */
    int64_t batch;                  /* so many products; 0: 1 */
    /* From a matrix of x, w, c to the next, in elements; 0: one behind the other. */
    int64_t x_apart, w_apart, c_apart;
    float alpha, beta; /* alpha 0: 1 */
    const void *add;   /* as c, may be c; where beta is not 0 */
    int choice;        /* which of the algorithms that the library offers, best first */
    void *workspace;   /* gpu_matmul_workspace bytes */
};

enum { GPU_MATMUL_CHOICES = 4 }; /* where it offers fewer, the last one */

/* Whether the library is there; if not *why (may be NULL) says what is missing. */
bool gpu_matmul_usable(const char **why);

/* Puts the product on the stream, graphs included. The library's choice of an algorithm is kept for
 * each shape until gpu_close, for all streams. Failures as with gpu_put; SOL_E_UNSUPPORTED where
 * the library has no algorithm. */
void gpu_put_matmul(struct gpu_stream *stream, const struct gpu_matmul *product);

#endif
