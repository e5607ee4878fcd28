/* Products of grouped rows, and gradients of groups' weights, of any sizes and types in float32, on
 * any card. */
#include "matmul/any_tiles.cuh"
#include "matmul/group_tiles.cuh"
#include "matmul/grouped_args.h"

KERNEL_OF(THREADS, grouped_matmul_any, grouped_matmul_kernel_args)
{
    wait_for_input();
    let_next_start();
    group_tile tile;
    if (!find_group_tile(a.group_offsets, a.groups, TILE, (int)(blockIdx.x / a.tiles), tile))
        return;
    const int64_t first_column = (int64_t)(blockIdx.x % a.tiles) * TILE;
    const bool a_bf16 = a.bf16 & MATMUL_A, b_bf16 = a.bf16 & MATMUL_B, bf16 = a.bf16 & MATMUL_OUT;
    const any_side x = {
        any_from(a.a, tile.begin * a.k, a_bf16), tile.rows, a.k, tile.first, a_bf16, true};
    const any_side y = {any_from(a.b, tile.group * a.n * a.k, b_bf16),
                        a.n,
                        a.k,
                        first_column,
                        b_bf16,
                        a.transpose != 0};
    void *out = any_from(a.out, tile.begin * a.n, bf16);
    const any_result r = {tile.rows, a.n, tile.first,          first_column, out,
                          out,       1,   a.add ? 1.0f : 0.0f, bf16,         bf16};
    float sums[MINE][MINE];
    any_multiply(x, y, sums);
    any_store(r, sums);
}

/* blockIdx.y: the group. */
KERNEL_OF(THREADS, grouped_wgrad_any, grouped_matmul_kernel_args)
{
    wait_for_input();
    let_next_start();
    const int64_t begin = a.group_offsets[blockIdx.y],
                  rows = a.group_offsets[blockIdx.y + 1] - begin;
    if (rows == 0) return;
    const int64_t first_row = (int64_t)(blockIdx.x / a.tiles) * TILE;
    const int64_t first_column = (int64_t)(blockIdx.x % a.tiles) * TILE;
    const bool a_bf16 = a.bf16 & MATMUL_A, b_bf16 = a.bf16 & MATMUL_B;
    const any_side x = {any_from(a.a, begin * a.n, a_bf16), a.n, rows, first_row, a_bf16, false};
    const any_side y = {any_from(a.b, begin * a.k, b_bf16), a.k, rows, first_column, b_bf16, false};
    float *out = (float *)a.out + blockIdx.y * a.n * a.k;
    const any_result r = {a.n, a.k, first_row, first_column, out, out, 1, 1, false, false};
    float sums[MINE][MINE];
    any_multiply(x, y, sums);
    any_store(r, sums);
}
