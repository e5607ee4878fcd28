// spills: sample_again_many 96
/* A token from its row of logits by a race (op sample, src/ops/args.h): what is known of its pieces, of some draws in
 * two passes, and who is first of all. A token's pace is 1 / its time. Paces are compared as logarithms. Few tokens can
 * be a block's first. For all an upper bound of the pace is computed, in few instructions; for each thread's best the
 * pace in float32; for those whose bound reaches the largest of these, the pace in double. blockIdx.y is the row. Where
 * rows are many, most have their race in one pass (pass.cuh). */
#include "sample/pass.cuh"

/* A block's pieces follow each other; this thread's of one, EACH of them; neighbouring threads have neighbours. */
template <int EACH> __device__ inline uint32_t column_of(uint32_t piece, int n)
{
    return (piece * EACH + n) * SAMPLE_THREADS + threadIdx.x;
}

/* ---- a piece ---- */

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

/* The race of a block's piece beside `max`, which is finite; thread 0 writes. HEAVY: with min_p, if there is one. */
template <bool HEAVY, int EACH>
__device__ inline void race(const sample_kernel_args &a, const sample_kernel_draw &draw, uint32_t number,
                            float max, const float (&values)[EACH])
{
    const uint32_t end = (uint32_t)a.vocab - 1;
    const float inverse_temperature = fminf((float)draw.inverse_temperature, 1e30f);
    const float edge = HEAVY ? logf((float)draw.min_p) : 0;
    float paces[EACH], sum = 0, weight = -INFINITY; /* the weight of this thread's best */
    entrant<float> best{-INFINITY, NOBODY};
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const uint32_t column = min(column_of<EACH>(number, n), end), id = a.ids ? a.ids[column] : column;
        const float own = (values[n] - max) * inverse_temperature;
        paces[n] = -INFINITY;
        if (values[n] > -INFINITY && (!HEAVY || is_heavy(draw, max, values[n], own, edge)))
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
        const uint32_t column = column_of<EACH>(number, n);
        first = larger(first, {pace_of(draw, max, values[n], a.ids ? a.ids[column] : column), (int32_t)column});
    }
    first = block_largest(first);
    if (a.share) sum = block_sum(sum);
    if (threadIdx.x) return;
    sample_piece &piece = a.partial[blockIdx.y * a.pieces + number];
    piece.lead = first.value, piece.first = first.id, piece.sum = sum;
}

template <int EACH>
__device__ inline void load_values(const sample_kernel_args &a, const candidates &c, uint32_t number,
                                   float (&values)[EACH])
{
#pragma unroll
    for (int n = 0; n < EACH; n++) values[n] = logit_at(a, c, column_of<EACH>(number, n));
}

template <int EACH> __device__ inline void pieces(const sample_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const sample_kernel_draw draw = a.draws[blockIdx.y];
    const uint32_t number = blockIdx.x;
    const candidates c = candidates_of(a);
    float values[EACH];
    entrant<float> largest{-INFINITY, NOBODY};
    load_values(a, c, number, values);
#pragma unroll
    for (int n = 0; n < EACH; n++) largest = larger(largest, {values[n], (int32_t)column_of<EACH>(number, n)});
    largest = block_largest(largest);
    if (threadIdx.x == 0) {
        sample_piece &piece = a.partial[blockIdx.y * a.pieces + number];
        piece.max = largest.value, piece.id = largest.id;
        piece.lead = -INFINITY, piece.first = NOBODY, piece.sum = 0;
    }
    if (takes_row_largest(draw) || isinf(largest.value) || (!draw.key && !a.share)) return;
    race<false>(a, draw, number, largest.value, values);
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
    if (!takes_row_largest(draw)) return;
    const entrant<float> largest = row_largest(a);
    if (isinf(largest.value)) return;
    const float inverse_temperature = fminf((float)draw.inverse_temperature, 1e30f), edge = logf((float)draw.min_p);
    const uint32_t first = blockIdx.x * a.together, end = min(first + a.together, (uint32_t)a.pieces);
#pragma unroll 1
    for (uint32_t number = first; number < end; number++) {
        const float most = (a.partial[blockIdx.y * a.pieces + number].max - largest.value) * inverse_temperature;
        if (most < edge - CLOSE) continue; /* nobody is heavy enough */
        float values[EACH];
        __syncthreads(); /* what warps found is read */
        load_values(a, candidates_of(a), number, values);
        race<true>(a, draw, number, largest.value, values);
    }
}

__device__ inline void pass_rows(const sample_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const sample_kernel_draw draw = a.draws[blockIdx.y];
    if (!draw.key || takes_row_largest(draw))
        largest_in_one_pass(a);
    else
        race_in_one_pass(a, draw);
}

/* Blocks an SM: so many that one has loads on their way while another computes. */
#define SAMPLE_KERNEL(name, blocks, ...)                                                            \
    extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS, blocks)                            \
        name(const __grid_constant__ sample_kernel_args a)                                          \
    {                                                                                               \
        __VA_ARGS__(a);                                                                             \
    }

SAMPLE_KERNEL(sample_pieces, 2, pieces<SAMPLE_EACH>)
SAMPLE_KERNEL(sample_again, 2, again<SAMPLE_EACH>)
SAMPLE_KERNEL(sample_pass, 3, pass_rows)
SAMPLE_KERNEL(sample_again_many, 2, again<SAMPLE_EACH_MANY>)

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
        const double behind = takes_row_largest(draw) ? 0 : ((double)p.max - largest.value) * draw.inverse_temperature;
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
