/* A token from its row of logits: what is known of its pieces, of some draws in two passes, and the draw.
 * blockIdx.y is the row. */
#include "common.cuh"
#include "sample/sample_args.h"

enum { WARPS = SAMPLE_THREADS / WARP };

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

__device__ inline void take_larger(float &max, int32_t &id, float other_max, int32_t other_id)
{
    if (other_max > max || (other_max == max && other_id < id)) max = other_max, id = other_id;
}

/* Of a warp, to all of it. */
__device__ inline void warp_argmax(float &max, int32_t &id)
{
    for (int step = WARP / 2; step; step /= 2)
        take_larger(max, id, __shfl_xor_sync(FULL_MASK, max, step),
                    __shfl_xor_sync(FULL_MASK, id, step));
}

__device__ inline double warp_sum_f64(double value)
{
    for (int step = WARP / 2; step; step /= 2) value += __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

/* A row's draw. `greedy`: the largest is taken, and weights, if they are wanted, are those of temperature 1. */
struct row_draw : sample_kernel_draw {
    bool greedy;
};

__device__ inline row_draw draw_of(const sample_kernel_args &a)
{
    row_draw draw{a.draws[blockIdx.y]};
    draw.greedy = isinf(draw.inverse_temperature);
    if (draw.greedy) draw.inverse_temperature = 1;
    return draw;
}

/* An infinite logit leaves nothing to be weighed beside it. */
__device__ inline bool is_weighed(const sample_kernel_args &a, const row_draw &draw, float max)
{
    return (!draw.greedy || a.probability) && !isinf(max);
}

/* Once in the code, which a step finds in no cache. */
__device__ __noinline__ double weight_of(const sample_kernel_draw &draw, float max, float value)
{
    double weight = exp(((double)value - max) * draw.inverse_temperature);
    return weight >= draw.min_p ? weight : 0;
}

/* ---- pieces ---- */

/* What a piece adds to the sum of weights beside `max`. */
__device__ inline double piece_weight(const sample_kernel_draw &draw, const sample_piece &piece, float max)
{
    if (draw.min_p > 0 || !(piece.sum > 0)) return piece.sum;
    return piece.sum * exp(((double)piece.max - max) * draw.inverse_temperature);
}

/* Of the pieces of a block's warps, in its first warp. */
__device__ inline sample_piece join_pieces(const sample_kernel_draw &draw, const sample_piece *pieces)
{
    const int lane = threadIdx.x;
    const sample_piece mine = lane < WARPS ? pieces[lane] : sample_piece{-INFINITY, 0x7fffffff, 0};
    float max = mine.max;
    int32_t id = mine.id;
    warp_argmax(max, id);
    return {max, id, warp_sum_f64(piece_weight(draw, mine, max))};
}

/* Each warp weighs beside its own largest. With min_p it takes the row's to know who weighs something: those sums come
 * later. */
KERNEL_OF(SAMPLE_THREADS, sample_pieces, sample_kernel_args)
{
    __shared__ sample_piece pieces[WARPS];
    wait_for_input();
    let_next_start();
    const candidates c = candidates_of(a);
    const row_draw draw = draw_of(a);
    const uint32_t first = blockIdx.x * SAMPLE_PIECE + threadIdx.x;
    float values[SAMPLE_EACH], max = -INFINITY;
    int32_t id = 0x7fffffff;
#pragma unroll
    for (int n = 0; n < SAMPLE_EACH; n++) values[n] = logit_at(a, c, first + n * SAMPLE_THREADS);
#pragma unroll
    for (int n = 0; n < SAMPLE_EACH; n++)
        take_larger(max, id, values[n], (int32_t)(first + n * SAMPLE_THREADS));
    warp_argmax(max, id);
    double sum = 0;
    if (is_weighed(a, draw, max) && !(draw.min_p > 0))
#pragma unroll
        for (int n = 0; n < SAMPLE_EACH; n++) sum += weight_of(draw, max, values[n]);
    sum = warp_sum_f64(sum);
    if (threadIdx.x % WARP == 0) pieces[threadIdx.x / WARP] = {max, id, sum};
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    const sample_piece all = join_pieces(draw, pieces);
    if (threadIdx.x == 0) a.partial[blockIdx.y * a.pieces + blockIdx.x] = all;
}

/* The largest of the whole row, from its pieces; to all threads. */
__device__ inline void row_argmax(const sample_kernel_args &a, const sample_piece *pieces, float &max,
                                  int32_t &id)
{
    __shared__ float maxima[WARPS];
    __shared__ int32_t ids[WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    max = -INFINITY, id = 0x7fffffff;
    for (uint32_t i = threadIdx.x; i < a.pieces; i += SAMPLE_THREADS)
        take_larger(max, id, pieces[i].max, pieces[i].id);
    warp_argmax(max, id);
    if (lane == 0) maxima[warp] = max, ids[warp] = id;
    __syncthreads();
    max = maxima[lane % WARPS], id = ids[lane % WARPS];
    warp_argmax(max, id);
}

/* The sums that take the row's largest. */
KERNEL_OF(SAMPLE_THREADS, sample_weigh, sample_kernel_args)
{
    __shared__ double sums[WARPS];
    wait_for_input();
    let_next_start();
    const row_draw draw = draw_of(a);
    sample_piece *pieces = a.partial + blockIdx.y * a.pieces;
    float max;
    int32_t id;
    if (!(draw.min_p > 0)) return;
    row_argmax(a, pieces, max, id);
    if (!is_weighed(a, draw, max)) return;
    const candidates c = candidates_of(a);
    const uint32_t first = blockIdx.x * SAMPLE_PIECE + threadIdx.x;
    double sum = 0;
#pragma unroll
    for (int n = 0; n < SAMPLE_EACH; n++)
        sum += weight_of(draw, max, logit_at(a, c, first + n * SAMPLE_THREADS));
    sum = warp_sum_f64(sum);
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < WARPS; w++) sum += sums[w];
    pieces[blockIdx.x].sum = sum;
}

/* ---- the draw ---- */

/* The sum of `mine` of all threads before this one; *total: of all. */
__device__ inline double sum_before(double mine, double *total)
{
    __shared__ double sums[WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    double upto = mine;
    for (int step = 1; step < WARP; step *= 2) {
        const double before = __shfl_up_sync(FULL_MASK, upto, step);
        if (lane >= step) upto += before;
    }
    if (lane == WARP - 1) sums[warp] = upto;
    __syncthreads();
    double before = 0, all = 0;
    for (int w = 0; w < WARPS; w++) {
        if (w == warp) before = all;
        all += sums[w];
    }
    __syncthreads();
    *total = all;
    return before + (upto - mine);
}

/* The first thread for which `reached` holds, or, as rounding may carry a target past the end, the last one that
 * weighs something. To all threads. */
__device__ inline int first_reached(bool reached, bool weighs)
{
    __shared__ int found, last;
    if (threadIdx.x == 0) found = SAMPLE_THREADS, last = 0;
    __syncthreads();
    if (weighs) atomicMax(&last, (int)threadIdx.x);
    if (weighs && reached) atomicMin(&found, (int)threadIdx.x);
    __syncthreads();
    const int first = found == SAMPLE_THREADS ? last : found;
    __syncthreads();
    return first;
}

/* Which piece, and what is left of the target there. */
struct spot {
    uint32_t piece;
    double target;
};

/* A thread has neighbouring pieces: one, up to a million logits. */
__device__ inline spot find_piece(const sample_kernel_args &a, const sample_kernel_draw &draw,
                                  const sample_piece *pieces, float max)
{
    __shared__ spot at;
    const uint32_t n = (uint32_t)a.pieces, each = (n + SAMPLE_THREADS - 1) / SAMPLE_THREADS;
    const uint32_t first = min(n, threadIdx.x * each), end = min(n, first + each);
    double mine = 0, total;
    for (uint32_t i = first; i < end; i++) mine += piece_weight(draw, pieces[i], max);
    const double before = sum_before(mine, &total), target = draw.uniform * total;
    if (first_reached(target < before + mine, mine > 0) == threadIdx.x) {
        double left = target - before;
        bool found = false;
        for (uint32_t i = first; i < end && !found; i++) {
            const double weight = piece_weight(draw, pieces[i], max);
            if (!(weight > 0)) continue;
            at = spot{i, left};
            found = left < weight;
            left -= weight;
        }
    }
    __syncthreads();
    return at;
}

/* The same within a piece. */
__device__ inline int32_t find_id(const sample_kernel_args &a, const sample_kernel_draw &draw, float max,
                                  const spot &at)
{
    __shared__ int32_t id;
    const candidates c = candidates_of(a);
    const uint32_t first = at.piece * SAMPLE_PIECE + threadIdx.x * SAMPLE_EACH;
    double weights[SAMPLE_EACH], mine = 0, total;
#pragma unroll
    for (int n = 0; n < SAMPLE_EACH; n++) {
        weights[n] = weight_of(draw, max, logit_at(a, c, first + n));
        mine += weights[n];
    }
    double sum = sum_before(mine, &total);
    if (first_reached(at.target < sum + mine, mine > 0) == threadIdx.x) {
        bool found = false;
#pragma unroll
        for (int n = 0; n < SAMPLE_EACH; n++) {
            if (found || !(weights[n] > 0)) continue;
            id = (int32_t)(first + n);
            sum += weights[n];
            found = at.target < sum;
        }
    }
    __syncthreads();
    return id;
}

/* What `id` weighs of all; in thread 0. */
__device__ inline double share_of(const sample_kernel_args &a, const sample_kernel_draw &draw,
                                  const sample_piece *pieces, float max, int32_t id)
{
    double mine = 0, total;
    for (uint32_t i = threadIdx.x; i < a.pieces; i += SAMPLE_THREADS) mine += piece_weight(draw, pieces[i], max);
    sum_before(mine, &total);
    if (isinf(max)) return max > 0;
    return weight_of(draw, max, a.logits[blockIdx.y * a.vocab + id]) / total;
}

KERNEL_OF(SAMPLE_THREADS, sample_draw, sample_kernel_args)
{
    wait_for_input();
    let_next_start();
    const row_draw draw = draw_of(a);
    sample_piece *pieces = a.partial + blockIdx.y * a.pieces;
    float max;
    int32_t id;
    row_argmax(a, pieces, max, id);
    if (max == -INFINITY) id = -1;
    if (!draw.greedy && !isinf(max)) id = find_id(a, draw, max, find_piece(a, draw, pieces, max));
    const double share = a.probability ? share_of(a, draw, pieces, max, id) : 0;
    if (threadIdx.x) return;
    if (a.probability) a.probability[draw.place] = (float)share;
    a.token[draw.place] = id;
    if (a.next) a.next[blockIdx.y] = id < 0 ? 0 : id;
}
