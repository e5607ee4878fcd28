/* What the host's sides of kernels share that read rows in float32 or bf16 (kernels/typed.cuh). */
#ifndef OPS_CUDA_TYPED_CUDA_H
#define OPS_CUDA_TYPED_CUDA_H

#include <stdio.h>

#include "gpu/kernel.h"
#include "ops/op.h"

/* A kernel's functions: for float32 and bf16 each, one that reads numbers one by one, and one that
 * reads eight. */
struct typed_names {
    const char *of[2][2];
};
#define TYPED_NAMES(name)                                                                          \
    {                                                                                              \
        {                                                                                          \
            {name "_f32_x1", name "_f32_x8"}, {name "_bf16_x1", name "_bf16_x8"},                  \
        }                                                                                          \
    }

static inline bool typed_refuse(char why[OP_REASON_MAX], const char *reason)
{
    snprintf(why, OP_REASON_MAX, "%s", reason);
    return false;
}

static inline bool typed_narrow(const struct matrix *m)
{
    return m->dtype == DTYPE_BF16;
}

/* NULL counts as aligned. */
static inline bool typed_aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

static inline int64_t typed_pieces(int64_t count, int64_t of)
{
    return (count + of - 1) / of;
}

/* Threads of a block for so many pieces of a row. */
static inline unsigned typed_threads(int64_t pieces, unsigned most)
{
    const unsigned whole = (unsigned)(pieces < most ? pieces + 31 : most) / 32 * 32;
    return whole ? whole : 32;
}

/* Adds up partial sums: map_args.h. */
struct finish_kernel_args;
void typed_finish(const struct op_context *context, const struct finish_kernel_args *args,
                  int64_t columns);
/* Adds up parts of matrices: map_args.h. */
struct parts_kernel_args;
void typed_add_parts(const struct op_context *context, const struct parts_kernel_args *args);
#define TYPED_FINISH_IMAGE "train/sums.cu"

/* Blocks that each leave a partial sum, for `threads` of `of` numbers each. */
unsigned typed_sum_blocks(int64_t count, int64_t of);

#endif
