/* A thread an element of a token's row of the table, decoded. */
#include "embed/embed_args.h"
#include "weights.cuh"

KERNEL_OF(EMBED_THREADS, embed_any, embed_kernel_args)
{
    wait_for_input();
    let_next_start();
    int64_t token = a.token[blockIdx.x], j = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (j >= a.n) return;
    float &x = a.x[blockIdx.x * a.n + j];
    if (TYPE_TILE_ROWS(a.type))
        x = tiled_weight_at(a.type, tiled_row_of(a.type, a.table, a.scales, a.n, token), j);
    else
        x = weight_at(a.type, (const char *)a.table + token * weight_row_bytes(a.type, a.n), j);
}
