/* Sizes of the kernels of self_attention_mma.cu and self_attention_backward_mma.cu, shared by host
 * and device; their arguments are those of self_attention_any.cu. */
#ifndef KERNELS_SELF_ATTENTION_SELF_ATTENTION_MMA_ARGS_H
#define KERNELS_SELF_ATTENTION_SELF_ATTENTION_MMA_ARGS_H

#include "self_attention/self_attention_any_args.h"

enum {
    SELF_MMA_ROWS = 128, /* queries of a block, forward */
    SELF_MMA_BACK = 64,  /* queries or keys of a block, backward */
    SELF_MMA_THREADS = 128,
    SELF_MMA_DELTA_THREADS = 256,
};
/* Rows of a step: what registers have room for beside the sums. */
#define SELF_MMA_STEP(dim) ((dim) == 128 ? 32 : 64)
/* The block's 128 rows, of one matrix or of two, and two stages of two matrices: 64 KiB at most, so
 * that two blocks share an SM that has 164. */
#define SELF_MMA_SHARED(dim) ((128 + 4 * SELF_MMA_STEP(dim)) * (dim)*2)

#endif
