/* A row's race in one pass, where rows are many: a thread goes over its tokens once and knows of them the best bound of a
 * pace and the second best. Nobody waits for anybody before the end, where few have a pace to compute. Without shares and
 * ids. Of draws that take the row's largest that is found in the same way, and the race comes later. */
#pragma once

#include "sample/paces.cuh"

/* Of a thread four tokens at a time, of as many pieces as the block has. */
enum {
    PASS_FOURS = SAMPLE_EACH_MANY / 4, /* of a piece, which are on their way together */
    PASS_STEP = 4 * SAMPLE_THREADS,
};

__device__ inline uint32_t pass_column(const sample_kernel_args &a, int four)
{
    return (blockIdx.x * a.together * PASS_FOURS + four) * PASS_STEP + 4 * threadIdx.x;
}

/* Which of the four from `column` on may not be chosen; beyond the end all. */
__device__ inline uint32_t banned_of(const sample_kernel_args &a, const candidates &c, uint32_t column)
{
    if (column >= a.vocab) return 15;
    if (!c.bits) return 0;
    const uint32_t set = c.bits[column / 32] >> column % 32 & 15;
    return c.allowed ? set ^ 15 : set;
}

/* Thread 0 has the first of the block's pieces, to be like all of them or alone with what is there. */
__device__ inline void write_pieces(const sample_kernel_args &a, sample_piece piece, bool alike)
{
    const uint32_t own = blockIdx.x * a.together + threadIdx.x;
    if (threadIdx.x >= a.together || own >= a.pieces) return;
    if (threadIdx.x && !alike) piece = {-INFINITY, NOBODY, -INFINITY, NOBODY, 0};
    a.partial[blockIdx.y * a.pieces + own] = piece;
}

/* `see` gets each of the thread's tokens that may be chosen: its logit, or -infinity, and its column. */
template <class SEE> __device__ inline void pass_over(const sample_kernel_args &a, const candidates &c, const SEE &see)
{
    const uint32_t last = (uint32_t)a.vocab - 4;
#pragma unroll 1
    for (int first = 0; first < PASS_FOURS * a.together; first += PASS_FOURS) {
        float4 four[PASS_FOURS];
#pragma unroll
        for (int n = 0; n < PASS_FOURS; n++)
            four[n] = *(const float4 *)(c.logits + min(pass_column(a, first + n), last));
#pragma unroll
        for (int n = 0; n < PASS_FOURS; n++) {
            const uint32_t column = pass_column(a, first + n), banned = banned_of(a, c, column);
            float v[4] = {four[n].x, four[n].y, four[n].z, four[n].w};
            if (banned == 15) continue;
            if (banned)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (banned >> j & 1) v[j] = -INFINITY;
#pragma unroll
            for (int j = 0; j < 4; j++) see(v[j], column + j);
        }
    }
}

/* ---- the largest ---- */

/* Of a block's tokens, to all of its pieces. */
__device__ inline void largest_in_one_pass(const sample_kernel_args &a)
{
    const candidates c = candidates_of(a);
    entrant<float> largest{-INFINITY, NOBODY};
    pass_over(a, c, [&](float value, uint32_t column) {
        if (value > largest.value) largest = {value, (int32_t)column};
    });
    largest = block_largest(largest);
    write_pieces(a, {largest.value, largest.id, -INFINITY, NOBODY, 0}, true);
}

/* ---- the race ---- */

/* As noise_below, of bits that are known but for their last steps, and not yet divided by 2^32. */
__device__ inline float pass_noise(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    const uint32_t high = (uint32_t)(z >> 32);
    return (float)(high ^ high >> 31);
}

/* Bounds of paces, all of them too low by the same. */
__device__ constexpr float PASS_LOW = 32 * 0.693147181f;

struct pass {
    float best, second; /* NaN is passed over, but may be counted as a second one */
    uint32_t id;        /* of the best; the first of those that are alike */

    __device__ void see(float value, float scale, uint64_t z, uint32_t column)
    {
        const float pace = fmaf(value, scale, -0.693147181f * __log2f(pass_noise(z)));
        second = fmaxf(second, fminf(best, pace));
        if (pace > best) best = pace, id = column;
    }
};

__device__ inline pass bounds_in_one_pass(const sample_kernel_args &a, const candidates &c,
                                          const sample_kernel_draw &draw)
{
    const float scale = (float)draw.inverse_temperature;
    pass seen{-INFINITY, -INFINITY, NOBODY};
    pass_over(a, c, [&](float value, uint32_t column) {
        seen.see(value, scale, draw.key + (column + (uint64_t)1) * 0x9e3779b97f4a7c15u, column);
    });
    return seen;
}

/* All of a thread's tokens once more: those whose bound reaches `near`, or is none in float32. */
__device__ __noinline__ entrant<double> look_again(const sample_kernel_args &a, const candidates &c,
                                                   const sample_kernel_draw &draw, float near)
{
    const float scale = (float)draw.inverse_temperature;
    entrant<double> first{-INFINITY, NOBODY};
    for (int n = 0; n < 4 * PASS_FOURS * a.together; n++) {
        const uint32_t banned = banned_of(a, c, pass_column(a, n / 4)), column = pass_column(a, n / 4) + n % 4;
        if (banned == 15) n |= 3;
        if (banned >> n % 4 & 1) continue;
        const float value = c.logits[column];
        if (most_pace_of(draw.key, value * scale, column) >= near)
            first = larger(first, {pace_of(draw, 0, value, column), (int32_t)column});
    }
    return first;
}

/* The race of a block's tokens, to the first of its pieces. */
__device__ inline void race_in_one_pass(const sample_kernel_args &a, const sample_kernel_draw &draw)
{
    const candidates c = candidates_of(a);
    const pass seen = bounds_in_one_pass(a, c, draw);
    const float scale = (float)draw.inverse_temperature;
    float pace = -INFINITY; /* also of who is infinite: a logit or its product, a noise without bits, or nobody */
    if (!isinf(seen.best)) pace = rough_pace_of(draw.key, c.logits[seen.id] * scale, seen.id);
    /* What float32 may be wrong by is more where products with the scale are large. */
    const float top = warp_max(pace), near = top - CLOSE - 0x1p-21f * (fabsf(top) + 64);
    entrant<double> first{-INFINITY, NOBODY};
    if (seen.second + PASS_LOW >= near)
        first = look_again(a, c, draw, near);
    else if (seen.best + PASS_LOW >= near)
        first = {pace_of(draw, 0, c.logits[seen.id], seen.id), (int32_t)seen.id};
    first = block_largest(first);
    sample_piece piece{-INFINITY, NOBODY, -INFINITY, NOBODY, 0};
    if (threadIdx.x == 0 && first.id != NOBODY) {
        piece.max = c.logits[first.id], piece.id = piece.first = first.id;
        piece.lead = pace_of(draw, piece.max, piece.max, first.id);
    }
    write_pieces(a, piece, false);
}
