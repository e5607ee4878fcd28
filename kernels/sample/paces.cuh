/* Who may be chosen from a row of logits, and the first of warps and blocks. */
#pragma once

#include "common.cuh"
#include "noise.cuh"
#include "sample/sample_args.h"

enum { WARPS = SAMPLE_THREADS / WARP, NOBODY = 0x7fffffff };

/* More than float32 may be wrong by where a pace can be the first. */
__device__ constexpr float CLOSE = 1e-3f;

/* A row of logits, and what of it may be chosen: with `allowed` the tokens whose bits are set, else the others. */
struct candidates {
    const float *logits;
    const uint32_t *bits; /* NULL: all */
    bool allowed;
};

__device__ inline candidates candidates_of(const sample_kernel_args &a)
{
    const float *logits = a.logits + blockIdx.y * a.vocab;
    const int32_t list = a.lists ? a.draws[blockIdx.y].list : -1;
    if (list < 0) return {logits, a.banned, false};
    return {logits, a.lists + list * ((a.vocab + 31) / 32), true};
}

/* -infinity where nothing may be chosen. */
__device__ inline float logit_at(const sample_kernel_args &a, const candidates &c, uint32_t id)
{
    if (id >= a.vocab) return -INFINITY;
    float value = c.logits[id];
    bool banned = c.bits && (c.bits[id / 32] >> id % 32 & 1) != c.allowed;
    return banned || isnan(value) ? -INFINITY : value;
}

/* ---- of warps and blocks ---- */

template <class T>
struct entrant {
    T value;
    int32_t id;
};

template <class T>
__device__ inline entrant<T> larger(const entrant<T> &a, const entrant<T> &b)
{
    return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

/* To all of the warp. */
template <class T>
__device__ inline entrant<T> warp_largest(entrant<T> mine)
{
    for (int step = WARP / 2; step; step /= 2)
        mine = larger(mine, {__shfl_xor_sync(FULL_MASK, mine.value, step), __shfl_xor_sync(FULL_MASK, mine.id, step)});
    return mine;
}

/* To all of the block; once a kernel and type. */
template <class T>
__device__ inline entrant<T> block_largest(entrant<T> mine)
{
    __shared__ entrant<T> of[WARPS];
    mine = warp_largest(mine);
    if (threadIdx.x % WARP == 0) of[threadIdx.x / WARP] = mine;
    __syncthreads();
    return warp_largest(of[threadIdx.x % WARPS]);
}

/* To all of the block; once a kernel. */
__device__ inline float block_max(float mine)
{
    __shared__ float of[WARPS];
    mine = warp_max(mine);
    if (threadIdx.x % WARP == 0) of[threadIdx.x / WARP] = mine;
    __syncthreads();
    return warp_max(of[threadIdx.x % WARPS]);
}

__device__ inline float block_sum(float mine)
{
    __shared__ float of[WARPS];
    mine = warp_sum(mine);
    if (threadIdx.x % WARP == 0) of[threadIdx.x / WARP] = mine;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < WARPS; w++) sum += of[w];
    return sum;
}

/* ---- paces ---- */

/* Draws whose races come when the row's largest is known: with a min_p, and where float32 does not hold the product of
 * a logit with the inverse temperature. */
__device__ inline bool takes_row_largest(const sample_kernel_draw &draw)
{
    return draw.min_p > 0 || draw.inverse_temperature >= 1e6;
}

/* The logarithm of a pace beside `max`. Once in the code, which a step finds in no cache. */
__device__ __noinline__ double pace_of(const sample_kernel_draw &draw, float max, float value, uint64_t id)
{
    const double weight = ((double)value - max) * draw.inverse_temperature;
    return draw.key ? weight - log(-log1p(-noise_of(draw.key, id))) : weight;
}

/* The same in float32 of the weight's logarithm. */
__device__ __noinline__ float rough_pace_of(uint64_t key, float weight, uint64_t id)
{
    if (!key) return weight;
    const double v = noise_of(key, id);
    return weight - logf(v < 0.5 ? -log1pf(-(float)v) : -logf((float)(1 - v)));
}

/* An upper bound: v < -log(1 - v). */
__device__ inline float most_pace_of(uint64_t key, float weight, uint64_t id)
{
    return key ? weight - 0.693147181f * __log2f(noise_below(key, id)) : weight;
}
