/* SwiGLU of halves by itself: what `sol gemm bench --gated` puts behind a library's products, which
 * cannot apply it. No op has it: float32 is what goes between sol's kernels. */
#include "common.cuh"
#include "swiglu/swiglu_f16_args.h"
#include "swiglu/swiglu_near.cuh"

__device__ static uint32_t of_pair(uint32_t gate, uint32_t up, float alpha, float limit)
{
    float low = swiglu_near(f16_to_f32((uint16_t)gate), f16_to_f32((uint16_t)up), alpha, limit);
    float high = swiglu_near(f16_to_f32((uint16_t)(gate >> 16)), f16_to_f32((uint16_t)(up >> 16)), alpha, limit);
    return f32_to_f16x2(low, high);
}

KERNEL_OF(SWIGLU_F16_THREADS, swiglu_f16, swiglu_f16_args)
{
    wait_for_input();
    let_next_start();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.units) return;
    uint4 gate = ((const uint4 *)a.gate)[i], up = ((const uint4 *)a.up)[i];
    gate.x = of_pair(gate.x, up.x, a.alpha, a.limit);
    gate.y = of_pair(gate.y, up.y, a.alpha, a.limit);
    gate.z = of_pair(gate.z, up.z, a.alpha, a.limit);
    gate.w = of_pair(gate.w, up.w, a.alpha, a.limit);
    ((uint4 *)a.gate)[i] = gate;
}
