/* Causal attention of whole sequences in bf16 through mma.sync and cp.async, which every
 * architecture from sm_80 on has: head_dim 64 or 128, sums in float32.
 *
 * A block has 128 neighbouring queries of a head, 32 for each of four warps, so that what a warp
 * reads from shared memory serves two products of 16 rows. Steps of 32 or 64 keys, from the last to
 * the first; those of the next step come meanwhile. Two blocks share an SM, so that one's
 * exponentials run beside the other's products. With head_dim 128 that leaves no register over: ptxas
 * of 13.0 spills a few for sm_100 and later, none for sm_80 and sm_90. */
// spills: self_attention_mma_128 48
#include "self_attention/mma_tiles.cuh"

enum { HALVES = 2 }; /* of 16 rows, of a warp */

/* Of a thread's rows, g and g + 8 of each half: the highest score so far, or -INFINITY, and the sum
 * of this lane's weights. Scores are powers of two. */
struct mma_softmax {
    float top[HALVES][2], total[HALVES][2];
};

/* Scores to weights; sums so far to the new reference. */
template <int DIM, int KEYS>
INLINE void weigh(const self_attention_any_args &a, mma_softmax &r, int row, int key, bool whole,
                  float (&s)[HALVES][KEYS / 2], float (&sums)[HALVES][DIM / 2])
{
    float by = a.scale * LOG2_E;
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2 * HALVES; half++) {
        int h = half / 2, e = half % 2, query = row + 16 * h + 8 * e + lane / 4;
        float top = r.top[h][e], total = 0;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &x = s[h][i / 2 * 4 + 2 * e + i % 2];
            int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
            x = whole || is_seen(a, query, key + column) ? x * by : -INFINITY;
            top = fmaxf(top, x);
        }
        top = quad_max(top);
        float reference = top == -INFINITY ? 0 : top, scale = exp2_unit(r.top[h][e] - reference);
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &x = s[h][i / 2 * 4 + 2 * e + i % 2];
            x = exp2_unit(x - reference);
            total += x;
        }
        r.total[h][e] = r.total[h][e] * scale + total;
        r.top[h][e] = top;
#pragma unroll
        for (int i = 0; i < DIM / 4; i++) sums[h][i / 2 * 4 + 2 * e + i % 2] *= scale;
    }
}

template <int DIM>
INLINE void finish(const self_attention_any_args &a, mma_softmax &r, int64_t token0, int head,
                   int row, const float (&sums)[HALVES][DIM / 2])
{
    int lane = threadIdx.x % WARP;
    float sink = a.sinks ? a.sinks[head] * LOG2_E : -INFINITY;
#pragma unroll
    for (int half = 0; half < 2 * HALVES; half++) {
        int h = half / 2, e = half % 2, query = row + 16 * h + 8 * e + lane / 4;
        bool valid = query < a.length;
        float top = fmaxf(r.top[h][e], sink), scale = exp2_unit(r.top[h][e] - top);
        float total = quad_sum(r.total[h][e]) * scale + exp2_unit(sink - top);
        int64_t token = token0 + query;
        if (valid && lane % 4 == 0)
            a.lse[head * a.tokens + token] = (top + log2f(total)) * LN_2;
        store_row<DIM>((uint16_t *)a.out + (token * a.n_heads + head) * DIM, valid, sums[h], e,
                       scale / total);
    }
}

template <int DIM> INLINE void attend(const self_attention_any_args &a)
{
    extern __shared__ __align__(256) char memory[];
    enum {
        ROWS = SELF_MMA_ROWS,
        MINE = 16 * HALVES,
        KEYS = SELF_MMA_STEP(DIM),
        BYTES = KEYS * DIM * 2,
        STAGE = 2 * BYTES, /* keys, then values */
    };
    uint32_t q_at = shared_at(memory), at = q_at + ROWS * DIM * 2;
    int tiles = (a.length + ROWS - 1) / ROWS, pair = (int)(blockIdx.x / (uint32_t)tiles);
    int first = (tiles - 1 - (int)(blockIdx.x % (uint32_t)tiles)) * ROWS; /* longest first */
    int head = pair % a.n_heads, kv_heads = a.n_heads / a.group, kv_head = head / a.group;
    int64_t token0 = (int64_t)(pair / a.n_heads) * a.length;
    mma_rows q = rows_of<DIM>(a.q, token0, a.length, a.n_heads, head);
    mma_rows k = rows_of<DIM>(a.k, token0, a.length, kv_heads, kv_head);
    mma_rows v = rows_of<DIM>(a.v, token0, a.length, kv_heads, kv_head);
    int row = first + (int)threadIdx.x / WARP * MINE;
    int key = (min(first + (int)ROWS, a.length) - 1) / KEYS * KEYS;
    int begin = max(0, first - a.window + 1) / KEYS * KEYS;
    mma_softmax r;
    float sums[HALVES][DIM / 2];
    wait_for_input();
    let_next_start();
    fetch_rows<DIM, ROWS>(q_at, q, first);
    fetch_rows<DIM, KEYS>(at, k, key);
    fetch_rows<DIM, KEYS>(at + BYTES, v, key);
    copy_commit();
#pragma unroll
    for (int i = 0; i < 2 * HALVES; i++) r.top[i / 2][i % 2] = -INFINITY, r.total[i / 2][i % 2] = 0;
#pragma unroll
    for (int i = 0; i < HALVES * DIM / 2; i++) sums[i / (DIM / 2)][i % (DIM / 2)] = 0;
    for (int next = STAGE; key >= begin; key -= KEYS, at += next, next = -next) {
        float s[HALVES][KEYS / 2];
        uint32_t weights[HALVES][KEYS / 4];
        copy_wait<0>();
        __syncthreads(); /* and nobody reads the other stage any more */
        if (key > begin) {
            fetch_rows<DIM, KEYS>(at + next, k, key - KEYS);
            fetch_rows<DIM, KEYS>(at + next + BYTES, v, key - KEYS);
        }
        copy_commit();
        if (key > row + MINE - 1 || key + KEYS <= row - a.window + 1) continue; /* none is seen */
        rows_by_rows<DIM, HALVES, KEYS>(s, q_at, row - first, at);
        weigh<DIM, KEYS>(a, r, row, key, all_seen(a, row, MINE, key, KEYS), s, sums);
        pack_weights<HALVES, KEYS>(weights, s);
        weights_by_rows<DIM, HALVES, KEYS>(sums, weights, at + BYTES);
    }
    finish<DIM>(a, r, token0, head, row, sums);
}

extern "C" __global__ void __launch_bounds__(SELF_MMA_THREADS, 2)
    self_attention_mma_128(const __grid_constant__ self_attention_any_args a)
{
    attend<128>(a);
}

extern "C" __global__ void __launch_bounds__(SELF_MMA_THREADS, 2)
    self_attention_mma_64(const __grid_constant__ self_attention_any_args a)
{
    attend<64>(a);
}
