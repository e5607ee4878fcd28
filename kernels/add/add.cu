#include "add/add_args.h"
#include "common.cuh"

KERNEL_OF(ADD_THREADS, add_f32, add_kernel_args)
{
    wait_for_input();
    let_next_start();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) a.x[i] += a.y[i];
}
