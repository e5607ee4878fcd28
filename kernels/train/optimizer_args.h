/* Arguments of the kernels of adamw and of muon's ends, shared by host and device. */
#ifndef KERNELS_TRAIN_OPTIMIZER_ARGS_H
#define KERNELS_TRAIN_OPTIMIZER_ARGS_H

#include "types.h"

enum {
    OPTIMIZER_THREADS = 256, /* of a block; fewer where a row has fewer pieces */
    MUON_STRIPES = 32,       /* of rows, where columns are added up */
    MUON_LINES_THREADS = 1024,
};

/* struct adamw_step of ops/train_args.h. */
struct adamw_kernel_step {
    float lr, beta1, beta2, eps, decay;
    float correction1, correction2;
};

struct adamw_kernel_args {
    int64_t count;
    const struct adamw_kernel_step *step;
    const float *clip; /* or NULL: 1 */
    void *p, *g, *mean, *square;
};
SOL_STATIC_ASSERT(sizeof(struct adamw_kernel_args) == 56, "host and device agree");

/* struct muon_step. */
struct muon_kernel_step {
    float lr, momentum, beta2, decay;
};

struct muon_prepare_kernel_args {
    int64_t rows, cols; /* of a matrix */
    const struct muon_kernel_step *step;
    const float *clip;
    float *g, *momentum;
    void *x;
    float *factors; /* [count * rows]: first the rows' sums of squares, then what they are times */
    int32_t equilibrate;
    float margin, tiny;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct muon_prepare_kernel_args) == 80, "host and device agree");

struct muon_apply_kernel_args {
    int64_t rows, cols;
    const struct muon_kernel_step *step;
    const void *x;
    float *second; /* [count][lines], or NULL */
    float *p;
    float *partials; /* [count][MUON_STRIPES][cols], where lines are columns */
    float *factors;  /* [count][lines]: first sums of squares, then what x is times; or NULL: 1 */
    int32_t snap, padding;
};
SOL_STATIC_ASSERT(sizeof(struct muon_apply_kernel_args) == 72, "host and device agree");

#endif
