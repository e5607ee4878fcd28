/* What is before and behind self_attention_backward_wgmma.cu: numbers of each row of queries,
 * results of dq, gradients of sinks. */
#include "common.cuh"
#include "self_attention/finish_dq.cuh"

#define LOG2_E 1.44269504f

/* Of a block: a tile of queries. */
struct rows_tile {
    int pair, tile, sequence, head;

    __device__ inline explicit rows_tile(const self_attention_backward_wgmma_args &a)
    {
        pair = (int)(blockIdx.x / (uint32_t)a.q_tiles);
        tile = (int)(blockIdx.x % (uint32_t)a.q_tiles);
        sequence = pair / a.n_heads;
        head = pair % a.n_heads;
    }
};

__device__ inline float dot_8(uint4 x, uint4 y)
{
    const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum += __uint_as_float(xs[i] << 16) * __uint_as_float(ys[i] << 16);
        sum += __uint_as_float(xs[i] & 0xffff0000u) * __uint_as_float(ys[i] & 0xffff0000u);
    }
    return sum;
}

/* lse as a power of two, and delta, the sum of dout * out; of rows behind the sequence such that
 * their weights are 0. Nobody has added to the tile so far. */
template <int DIM> __device__ inline void rows(const self_attention_backward_wgmma_args &a)
{
    enum { LANES = DIM / 8, ROWS = BACK_ROWS(DIM), AT_ONCE = BACK_ROWS_THREADS / LANES };
    rows_tile t(a);
    float *stats = a.stats + (int64_t)blockIdx.x * BACK_STATS(DIM);
    wait_for_input();
    let_next_start();
#pragma unroll 4
    for (int i = 0; i < ROWS / AT_ONCE; i++) {
        int within = i * AT_ONCE + (int)threadIdx.x / LANES, row = t.tile * ROWS + within;
        bool valid = row < a.length;
        int64_t token = (int64_t)t.sequence * a.length + min(row, a.length - 1);
        int64_t at = (token * a.n_heads + t.head) * DIM / 8 + threadIdx.x % LANES;
        float sum = dot_8(__ldg((const uint4 *)a.out + at), __ldg((const uint4 *)a.dout_rows + at));
#pragma unroll
        for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, step);
        if (threadIdx.x % LANES) continue;
        float lse = a.lse[(int64_t)t.head * a.sequences * a.length + token] * LOG2_E;
        stats[within] = valid ? lse : INFINITY;
        stats[ROWS + within] = valid ? sum : 0;
    }
    if (a.ordered) {
        if (threadIdx.x < 2) a.turns[2 * (int64_t)blockIdx.x + threadIdx.x] = 0;
    } else {
        float4 *sums = (float4 *)(a.sums + (int64_t)blockIdx.x * BACK_TILE);
        for (int i = threadIdx.x; i < BACK_TILE / 4; i += BACK_ROWS_THREADS)
            sums[i] = make_float4(0, 0, 0, 0);
    }
}

KERNEL_OF(BACK_ROWS_THREADS, self_attention_rows_128, self_attention_backward_wgmma_args)
{
    rows<128>(a);
}

KERNEL_OF(BACK_ROWS_THREADS, self_attention_rows_64, self_attention_backward_wgmma_args)
{
    rows<64>(a);
}

/* dq of the tiles from finish_first on, a block each. */
template <int DIM> __device__ inline void finish(const self_attention_backward_wgmma_args &a)
{
    int tile = a.finish_first + (int)blockIdx.x;
    wait_for_input();
    let_next_start();
    finish_dq<DIM>(a, tile);
}

KERNEL_OF(BACK_ROWS_THREADS, self_attention_finish_128, self_attention_backward_wgmma_args)
{
    finish<128>(a);
}

KERNEL_OF(BACK_ROWS_THREADS, self_attention_finish_64, self_attention_backward_wgmma_args)
{
    finish<64>(a);
}

/* dsinks of a head, a block each: the weight of the sink times -delta, of all rows, in one order.
 */
template <int DIM> __device__ inline void sinks(const self_attention_backward_wgmma_args &a)
{
    enum { ROWS = BACK_ROWS(DIM) };
    __shared__ float scratch[BACK_SINK_THREADS / WARP];
    int head = (int)blockIdx.x;
    float sink = a.sinks[head] * LOG2_E, sum = 0;
    wait_for_input();
    let_next_start();
    for (int sequence = 0; sequence < a.sequences; sequence++) {
        const float *stats =
            a.stats + ((int64_t)sequence * a.n_heads + head) * a.q_tiles * BACK_STATS(DIM);
        for (int i = (int)threadIdx.x; i < a.q_tiles * ROWS; i += BACK_SINK_THREADS) {
            const float *at = stats + i / ROWS * BACK_STATS(DIM) + i % ROWS;
            sum += exp2_unit(sink - __ldcg(at)) * __ldcg(at + ROWS);
        }
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) a.dsinks[head] -= sum;
}

KERNEL_OF(BACK_SINK_THREADS, self_attention_sinks_128, self_attention_backward_wgmma_args)
{
    sinks<128>(a);
}

KERNEL_OF(BACK_SINK_THREADS, self_attention_sinks_64, self_attention_backward_wgmma_args)
{
    sinks<64>(a);
}
