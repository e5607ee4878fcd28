#include "common.cuh"
#include "swiglu/swiglu.cuh"
#include "swiglu/swiglu_args.h"

KERNEL_OF(SWIGLU_THREADS, swiglu_f32, swiglu_kernel_args)
{
    wait_for_input();
    let_next_start();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) a.gate[i] = swiglu(a.gate[i], a.up[i], a.alpha, a.limit);
}
