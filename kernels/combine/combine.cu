/* A block a row: the weighted sum of its experts' rows joins the residual. */
#include "combine/combine_args.h"
#include "common.cuh"

KERNEL_OF(256, combine_f32, combine_kernel_args)
{
    wait_for_input();
    let_next_start();
    int64_t i = blockIdx.x;
    for (int64_t d = threadIdx.x; d < a.n; d += blockDim.x) {
        float sum = a.x[i * a.n + d];
        for (int64_t j = i * a.top_k; j < (i + 1) * a.top_k; j++)
            sum += a.weight[j] * a.y[a.row_of_slot[j] * a.n + d];
        a.x[i * a.n + d] = sum;
    }
}
