/* A token from its row of logits, in three passes over pieces of the row: the largest logit, the sums of
 * weights, the draw. blockIdx.y is the row. */
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
    int64_t list = a.lists ? a.draws[blockIdx.y].list : -1;
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

/* Of all threads, to all threads. */
__device__ inline void block_argmax(float &max, int32_t &id)
{
    __shared__ float maxima[WARPS];
    __shared__ int32_t ids[WARPS];
    for (int step = WARP / 2; step; step /= 2)
        take_larger(max, id, __shfl_xor_sync(FULL_MASK, max, step),
                    __shfl_xor_sync(FULL_MASK, id, step));
    if (threadIdx.x % WARP == 0) maxima[threadIdx.x / WARP] = max, ids[threadIdx.x / WARP] = id;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) take_larger(max, id, maxima[w], ids[w]);
    __syncthreads();
}

/* The largest of the whole row, from its pieces. */
__device__ inline void row_argmax(const sample_kernel_args &a, float &max, int32_t &id)
{
    const sample_piece *pieces = a.partial + blockIdx.y * a.pieces;
    max = -INFINITY, id = 0x7fffffff;
    for (uint32_t i = threadIdx.x; i < a.pieces; i += SAMPLE_THREADS)
        take_larger(max, id, pieces[i].max, pieces[i].id);
    block_argmax(max, id);
}

/* Nothing else weighs anything beside the largest. */
__device__ inline bool is_greedy(const sample_kernel_draw &draw, float max)
{
    return isinf(draw.inverse_temperature) || isinf(max);
}

__device__ inline double weight_of(const sample_kernel_draw &draw, float max, float value)
{
    double weight = exp(((double)value - max) * draw.inverse_temperature);
    return weight >= draw.min_p ? weight : 0;
}

KERNEL_OF(SAMPLE_THREADS, sample_max, sample_kernel_args)
{
    wait_for_input();
    let_next_start();
    const candidates c = candidates_of(a);
    uint32_t first = blockIdx.x * SAMPLE_PIECE + threadIdx.x;
    float max = -INFINITY;
    int32_t id = 0x7fffffff;
#pragma unroll
    for (int n = 0; n < SAMPLE_EACH; n++) {
        uint32_t at = first + n * SAMPLE_THREADS;
        take_larger(max, id, logit_at(a, c, at), (int32_t)at);
    }
    block_argmax(max, id);
    if (threadIdx.x == 0) {
        sample_piece *piece = a.partial + blockIdx.y * a.pieces + blockIdx.x;
        piece->max = max, piece->id = id;
    }
}

KERNEL_OF(SAMPLE_THREADS, sample_weigh, sample_kernel_args)
{
    __shared__ double sums[WARPS];
    wait_for_input();
    let_next_start();
    const sample_kernel_draw draw = a.draws[blockIdx.y];
    float max;
    int32_t id;
    row_argmax(a, max, id);
    if (is_greedy(draw, max)) return;
    const candidates c = candidates_of(a);
    double sum = 0;
    uint32_t first = blockIdx.x * SAMPLE_PIECE + threadIdx.x;
    for (int n = 0; n < SAMPLE_EACH; n++)
        sum += weight_of(draw, max, logit_at(a, c, first + n * SAMPLE_THREADS));
    for (int step = WARP / 2; step; step /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, step);
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < WARPS; w++) sum += sums[w];
    a.partial[blockIdx.y * a.pieces + blockIdx.x].sum = sum;
}

/* The piece in which `target` falls, by one thread; *target becomes what is left of it there. Rounding
 * may carry it past the end: then the last piece that weighs something. */
__device__ inline uint32_t find_piece(const sample_kernel_args &a, double uniform, double *target)
{
    const sample_piece *pieces = a.partial + blockIdx.y * a.pieces;
    double total = 0;
    for (uint32_t i = 0; i < a.pieces; i++) total += pieces[i].sum;
    uint32_t last = 0;
    *target = uniform * total;
    for (uint32_t i = 0; i < a.pieces; i++) {
        double sum = pieces[i].sum;
        if (!(sum > 0)) continue;
        last = i;
        if (*target < sum) break;
        *target -= sum;
    }
    return last;
}

/* The same within a piece; a thread has SAMPLE_EACH neighbours. */
__device__ inline int32_t find_id(const sample_kernel_args &a, const sample_kernel_draw &draw, float max,
                                  uint32_t piece, double target)
{
    __shared__ double sums[SAMPLE_THREADS];
    __shared__ int32_t found, last;
    uint32_t first = piece * SAMPLE_PIECE + threadIdx.x * SAMPLE_EACH;
    const candidates c = candidates_of(a);
    double weights[SAMPLE_EACH], mine = 0;
#pragma unroll
    for (int n = 0; n < SAMPLE_EACH; n++) {
        weights[n] = weight_of(draw, max, logit_at(a, c, first + n));
        mine += weights[n];
    }
    sums[threadIdx.x] = mine;
    if (threadIdx.x == 0) found = 0x7fffffff, last = 0;
    __syncthreads();
    for (uint32_t step = 1; step < SAMPLE_THREADS; step *= 2) {
        double before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    double sum = threadIdx.x ? sums[threadIdx.x - 1] : 0;
#pragma unroll
    for (int n = 0; n < SAMPLE_EACH; n++) {
        if (!(weights[n] > 0)) continue;
        sum += weights[n];
        atomicMax(&last, (int32_t)(first + n));
        if (target < sum) atomicMin(&found, (int32_t)(first + n));
    }
    __syncthreads();
    return found == 0x7fffffff ? last : found;
}

KERNEL_OF(SAMPLE_THREADS, sample_draw, sample_kernel_args)
{
    __shared__ uint32_t piece;
    __shared__ double target;
    wait_for_input();
    let_next_start();
    const sample_kernel_draw draw = a.draws[blockIdx.y];
    float max;
    int32_t id;
    row_argmax(a, max, id);
    if (max == -INFINITY) id = -1;
    if (!is_greedy(draw, max)) {
        if (threadIdx.x == 0) piece = find_piece(a, draw.uniform, &target);
        __syncthreads();
        id = find_id(a, draw, max, piece, target);
    }
    if (threadIdx.x == 0) a.token[blockIdx.y] = id;
}
