/* What a symmetric product leaves out: each number behind a row's stretch is that of the other side
 * of the diagonal. */
#include "matmul/mirror_args.h"
#include "typed.cuh"

template <class T> struct alignas(2 * sizeof(T)) mirror_pair {
    T first, second;
};

/* Reads the tile on the other side and writes it transposed. */
template <class T> INLINE void mirror(const mirror_kernel_args &a)
{
    __shared__ T tile[MIRROR_TILE][MIRROR_TILE + 2];
    const int tiles = (int)((a.n + MIRROR_TILE - 1) / MIRROR_TILE);
    const int64_t row = blockIdx.x / tiles * MIRROR_TILE, col = blockIdx.x % tiles * MIRROR_TILE;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    T *data = (T *)a.data + blockIdx.y * a.n * a.n;
    wait_for_input();
    let_next_start();
    if (col < (row / a.stretch + 1) * a.stretch) return;
    for (int i = warp; i < MIRROR_TILE && col + i < a.n; i += MIRROR_THREADS / WARP)
        *(mirror_pair<T> *)&tile[i][2 * lane] =
            *(const mirror_pair<T> *)(data + (col + i) * a.n + row + 2 * lane);
    __syncthreads();
    for (int i = warp; i < MIRROR_TILE; i += MIRROR_THREADS / WARP)
        if (col + 2 * lane < a.n)
            *(mirror_pair<T> *)(data + (row + i) * a.n + col + 2 * lane) = {tile[2 * lane][i],
                                                                            tile[2 * lane + 1][i]};
}

KERNEL_OF(MIRROR_THREADS, mirror_f32, mirror_kernel_args)
{
    mirror<float>(a);
}

KERNEL_OF(MIRROR_THREADS, mirror_bf16, mirror_kernel_args)
{
    mirror<uint16_t>(a);
}
