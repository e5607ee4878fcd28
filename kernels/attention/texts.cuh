/* Which rows of a step go on by themselves: texts that grow by a token, beside prompts. attention_decode takes these,
 * attention_prefill or attention_mma the others; all of them find out for themselves which are whose. */
#ifndef KERNELS_ATTENTION_TEXTS_CUH
#define KERNELS_ATTENTION_TEXTS_CUH

#include "common.cuh"

/* Where neighbouring rows are neighbouring positions of a sequence they are a run. */
__device__ inline bool begins_run(const int32_t *sequence, const int32_t *position, int i)
{
    return i == 0 || sequence[i] != sequence[i - 1] || position[i] != position[i - 1] + 1;
}

/* A run of one row, of `m` in all. */
__device__ inline bool is_text(const int32_t *sequence, const int32_t *position, int m, int i)
{
    return begins_run(sequence, position, i) && (i + 1 == m || begins_run(sequence, position, i + 1));
}

/* The sum of what this thread and those before it have. By all threads of WARPS warps; `warps` then holds the sum of
 * each. */
template <int WARPS> __device__ inline int sum_up_to(int own, int (&warps)[WARPS])
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, sum = own;
    for (int step = 1; step < WARP; step *= 2) {
        int other = __shfl_up_sync(FULL_MASK, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == WARP - 1) warps[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++) sum += warps[w];
    return sum;
}

#endif
