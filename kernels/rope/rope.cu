/* A block a row; a thread turns pairs (d, d + head_dim / 2). The angle is taken in double: float32
 * would lose it at positions of a hundred thousand. */
#include "common.cuh"
#include "rope/rope.cuh"
#include "rope/rope_args.h"

KERNEL_OF(ROPE_THREADS, rope_f32, rope_kernel_args)
{
    wait_for_input();
    let_next_start();
    uint32_t half = (uint32_t)a.head_dim / 2;
    float *row = a.x + blockIdx.x * a.n_heads * a.head_dim;
    double position = a.position[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < half * a.n_heads; i += blockDim.x) {
        uint32_t d = i % half;
        float *low = row + i / half * a.head_dim + d, *high = low + half;
        rotation turned;
        turned.set(position, a.inv_freq[d], a.scale);
        turned.turn(*low, *high);
    }
}
