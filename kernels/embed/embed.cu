/* A thread an element of a token's row of the table, decoded. */
#include "common.cuh"
#include "embed/embed_args.h"

KERNEL_OF(256, embed_any, embed_kernel_args)
{
    wait_for_input();
    let_next_start();
    int64_t token = a.token[blockIdx.x], j = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    const char *row = (const char *)a.table + token * weight_row_bytes(a.type, a.n);
    if (j >= a.n) return;
    a.x[blockIdx.x * a.n + j] = a.type >= WEIGHT_MXFP4_TILES
                                    ? tiled_weight_at(a.type, a.table, a.scales, a.n, token, j)
                                    : weight_at(a.type, row, j);
}
