/* Arguments of the kernels of mirror.cu, shared by host and device. */
#ifndef KERNELS_MATMUL_MIRROR_ARGS_H
#define KERNELS_MATMUL_MIRROR_ARGS_H

#include "types.h"

/* A block: a tile of one matrix, a warp 8 rows of it, a thread two numbers of each. */
enum { MIRROR_TILE = 64, MIRROR_THREADS = 256, MIRROR_PRODUCTS_MAX = 65535 };

/* Square matrices one behind the other, whose rows are whole in stretches up to the diagonal: of
 * row i the numbers left of (i / stretch + 1) * stretch. */
struct mirror_kernel_args {
    int64_t n;       /* rows and columns of a matrix, even */
    int64_t stretch; /* a multiple of MIRROR_TILE */
    void *data;      /* [matrices][n][n], pairs aligned */
};
SOL_STATIC_ASSERT(sizeof(struct mirror_kernel_args) == 24, "host and device agree");

#endif
