/* Arguments of the kernels of embed, shared by host and device. */
#ifndef KERNELS_EMBED_EMBED_ARGS_H
#define KERNELS_EMBED_EMBED_ARGS_H

#include "types.h"

enum { EMBED_THREADS = 256 }; /* of a block */

struct embed_kernel_args {
    int64_t n;            /* hidden size */
    const int32_t *token; /* [rows] */
    const void *table;    /* [vocab][n] of type */
    const void *scales;   /* of the table, where they lie apart */
    float *x;             /* [rows][n] */
    int32_t type, padding;
};
SOL_STATIC_ASSERT(sizeof(struct embed_kernel_args) == 48, "host and device agree");

#endif
