/* What the kernels of attention over many rows share: how the work is cut among the blocks of
 * attention_prefill or attention_mma, a row's softmax, and how parts of tiles are kept
 * (attention_prefill.cu). */
#ifndef KERNELS_ATTENTION_PREFILL_WORK_CUH
#define KERNELS_ATTENTION_PREFILL_WORK_CUH

#include "attention/attention_prefill_args.h"
#include "common.cuh"

enum {
    GROUP = 128,    /* threads of a warpgroup, or of what stands for one */
    GROUP_ROWS = 8, /* rows of the batch that it has: two a warp */
    SNAP_STEPS = 4, /* tiles of so few steps are not cut */
    LEAST_WORK = 2, /* steps of a block */
    TILE_WORK = 2,  /* what a tile costs beside its steps, in steps */
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

/* Steps [low, high) of a tile for one key head. */
struct prefill_piece {
    int32_t row, count, sequence, position, begin;
    int32_t low, high, head;
    int32_t slot; /* where its part goes; -1: it is the whole tile */
};

/* Hands the block's pieces out: whole tiles first, in step with the other blocks, so that they read
 * the same part of the cache at a time; then what remains of its first and of its last tile. */
struct piece_source {
    prefill_cuts cuts;
    int64_t from, to, at; /* units; `at` is where the next tile begins */
    int32_t head, tile;
    int32_t n_held, handed;

    __device__ inline void start(const attention_prefill_args &a)
    {
        cuts.start(a);
        bool works = blockIdx.x < cuts.blocks;
        from = works ? cuts.cut(blockIdx.x) : cuts.all;
        to = works ? cuts.cut(blockIdx.x + 1) : cuts.all;
        n_held = handed = 0;
        head = from < to ? (int32_t)(from / cuts.work) : 0;
        tile = from < to ? find_tile(a, cuts, (int32_t)(from - (int64_t)head * cuts.work)) : 0;
        at = from < to ? (int64_t)head * cuts.work + a.tiles[tile].start : to;
    }

    __device__ inline bool next(const attention_prefill_args &a, prefill_piece held[2],
                                prefill_piece &p)
    {
        while (at < to) {
            prefill_tile t = a.tiles[tile];
            int64_t base = at + TILE_WORK; /* of step 0 */
            p = {t.row, t.count, t.sequence, t.position, t.begin, 0, t.steps, head, -1};
            bool mine = at >= from;
            at += t.steps + TILE_WORK;
            if (++tile == cuts.tiles) tile = 0, head++;
            if (is_short(t)) {
                if (mine) return true;
                continue;
            }
            p.low = (int32_t)max((int64_t)0, min((int64_t)t.steps, from - base));
            p.high = (int32_t)max((int64_t)0, min((int64_t)t.steps, to - base));
            if (p.low >= p.high) continue;
            if (p.high - p.low == t.steps) return true;
            p.slot = 2 * blockIdx.x + (p.low == 0);
            held[n_held++] = p;
        }
        if (handed == n_held) return false;
        p = held[handed++];
        return true;
    }
};

/* ---- softmax ---- */

/* Of a thread's two rows, which are two neighbouring rows of the batch with one head: lanes of a quad
 * share them. */
struct softmax_rows {
    float top[2];   /* the reference, or NOTHING */
    float total[2]; /* of this lane's positions */
    int32_t end[2]; /* positions that the rows see, from end - window or 0 */
};

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

/* What queries and weights are rounded to. LIMIT: how far, in powers of two, a score may exceed the
 * reference. */
template <int TYPE> struct prefill_number;
template <> struct prefill_number<DTYPE_F16> {
    static constexpr float LIMIT = 15;     /* 2^15 has room below the largest f16 */
    static constexpr float LEAST = -1e30f; /* references of rows with small scores; here any */
    __device__ static inline uint32_t pair(float low, float high) { return f32_to_f16x2(low, high); }
};
template <> struct prefill_number<DTYPE_BF16> {
    static constexpr float LIMIT = 60;  /* so that sums of values up to 2^50 stay finite */
    static constexpr float LEAST = -60; /* with LIMIT not below 0, where the comparison is exact */
    __device__ static inline uint32_t pair(float low, float high) { return f32_to_bf16x2(low, high); }
};

__device__ inline int first_seen(int end, int window)
{
    return window ? max(end - window, 0) : 0;
}

/* What lies outside a row's positions weighs nothing. `s`: scores of a lane, of 8 positions from `base`
 * on, then of the next 8: {row 0, row 1} x {2 t, 2 t + 1}, t = lane % 4. */
template <int SCORES>
__device__ inline void mask_scores(const softmax_rows &r, float (&s)[SCORES], int base, int window)
{
    int column = base + threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int begin = first_seen(r.end[h], window);
        uint32_t offset = (uint32_t)(column - begin), count = (uint32_t)(r.end[h] - begin);
#pragma unroll
        for (int i = 0; i < SCORES; i += 4)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (offset + 2 * i + e >= count) s[i + 2 * h + e] = -INFINITY;
    }
}

/* Whether a score of the warp exceeds its row's by too much. Compared as integers, positive floats are in
 * their order and above the negative ones. */
template <int TYPE, int SCORES>
__device__ inline bool exceeds_reference(const softmax_rows &r, const float (&s)[SCORES])
{
    const float limit = prefill_number<TYPE>::LIMIT;
    int highest[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < SCORES; i += 4)
#pragma unroll
        for (int h = 0; h < 2; h++)
            highest[h] = __vimax3_s32(highest[h], __float_as_int(s[i + 2 * h]),
                                      __float_as_int(s[i + 2 * h + 1]));
    return __any_sync(FULL_MASK, __int_as_float(highest[0]) > r.top[0] + limit ||
                                     __int_as_float(highest[1]) > r.top[1] + limit);
}

/* A reference for rows that have none, or a score too far above it. */
template <int TYPE, int SCORES>
__device__ inline void renew_reference(softmax_rows &r, const float (&s)[SCORES], float scale[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = NOTHING;
#pragma unroll
        for (int i = 0; i < SCORES; i += 4) top = fmaxf(top, fmaxf(s[i + 2 * h], s[i + 2 * h + 1]));
        top = quad_max(top);
        top = top > r.top[h] + prefill_number<TYPE>::LIMIT ? fmaxf(ceilf(top), prefill_number<TYPE>::LEAST) : r.top[h];
        scale[h] = exp2_unit(r.top[h] - top);
        r.top[h] = top;
        r.total[h] *= scale[h];
    }
}

/* ---- results ---- */

/* Two neighbours of the result, number `at` and the next. */
__device__ inline void write_two(const attention_prefill_args &a, int64_t at, float low, float high)
{
    if (a.narrow)
        ((uint32_t *)a.out)[at / 2] = f32_to_bf16x2(low, high);
    else
        ((float2 *)a.out)[at / 2] = make_float2(low, high);
}

/* Writes the warp's `count` rows, two at most, with eight heads; totals are those of whole rows here. The
 * bits of the result say which of this lane's two are not finite. */
__device__ inline uint32_t write_rows(const attention_prefill_args &a, int row, int count, int kv_head,
                                  const softmax_rows &r, const float (&o)[SUMS])
{
    int lane = threadIdx.x % WARP, head = kv_head * PREFILL_HEADS + lane / 4;
    float sink = a.sinks ? a.sinks[head] * LOG2_E : -INFINITY;
    uint32_t bad = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h >= count) continue;
        float share = 1 / (r.total[h] + exp2_unit(sink - r.top[h])), sum = 0;
        int64_t at = ((int64_t)(row + h) * a.n_heads + head) * PREFILL_DIM + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < SUMS / 4; i++) {
            float low = o[4 * i + 2 * h] * share, high = o[4 * i + 2 * h + 1] * share;
            write_two(a, at + 8 * i, low, high);
            sum += fabsf(low) + fabsf(high);
        }
        if (!(quad_sum(sum) <= 3e38f)) bad |= 1u << h;
    }
    return bad;
}

/* For attention_prefill_finish. */
__device__ inline void list_again(const attention_prefill_args &a, const prefill_piece &p, int first,
                                  uint32_t bad)
{
    int lane = threadIdx.x % WARP, head = p.head * PREFILL_HEADS + lane / 4;
    if (lane % 4) return;
    for (int h = 0; h < 2; h++)
        if (bad >> h & 1)
            a.again[atomicAdd(a.totals + 2, 1)] = (p.row + first + h) * a.n_heads + head;
}

/* Of the tile's `groups`. */
__device__ inline float *part_at(const attention_prefill_args &a, int slot, int group, int groups)
{
    return a.partial + ((int64_t)slot * groups + group) * PREFILL_PART + threadIdx.x % GROUP;
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
