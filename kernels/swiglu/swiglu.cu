#include "common.cuh"
#include "swiglu/swiglu_args.h"

/* fminf and fmaxf drop a NaN; the definition of the op clamps it too, but a product must keep it:
 * the comparison below is false for NaN. */
KERNEL_OF(256, swiglu_f32, swiglu_kernel_args)
{
    wait_for_input();
    let_next_start();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count) return;
    float g = a.gate[i], u = a.up[i];
    g = g > a.limit ? a.limit : g;
    u = u > a.limit ? a.limit : u < -a.limit ? -a.limit : u;
    a.gate[i] = g / (1 + expf(-a.alpha * g)) * (u + 1);
}
