/* A block a row; a thread turns pairs (d, d + head_dim / 2). The angle is taken in double: float32
 * would lose it at positions of a hundred thousand. */
#include "rope/rope.cuh"
#include "rope/rope_args.h"
#include "typed.cuh"

template <class T> INLINE void rotate_row(const rope_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    uint32_t half = (uint32_t)a.head_dim / 2;
    T *row = (T *)a.x + blockIdx.x * a.n_heads * a.head_dim;
    double position = a.position[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < half * a.n_heads; i += blockDim.x) {
        uint32_t d = i % half;
        T *pair = row + i / half * a.head_dim + d;
        numbers<T, 1> x, y;
        x.load(pair), y.load(pair + half);
        float low = x.at(0), high = y.at(0);
        rotation turned;
        turned.set(position, a.inv_freq[d], a.scale);
        turned.turn(low, high);
        put<1>(pair, &low), put<1>(pair + half, &high);
    }
}

KERNEL_OF(ROPE_THREADS, rope_f32, rope_kernel_args) { rotate_row<float>(a); }
KERNEL_OF(ROPE_THREADS, rope_bf16, rope_kernel_args) { rotate_row<bf16>(a); }
