#include "common.cuh"
#include "swiglu/silu_mul_args.h"

KERNEL_OF(SILU_MUL_THREADS, silu_mul_f32, silu_mul_kernel_args)
{
    wait_for_input();
    let_next_start();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) a.gate[i] = a.gate[i] / (1 + expf(-a.gate[i])) * a.up[i];
}
