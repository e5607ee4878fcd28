/* A token from its row of logits by a race (op sample, src/ops/args.h): what is known of its pieces, of some draws in
 * two passes, and who is first of all. A token's pace is 1 / its time. Paces are compared as logarithms. Few tokens can
 * be a block's first. For all an upper bound of the pace is computed, in few instructions; for each thread's best the
 * pace in float32; for those whose bound reaches the largest of these, the pace in double. blockIdx.y is the row. */
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

/* This thread's of a block's piece, EACH of them; neighbouring threads have neighbours. */
template <int EACH> __device__ inline uint32_t column_of(int n)
{
    return (blockIdx.x * EACH + n) * SAMPLE_THREADS + threadIdx.x;
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

/* ---- a piece ---- */

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

__device__ __noinline__ bool is_exactly_heavy(double weight, double min_p)
{
    return exp(weight) >= min_p;
}

/* Whether the weight, whose logarithm is about `rough`, is at least min_p, of which `edge` is the logarithm. */
__device__ inline bool is_heavy(const sample_kernel_draw &draw, float max, float value, float rough, float edge)
{
    if (fabsf(rough - edge) > CLOSE) return rough > edge;
    return is_exactly_heavy(((double)value - max) * draw.inverse_temperature, draw.min_p);
}

/* The race of a block's piece beside `max`, which is finite; thread 0 writes. MIN_P: there is one. */
template <bool MIN_P, int EACH>
__device__ inline void race(const sample_kernel_args &a, const sample_kernel_draw &draw, float max,
                            const float (&values)[EACH])
{
    const uint32_t end = (uint32_t)a.vocab - 1;
    const float inverse_temperature = fminf((float)draw.inverse_temperature, 1e30f);
    const float edge = MIN_P ? logf((float)draw.min_p) : 0;
    float paces[EACH], sum = 0, weight = -INFINITY; /* the weight of this thread's best */
    entrant<float> best{-INFINITY, NOBODY};
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const uint32_t column = min(column_of<EACH>(n), end), id = a.ids ? a.ids[column] : column;
        const float own = (values[n] - max) * inverse_temperature;
        paces[n] = -INFINITY;
        if (values[n] > -INFINITY && (!MIN_P || is_heavy(draw, max, values[n], own, edge)))
            paces[n] = a.share ? rough_pace_of(draw.key, own, id) : most_pace_of(draw.key, own, id);
        if (paces[n] > best.value) best = {paces[n], (int32_t)id}, weight = own;
        if (a.share) sum += expf(paces[n]);
    }
    if (!a.share && best.value > -INFINITY) best.value = rough_pace_of(draw.key, weight, (uint32_t)best.id);
    const float top = block_max(best.value);
    entrant<double> first{-INFINITY, NOBODY};
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        if (!(paces[n] >= top - CLOSE) || paces[n] == -INFINITY) continue;
        const uint32_t column = column_of<EACH>(n);
        first = larger(first, {pace_of(draw, max, values[n], a.ids ? a.ids[column] : column), (int32_t)column});
    }
    first = block_largest(first);
    if (a.share) sum = block_sum(sum);
    if (threadIdx.x) return;
    sample_piece &piece = a.partial[blockIdx.y * a.pieces + blockIdx.x];
    piece.lead = first.value, piece.first = first.id, piece.sum = sum;
}

template <int EACH>
__device__ inline void load_values(const sample_kernel_args &a, const candidates &c, float (&values)[EACH])
{
#pragma unroll
    for (int n = 0; n < EACH; n++) values[n] = logit_at(a, c, column_of<EACH>(n));
}

/* With min_p the row's largest says who runs: those races come later. */
template <int EACH> __device__ inline void pieces(const sample_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const candidates c = candidates_of(a);
    const sample_kernel_draw draw = a.draws[blockIdx.y];
    float values[EACH];
    entrant<float> largest{-INFINITY, NOBODY};
    load_values(a, c, values);
#pragma unroll
    for (int n = 0; n < EACH; n++) largest = larger(largest, {values[n], (int32_t)column_of<EACH>(n)});
    largest = block_largest(largest);
    if (threadIdx.x == 0) {
        sample_piece &piece = a.partial[blockIdx.y * a.pieces + blockIdx.x];
        piece.max = largest.value, piece.id = largest.id;
        piece.lead = -INFINITY, piece.first = NOBODY, piece.sum = 0;
    }
    if (draw.min_p > 0 || isinf(largest.value) || (!draw.key && !a.share)) return;
    race<false>(a, draw, largest.value, values);
}

/* The largest of the whole row, from its pieces; to all threads. */
__device__ inline entrant<float> row_largest(const sample_kernel_args &a)
{
    const sample_piece *pieces = a.partial + blockIdx.y * a.pieces;
    entrant<float> largest{-INFINITY, NOBODY};
    for (uint32_t i = threadIdx.x; i < a.pieces; i += SAMPLE_THREADS)
        largest = larger(largest, {pieces[i].max, pieces[i].id});
    return block_largest(largest);
}

/* The races that take the row's largest. */
template <int EACH> __device__ inline void again(const sample_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const sample_kernel_draw draw = a.draws[blockIdx.y];
    if (!(draw.min_p > 0)) return;
    const entrant<float> largest = row_largest(a);
    if (isinf(largest.value)) return;
    float values[EACH];
    load_values(a, candidates_of(a), values);
    race<true>(a, draw, largest.value, values);
}

/* Two blocks an SM, so that one has loads on their way while the other computes. */
#define SAMPLE_KERNEL(name, what)                                                                   \
    extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS, 2)                                 \
        name(const __grid_constant__ sample_kernel_args a)                                          \
    {                                                                                               \
        what(a);                                                                                    \
    }
#define SAMPLE_KERNELS(name, each)                                                                  \
    SAMPLE_KERNEL(sample_pieces##name, pieces<each>)                                                \
    SAMPLE_KERNEL(sample_again##name, again<each>)

SAMPLE_KERNELS(, SAMPLE_EACH)
SAMPLE_KERNELS(_many, SAMPLE_EACH_MANY)

/* ---- the row ---- */

KERNEL_OF(SAMPLE_THREADS, sample_draw, sample_kernel_args)
{
    wait_for_input();
    let_next_start();
    const sample_kernel_draw draw = a.draws[blockIdx.y];
    const sample_piece *pieces = a.partial + blockIdx.y * a.pieces;
    const entrant<float> largest = row_largest(a);
    const bool races = !isinf(largest.value);
    entrant<double> first{-INFINITY, NOBODY};
    float sum = 0;
    for (uint32_t i = threadIdx.x; races && i < a.pieces; i += SAMPLE_THREADS) {
        const sample_piece &p = pieces[i];
        const double behind = draw.min_p > 0 ? 0 : ((double)p.max - largest.value) * draw.inverse_temperature;
        first = larger(first, {p.lead + behind, p.first});
        if (p.sum > 0) sum += p.sum * expf((float)behind);
    }
    first = block_largest(first);
    sum = block_sum(sum);
    if (threadIdx.x) return;
    const int32_t column = races && draw.key ? first.id : largest.id;
    const int32_t token = largest.value == -INFINITY ? -1 : a.ids ? a.ids[column] : column;
    if (a.share) a.share[draw.place] = races ? (float)(exp(first.value) / sum) : largest.value > 0;
    a.token[draw.place] = token;
    if (a.next) a.next[blockIdx.y] = token < 0 ? 0 : token;
}
