/* Attention of few rows over long caches: the positions of a row are shared by `splits` blocks, and in
 * each by its warps, which take 32 positions at a time, all query heads of a key head together, so that
 * the cache is read once. Scores have a lane for each position, sums a lane for each pair of dimensions.
 * With one split the block writes the result, else attention_merge puts the parts together. */
#include "attention/attention_args.h"
#include "cache.cuh"
#include "common.cuh"
#include "mma.cuh"

enum { DIM = 64, HEADS = 8, WARPS = 8, THREADS = WARPS * WARP, PARTIAL = DIM + 2 };

struct warp_memory {
    uint16_t k[DIM][CACHE_BLOCK]; /* as in the cache */
    uint16_t v[CACHE_BLOCK][DIM];
    float weight[CACHE_BLOCK][HEADS];
};
struct block_memory {
    float q[DIM][HEADS];
    warp_memory warps[WARPS];
};

/* What a warp, or a block, knows of each head: largest score, sum of weights, weighted values. */
struct state {
    float top[HEADS], total[HEADS], low[HEADS], high[HEADS];
};

template <int TYPE> __device__ inline float number(uint16_t bits)
{
    return TYPE == WEIGHT_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

__device__ inline void take_block(const cache_args &c, int64_t sequence, int64_t head, int64_t base,
                                  warp_memory &to)
{
    enum { LOADS = DIM * CACHE_BLOCK * 2 / 16 / WARP };
    int lane = threadIdx.x % WARP;
    const uint4 *k = (const uint4 *)((const uint16_t *)c.k + cache_k_index(c, sequence, head, base));
    const uint4 *v = (const uint4 *)((const uint16_t *)c.v + cache_v_index(c, sequence, head, base));
    uint4 ks[LOADS], vs[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) ks[i] = load_once(k + i * WARP + lane);
#pragma unroll
    for (int i = 0; i < LOADS; i++) vs[i] = load_once(v + i * WARP + lane);
    __syncwarp(); /* the last block's reading is over */
#pragma unroll
    for (int i = 0; i < LOADS; i++) ((uint4 *)to.k)[i * WARP + lane] = ks[i];
#pragma unroll
    for (int i = 0; i < LOADS; i++) ((uint4 *)to.v)[i * WARP + lane] = vs[i];
    __syncwarp();
}

template <int TYPE>
__device__ inline void add_block(state &s, const float q[DIM][HEADS], warp_memory &m, bool visible)
{
    int lane = threadIdx.x % WARP;
    float score[HEADS] = {0};
#pragma unroll 8
    for (int d = 0; d < DIM; d++) {
        float k = number<TYPE>(m.k[d][lane]);
#pragma unroll
        for (int h = 0; h < HEADS; h++) score[h] += k * q[d][h];
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float top = fmaxf(s.top[h], warp_max(visible ? score[h] : s.top[h]));
        float shrink = expf(s.top[h] - top), weight = visible ? expf(score[h] - top) : 0;
        s.top[h] = top;
        s.total[h] = s.total[h] * shrink + weight; /* of this lane's positions */
        s.low[h] *= shrink;
        s.high[h] *= shrink;
        m.weight[lane][h] = weight;
    }
    __syncwarp();
#pragma unroll 4
    for (int p = 0; p < CACHE_BLOCK; p++) {
        uint32_t pair = *(const uint32_t *)&m.v[p][2 * lane];
        float low = number<TYPE>((uint16_t)pair), high = number<TYPE>((uint16_t)(pair >> 16));
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            s.low[h] += m.weight[p][h] * low;
            s.high[h] += m.weight[p][h] * high;
        }
    }
}

/* The parts of one head from all warps, then its result or this split's part. Warp w takes head w; the
 * warps' memory is used again for the exchange. */
__device__ inline void merge_warps(const attention_kernel_args &a, const state &s, block_memory &m,
                                   int64_t row, int64_t first_head, int heads)
{
    float(*parts)[WARPS][PARTIAL] = (float(*)[WARPS][PARTIAL])m.warps;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float totals[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) totals[h] = warp_sum(s.total[h]);
    __syncthreads();
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        parts[h][warp][2 * lane] = s.low[h];
        parts[h][warp][2 * lane + 1] = s.high[h];
        if (lane == 0) parts[h][warp][DIM] = s.top[h], parts[h][warp][DIM + 1] = totals[h];
    }
    __syncthreads();
    if (warp >= heads) return;
    int64_t head = first_head + warp;
    float top = a.splits == 1 ? a.sinks[head] : parts[warp][0][DIM];
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, parts[warp][w][DIM]);
    float total = a.splits == 1 ? expf(a.sinks[head] - top) : 0, low = 0, high = 0;
    for (int w = 0; w < WARPS; w++) {
        const float *part = parts[warp][w];
        float scale = part[DIM + 1] == 0 ? 0 : expf(part[DIM] - top); /* an empty part has no top */
        total += part[DIM + 1] * scale;
        low += part[2 * lane] * scale;
        high += part[2 * lane + 1] * scale;
    }
    if (a.splits == 1) {
        float *out = a.out + (row * a.n_heads + head) * DIM;
        out[2 * lane] = low / total;
        out[2 * lane + 1] = high / total;
        return;
    }
    float *to = a.partial + ((row * a.n_heads + head) * a.splits + blockIdx.z) * PARTIAL;
    to[2 * lane] = low;
    to[2 * lane + 1] = high;
    if (lane == 0) to[DIM] = top, to[DIM + 1] = total;
}

template <int TYPE> __device__ inline void decode(const attention_kernel_args &a)
{
    extern __shared__ __align__(16) char memory[];
    block_memory &m = *(block_memory *)memory;
    wait_for_input();
    let_next_start();
    const cache_args &c = a.cache;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t row = blockIdx.x, kv_head = blockIdx.y;
    int heads = (int)((uint32_t)a.n_heads / (uint32_t)c.n_kv_heads);
    for (int i = threadIdx.x; i < DIM * HEADS; i += THREADS) {
        int h = i / DIM, d = i % DIM;
        const float *q = a.q + (row * a.n_heads + kv_head * heads + h) * DIM;
        m.q[d][h] = h < heads ? q[d] * a.scale : 0;
    }
    __syncthreads();

    state s;
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        s.top[h] = -1e30f, s.total[h] = s.low[h] = s.high[h] = 0;
    int32_t end = a.position[row] + 1, window = (int32_t)a.window;
    int32_t begin = window && end > window ? end - window : 0;
    int32_t blocks = (end + CACHE_BLOCK - 1) / CACHE_BLOCK;
    int32_t workers = a.splits * WARPS, worker = (int32_t)blockIdx.z * WARPS + warp;
    for (int32_t b = begin / CACHE_BLOCK + worker; b < blocks; b += workers) {
        int32_t p = b * CACHE_BLOCK + lane;
        take_block(c, a.sequence[row], kv_head, b * CACHE_BLOCK, m.warps[warp]);
        add_block<TYPE>(s, m.q, m.warps[warp], p >= begin && p < end);
    }
    merge_warps(a, s, m, row, kv_head * heads, heads);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attention_decode_f16(const __grid_constant__ attention_kernel_args a)
{
    decode<WEIGHT_F16>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attention_decode_bf16(const __grid_constant__ attention_kernel_args a)
{
    decode<WEIGHT_BF16>(a);
}

/* A warp for each row and head. */
extern "C" __global__ void __launch_bounds__(WARP)
    attention_merge(const __grid_constant__ attention_kernel_args a)
{
    wait_for_input();
    let_next_start();
    int lane = threadIdx.x;
    int64_t at = (int64_t)blockIdx.x * a.n_heads + blockIdx.y;
    const float *parts = a.partial + at * a.splits * PARTIAL;
    float top = a.sinks[blockIdx.y];
    for (int i = 0; i < a.splits; i++) top = fmaxf(top, parts[i * PARTIAL + DIM]);
    float total = expf(a.sinks[blockIdx.y] - top), low = 0, high = 0;
    for (int i = 0; i < a.splits; i++) {
        const float *part = parts + i * PARTIAL;
        float scale = part[DIM + 1] == 0 ? 0 : expf(part[DIM] - top);
        total += part[DIM + 1] * scale;
        low += part[2 * lane] * scale;
        high += part[2 * lane + 1] * scale;
    }
    a.out[at * DIM + 2 * lane] = low / total;
    a.out[at * DIM + 2 * lane + 1] = high / total;
}
