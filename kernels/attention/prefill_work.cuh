/* What the kernels of attention over many rows share: how the work is cut among the blocks of
 * attention_prefill, a row's softmax, and how parts of tiles are kept (attention_prefill.cu). */
#ifndef KERNELS_ATTENTION_PREFILL_WORK_CUH
#define KERNELS_ATTENTION_PREFILL_WORK_CUH

#include "attention/attention_prefill_args.h"
#include "common.cuh"

enum {
    GROUP = 128,    /* threads of a warpgroup */
    SNAP_STEPS = 4, /* tiles of so few steps are not cut */
    LEAST_WORK = 2, /* steps of a block */
    SUMS = 32,      /* of a thread: 2 rows, 16 dimensions each */
};

#define LOG2_E  1.44269504f
#define NOTHING (-1e30f) /* as reference: no position was visible so far */

/* ---- work ---- */

/* All tiles in a row, for one key head after the other, are `all` units of work, and block i has
 * those from cut(i) to cut(i + 1). */
struct prefill_cuts {
    int64_t all;
    int32_t tiles, work;

    int32_t blocks; /* that have work: each at least LEAST_WORK */

    __device__ inline void start(const attention_prefill_args &a)
    {
        tiles = a.totals[0];
        work = a.totals[1];
        all = (int64_t)work * a.cache.n_kv_heads;
        blocks = (int32_t)max((int64_t)1, min((int64_t)a.blocks, all / LEAST_WORK));
    }
    __device__ inline int64_t cut(int64_t block) const { return block * all / blocks; }
    __device__ inline int32_t block_of(int64_t unit) const
    {
        return (int32_t)(((unit + 1) * blocks - 1) / all);
    }
};

/* The last tile that begins at or before `unit`, found by a whole warp. */
__device__ inline int find_tile(const attention_prefill_args &a, const prefill_cuts &c, int unit)
{
    int low = 0, count = c.tiles, lane = threadIdx.x % WARP;
    while (count > 1) {
        int step = (count + WARP - 1) / WARP, at = low + lane * step;
        bool good = lane * step < count && a.tiles[at].start <= unit;
        int last = __popc(__ballot_sync(FULL_MASK, good)) - 1;
        low += last * step;
        count = min(step, count - last * step);
    }
    return low;
}

/* Tiles of few steps go whole to the block that has their first unit. */
__device__ inline bool is_short(const prefill_tile &t)
{
    return t.steps <= SNAP_STEPS;
}

/* ---- softmax ---- */

/* Of a thread's two rows, which are two neighbouring rows of the batch with one head: lanes of a quad
 * share them. */
struct softmax_rows {
    float top[2];   /* the reference, or NOTHING */
    float total[2]; /* of this lane's positions */
    int32_t end[2]; /* positions that the rows see, from end - window or 0 */
};

__device__ inline float exp2_unit(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 2));
}

__device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(FULL_MASK, x, 1);
    return x + __shfl_xor_sync(FULL_MASK, x, 2);
}

/* ---- results ---- */

/* Writes the warp's `count` rows, two at most, with eight heads; totals are those of whole rows here. The
 * bits of the result say which of this lane's two are not finite. */
__device__ inline uint32_t write_rows(const attention_prefill_args &a, int row, int count, int kv_head,
                                  const softmax_rows &r, const float (&o)[SUMS])
{
    int lane = threadIdx.x % WARP, head = kv_head * PREFILL_HEADS + lane / 4;
    float sink = a.sinks[head] * LOG2_E;
    uint32_t bad = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h >= count) continue;
        float share = 1 / (r.total[h] + exp2_unit(sink - r.top[h])), sum = 0;
        int64_t at = (int64_t)(row + h) * a.n_heads + head;
        float *out = a.out + at * PREFILL_DIM + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < SUMS / 4; i++) {
            float low = o[4 * i + 2 * h] * share, high = o[4 * i + 2 * h + 1] * share;
            *(float2 *)(out + 8 * i) = make_float2(low, high);
            sum += fabsf(low) + fabsf(high);
        }
        if (!(quad_sum(sum) <= 3e38f)) bad |= 1u << h;
    }
    return bad;
}

__device__ inline float *part_at(const attention_prefill_args &a, int slot, int group)
{
    return a.partial + ((int64_t)slot * PREFILL_GROUPS + group) * PREFILL_PART + threadIdx.x % GROUP;
}

__device__ inline void write_part(float *to, const softmax_rows &r, const float (&o)[SUMS])
{
#pragma unroll
    for (int i = 0; i < SUMS; i++) to[i * GROUP] = o[i];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        to[(SUMS + h) * GROUP] = r.top[h];
        to[(SUMS + 2 + h) * GROUP] = r.total[h];
    }
}

__device__ inline void add_part(const float *from, softmax_rows &r, float (&o)[SUMS])
{
    float old[2], add[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float there = from[(SUMS + h) * GROUP], top = fmaxf(there, r.top[h]);
        old[h] = exp2_unit(r.top[h] - top);
        add[h] = exp2_unit(there - top);
        r.top[h] = top;
        r.total[h] = r.total[h] * old[h] + from[(SUMS + 2 + h) * GROUP] * add[h];
    }
#pragma unroll
    for (int i = 0; i < SUMS; i++) o[i] = o[i] * old[i / 2 % 2] + from[i * GROUP] * add[i / 2 % 2];
}

#endif
