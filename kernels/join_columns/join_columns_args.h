/* Arguments of the kernel of join_columns, shared by host and device. */
#ifndef KERNELS_JOIN_COLUMNS_JOIN_COLUMNS_ARGS_H
#define KERNELS_JOIN_COLUMNS_JOIN_COLUMNS_ARGS_H

#include "types.h"

enum { JOIN_COLUMNS_THREADS = 256, JOIN_COLUMNS_EACH = 4 }; /* of a block; numbers of a thread */

struct join_columns_kernel_args {
    int64_t m, n, part;
    const float *x; /* [ranks * m][part] */
    float *y;       /* [m][n] */
};
SOL_STATIC_ASSERT(sizeof(struct join_columns_kernel_args) == 40, "host and device agree");

#endif
