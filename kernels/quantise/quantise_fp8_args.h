/* Arguments of the kernels of quantise to FP8, alone and behind relu2, and of delayed_scale, shared
 * by host and device. */
#ifndef KERNELS_QUANTISE_QUANTISE_FP8_ARGS_H
#define KERNELS_QUANTISE_QUANTISE_FP8_ARGS_H

#include "types.h"

/* A block of quantise: a tile of numbers, eight of a row a thread, four times. */
enum { FP8_ROWS = 128, FP8_COLUMNS = 64, FP8_THREADS = 256 };

/* struct quantise_scale of ops/train_args.h. */
struct fp8_kernel_scale {
    float factor, amax, scale, pad;
};

struct quantise_fp8_args {
    int64_t m, n;
    const void *from, *y;    /* y: of relu2's gradient alone */
    void *out;               /* what relu2 makes of `from`, or NULL */
    uint8_t *codes, *turned; /* either may be NULL */
    struct fp8_kernel_scale *scale;
    float largest;
    int32_t tiles; /* along n */
};
SOL_STATIC_ASSERT(sizeof(struct quantise_fp8_args) == 72, "host and device agree");

struct delayed_scale_kernel_args {
    int64_t m, n; /* n: a struct fp8_kernel_scale and the history */
    float *rows;
    float largest[3]; /* of rows 0, 1, 2, and so on in turn */
    int32_t pad;
};
SOL_STATIC_ASSERT(sizeof(struct delayed_scale_kernel_args) == 40, "host and device agree");

#endif
