/* A row of blocks in y; a thread has numbers that lie a block apart, so that a warp's are one stretch. */
#include "common.cuh"
#include "join_columns/join_columns_args.h"

KERNEL_OF(JOIN_COLUMNS_THREADS, join_columns_f32, join_columns_kernel_args)
{
    wait_for_input();
    let_next_start();
    const int64_t row = blockIdx.y;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x * JOIN_COLUMNS_EACH + threadIdx.x;
#pragma unroll
    for (int k = 0; k < JOIN_COLUMNS_EACH; k++) {
        const int64_t i = first + k * (int64_t)blockDim.x;
        if (i >= a.n) return;
        const int64_t rank = i / a.part;
        a.y[row * a.n + i] = a.x[(rank * a.m + row) * a.part + (i - rank * a.part)];
    }
}
