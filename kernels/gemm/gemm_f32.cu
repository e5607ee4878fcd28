/* The product for every shape and weight format, in float32: a warp for a feature, up to ROWS rows at
 * once. What faster kernels do not serve. */
#include "gemm/gemm_args.h"
#include "gemm/groups.cuh"
#include "weights.cuh"

enum { ROWS = GEMM_ANY_ROWS, WARPS = GEMM_ANY_FEATURES };

/* One row and a few features, the router's: a block a feature, its threads along k. */
KERNEL_OF(WARPS *WARP, gemv_f32_any, gemm_kernel_args)
{
    __shared__ float scratch[WARP];
    wait_for_input();
    let_next_start();
    row_tile tile = find_tile(a.group_offsets, a.groups, a.m, blockIdx.y, 1);
    if (tile.count == 0) return;
    int64_t feature = blockIdx.x, w_row = tile.group * a.n + feature;
    const float *x = a.a + (a.a_rows ? a.a_rows[tile.first] : tile.first) * a.k;
    const char *w = (const char *)a.w + w_row * weight_row_bytes(a.type, a.k);
    float sum = 0;
#pragma unroll 1
    for (uint32_t j = threadIdx.x; j < a.k; j += WARPS * WARP) sum += weight_at(a.type, w, j) * x[j];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0)
        a.c[tile.first * a.n + feature] = sum + (a.bias ? a.bias[w_row] : 0);
}

KERNEL_OF(WARPS *WARP, gemm_f32_any, gemm_kernel_args)
{
    wait_for_input();
    let_next_start();
    int lane = threadIdx.x % WARP;
    int64_t feature = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    row_tile tile = find_tile(a.group_offsets, a.groups, a.m, blockIdx.y, ROWS);
    if (feature >= a.n || tile.count == 0) return;
    int64_t w_row = tile.group * a.n + feature;
    bool tiled = TYPE_TILE_ROWS(a.type) != 0;
    const char *w = (const char *)a.w + (tiled ? 0 : w_row * weight_row_bytes(a.type, a.k));
    tiled_row from = {};
    if (tiled) {
        int64_t rows = (int64_t)tile_count(a.type, a.n) * TYPE_TILE_ROWS(a.type);
        from = tiled_row_of(a.type, a.w, a.scales, a.k, tile.group * rows + feature);
    }
    const float *x[ROWS];
    float sum[ROWS] = {0};
    for (int r = 0; r < ROWS; r++) {
        int64_t row = tile.first + (r < tile.count ? r : 0);
        x[r] = a.a + (a.a_rows ? a.a_rows[row] : row) * a.k;
    }
    for (int64_t j = lane; j < a.k; j += WARP) {
        float value = tiled ? tiled_weight_at(a.type, from, j) : weight_at(a.type, w, j);
        for (int r = 0; r < ROWS; r++) sum[r] += value * x[r][j];
    }
    float bias = a.bias ? a.bias[tile.group * a.n + feature] : 0;
    for (int r = 0; r < ROWS; r++) {
        float all = warp_sum(sum[r]);
        if (lane == 0 && r < tile.count) a.c[(tile.first + r) * a.n + feature] = all + bias;
    }
}
