/* Run once, while a model is loaded. */
#include "common.cuh"
#include "pack/pack_args.h"

/* A thread a byte. */
KERNEL_OF(256, pack_mxfp4, pack_mxfp4_args)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.count * 17) return;
    int64_t block = i / 17, at = i % 17;
    if (at)
        a.nibbles[block * 16 + at - 1] = a.from[i];
    else
        a.scales[block] = a.from[i];
}
