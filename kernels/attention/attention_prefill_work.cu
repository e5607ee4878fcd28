/* Before and behind attention_prefill.cu and attention_mma.cu: the list of tiles, which depends on how the rows of a batch
 * follow each other; tiles that were cut; results that are not finite. */
#include "attention/prefill_work.cuh"
#include "attention/texts.cuh"
#include "cache.cuh"

/* ---- the list of tiles ---- */

enum { LIST_THREADS = PREFILL_LIST_THREADS, LIST_WARPS = LIST_THREADS / WARP };

__device__ inline bool begins_run(const attention_prefill_args &a, int i)
{
    return begins_run(a.sequence, a.position, i);
}

/* From a row on, of the run that ends before row `end`. */
__device__ inline prefill_tile tile_at(const attention_prefill_args &a, int row, int end)
{
    prefill_tile t = {row, min(a.tile_rows, end - row), a.sequence[row], a.position[row]};
    int begin = a.window && t.position >= a.window ? t.position - a.window + 1 : 0;
    int unit = a.cache.pages ? CACHE_PAGE : CACHE_BLOCK;
    t.begin = begin / unit * unit;
    t.steps = (t.position + t.count - t.begin + a.step_keys - 1) / a.step_keys;
    return t;
}

/* Where runs begin and end that a thread's rows belong to. */
struct run_ends {
    int begun, end; /* the last to begin before the thread's rows, the first to begin behind them */
};

/* By all threads, each with the first and last row of its own at which a run begins, or m and -1. */
__device__ inline run_ends find_runs(int first, int last, int m)
{
    __shared__ int firsts[LIST_WARPS], lasts[LIST_WARPS];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int step = 1; step < WARP; step *= 2) {
        int earlier = __shfl_up_sync(FULL_MASK, last, step), later = __shfl_down_sync(FULL_MASK, first, step);
        if (lane >= step) last = max(last, earlier);
        if (lane + step < WARP) first = min(first, later);
    }
    if (lane == 0) firsts[warp] = first;
    if (lane == WARP - 1) lasts[warp] = last;
    run_ends ends = {__shfl_up_sync(FULL_MASK, last, 1), __shfl_down_sync(FULL_MASK, first, 1)};
    if (lane == 0) ends.begun = -1;
    if (lane == WARP - 1) ends.end = m;
    __syncthreads();
    for (int w = 0; w < LIST_WARPS; w++) {
        if (w < warp) ends.begun = max(ends.begun, lasts[w]);
        if (w > warp) ends.end = min(ends.end, firsts[w]);
    }
    return ends;
}

/* Tiles, and their units of work. */
struct tile_counts {
    int tiles, work;
};

/* Those of the threads before this one; in `all` of all. */
__device__ inline tile_counts count_before(tile_counts own, tile_counts &all)
{
    __shared__ int tiles[LIST_WARPS], work[LIST_WARPS];
    tile_counts before = {sum_up_to<LIST_WARPS>(own.tiles, tiles) - own.tiles,
                          sum_up_to<LIST_WARPS>(own.work, work) - own.work};
    all = {0, 0};
    for (int w = 0; w < LIST_WARPS; w++) all.tiles += tiles[w], all.work += work[w];
    return before;
}

/* Texts before a thread's rows. */
__device__ inline int texts_before(const attention_prefill_args &a, int first, int end)
{
    __shared__ int warps[LIST_WARPS];
    int own = 0;
    for (int i = first; i < end; i++) own += is_text(a.sequence, a.position, a.m, i);
    return sum_up_to<LIST_WARPS>(own, warps) - own;
}

/* f(tile) for those that begin among a thread's rows, which are first .. end - 1. `texts`: how many texts stand before
 * these. The first a.texts of the step are left out. */
template <typename F>
__device__ inline void for_each_tile(const attention_prefill_args &a, int first, int end, int texts,
                                     const run_ends &ends, F f)
{
    int run = ends.begun;
    for (int i = first, next; i < end; i = next) {
        if (begins_run(a, i)) run = i;
        for (next = i + 1; next < end && !begins_run(a, next);) next++;
        if (is_text(a.sequence, a.position, a.m, i) && texts++ < a.texts) continue;
        int before = (i - run + a.tile_rows - 1) / a.tile_rows;
        for (int row = run + before * a.tile_rows; row < next; row += a.tile_rows)
            f(tile_at(a, row, next < end ? next : ends.end));
    }
}

/* One block. A thread takes neighbouring rows; a run may have begun in an earlier thread's, and end in a later
 * one's. Sequences and positions are those of the whole step, so only the list has to wait. */
KERNEL_OF(LIST_THREADS, attention_prefill_tiles, attention_prefill_args)
{
    int per = (a.m + LIST_THREADS - 1) / LIST_THREADS;
    int first = min(a.m, (int)threadIdx.x * per), end = min(a.m, first + per), begins = a.m, run = -1;
    for (int i = end - 1; i >= first; i--)
        if (begins_run(a, i)) begins = i, run = max(run, i);
    run_ends ends = find_runs(begins, run, a.m);
    tile_counts own = {0, 0}, all;
    int texts = a.texts ? texts_before(a, first, end) : 0;
    for_each_tile(a, first, end, texts, ends, [&](const prefill_tile &t) {
        own.tiles++;
        own.work += t.steps + TILE_WORK;
    });
    tile_counts before = count_before(own, all);
    wait_for_input();
    let_next_start();
    if (threadIdx.x == 0) a.totals[0] = all.tiles, a.totals[1] = all.work, a.totals[2] = 0;
    for_each_tile(a, first, end, texts, ends, [&](prefill_tile t) {
        t.start = before.work;
        a.tiles[before.tiles++] = t;
        before.work += t.steps + TILE_WORK;
    });
}

/* ---- what remains ---- */

/* One row and head without tensor cores: lanes are positions for scores, pairs of dimensions for sums. */
template <int TYPE>
__device__ inline void calculate_again(const attention_prefill_args &a, int row, int head)
{
    const cache_args &c = a.cache;
    int lane = threadIdx.x % WARP;
    int64_t kv_head = head / PREFILL_HEADS, sequence = a.sequence[row];
    const float *q = a.q + ((int64_t)row * a.n_heads + head) * PREFILL_DIM;
    int end = a.position[row] + 1, begin = a.window && end > a.window ? end - a.window : 0;
    float top = a.sinks ? a.sinks[head] : NOTHING, total = a.sinks ? 1 : 0, low = 0, high = 0;
    for (int base = begin / CACHE_BLOCK * CACHE_BLOCK; base < end; base += CACHE_BLOCK) {
        bool visible = base + lane >= begin && base + lane < end;
        float score = 0;
        int32_t page = cache_page(c, sequence, base);
        int64_t key = cache_k_at(c, page, kv_head, base) + lane;
        for (int d = 0; d < PREFILL_DIM; d++)
            score += q[d] * a.scale * cache_at(TYPE, c.k, key + d * CACHE_BLOCK);
        float highest = fmaxf(top, warp_max(visible ? score : top));
        float shrink = expf(top - highest), weight = visible ? expf(score - highest) : 0;
        total = total * shrink + warp_sum(weight);
        low *= shrink, high *= shrink;
        top = highest;
        int64_t value = cache_v_at(c, page, kv_head, base) + 2 * lane;
        for (int p = 0; p < CACHE_BLOCK; p++) {
            float w = __shfl_sync(FULL_MASK, weight, p);
            if (base + p < begin || base + p >= end) continue;
            low += w * cache_at(TYPE, c.v, value + p * PREFILL_DIM);
            high += w * cache_at(TYPE, c.v, value + p * PREFILL_DIM + 1);
        }
    }
    write_two(a, ((int64_t)row * a.n_heads + head) * PREFILL_DIM + 2 * lane, low / total, high / total);
}

/* Block i has the tile that is cut first where the work of block i ends. */
template <int TYPE> __device__ inline void join_parts(const attention_prefill_args &a)
{
    prefill_cuts cuts;
    cuts.start(a);
    if (blockIdx.x + 1 >= cuts.blocks) return;
    int64_t cut = cuts.cut(blockIdx.x + 1);
    int head = (int)(cut / cuts.work), group = threadIdx.x / GROUP;
    prefill_tile t = a.tiles[find_tile(a, cuts, (int32_t)(cut - (int64_t)head * cuts.work))];
    int64_t base = (int64_t)head * cuts.work + t.start + TILE_WORK;
    int begun = cuts.block_of(base), ended = cuts.block_of(base + t.steps - 1);
    if (is_short(t) || begun == ended || begun != blockIdx.x) return;
    int first = group * GROUP_ROWS + threadIdx.x % GROUP / WARP * 2;
    if (first >= t.count) return;
    softmax_rows r = {{NOTHING, NOTHING}, {0, 0}, {0, 0}};
    float o[SUMS] = {};
    for (int block = begun; block <= ended; block++)
        add_part(part_at(a, 2 * block + (block == begun), group, a.tile_rows / GROUP_ROWS), r, o);
    uint32_t bad = write_rows(a, t.row + first, t.count - first, head, r, o);
    for (int h = 0; h < 2; h++) {
        uint32_t rows = __ballot_sync(FULL_MASK, bad >> h & 1);
        __syncwarp();
        for (int i = 0; rows && i < PREFILL_HEADS; i++)
            if (rows >> 4 * i & 1) calculate_again<TYPE>(a, t.row + first + h, head * PREFILL_HEADS + i);
    }
}

template <int TYPE> __device__ inline void finish(const attention_prefill_args &a)
{
    wait_for_input();
    let_next_start();
    int count = a.totals[2], warp = (int)(blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    for (int i = warp; i < count; i += (int)(gridDim.x * blockDim.x) / WARP)
        calculate_again<TYPE>(a, a.again[i] / a.n_heads, a.again[i] % a.n_heads);
    join_parts<TYPE>(a);
}

/* A block has an SM to itself: the compiler may keep a whole part in registers, instead of waiting for
 * each of its numbers in turn (13 us a call on an H100 when it did). */
extern "C" __global__ void __launch_bounds__(PREFILL_FINISH_THREADS, 1)
    attention_prefill_finish_f16(const __grid_constant__ attention_prefill_args a)
{
    finish<DTYPE_F16>(a);
}

extern "C" __global__ void __launch_bounds__(PREFILL_FINISH_THREADS, 1)
    attention_prefill_finish_bf16(const __grid_constant__ attention_prefill_args a)
{
    finish<DTYPE_BF16>(a);
}
