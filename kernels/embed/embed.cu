/* A block a row: the token's row of the table, decoded. */
#include "common.cuh"
#include "embed/embed_args.h"

KERNEL_OF(256, embed_any, embed_kernel_args)
{
    wait_for_input();
    let_next_start();
    const char *row = (const char *)a.table +
                      a.token[blockIdx.x] * weight_row_bytes(a.type, a.n);
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x)
        a.x[blockIdx.x * a.n + j] = weight_at(a.type, row, j);
}
