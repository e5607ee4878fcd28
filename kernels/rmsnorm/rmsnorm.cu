/* A block a row. Rows of a few thousand values stay in the cache between the two passes. */
#include "common.cuh"
#include "rmsnorm/rmsnorm_args.h"

KERNEL_OF(RMSNORM_THREADS, rmsnorm_f32, rmsnorm_kernel_args)
{
    __shared__ float scratch[WARP];
    wait_for_input();
    let_next_start();
    int64_t row = a.rows ? a.rows[blockIdx.x] : (int64_t)blockIdx.x;
    const float *x = a.x + row * a.n;
    float *y = a.y + blockIdx.x * a.n;
    float sum = 0;
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) sum += x[j] * x[j];
    sum = block_sum(sum, scratch);
    /* An overflowing square of finite values is taken in double, as the reference has it. */
    float scale = 1 / sqrtf(sum / (float)a.n + a.eps);
    if (isinf(sum)) {
        double wide = 0;
        for (int64_t j = 0; j < a.n; j++) wide += (double)x[j] * x[j];
        scale = (float)(1 / sqrt(wide / (double)a.n + a.eps));
    }
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) y[j] = x[j] * scale * a.gain[j];
}
