/* Gradients of attention in bf16 through mma.sync, on every architecture from sm_80 on: head_dim 64
 * or 128, sums in float32, always in the same order.
 *
 * One kernel has 64 keys a block, 16 for each of four warps, and goes through the queries that see
 * them, of all heads that share them: weights and their gradients come out as the first operand of
 * the products that make dk and dv, so that nothing goes through shared memory but queries and
 * gradients of results. Another kernel has 64 queries a block and goes through their keys: scores
 * are made twice, but nobody adds to what another block adds to. */
#include "self_attention/mma_tiles.cuh"

enum {
    TILE = SELF_MMA_BACK,
    MINE = 16, /* rows of a warp */
};

/* delta, the sum of dout * out, of all rows and heads: a row DIM / 8 lanes. */
template <int DIM> INLINE void make_delta(const self_attention_any_args &a)
{
    enum { LANES = DIM / 8, AT_ONCE = SELF_MMA_DELTA_THREADS / LANES };
    wait_for_input();
    let_next_start();
    int64_t index = (int64_t)blockIdx.x * AT_ONCE + threadIdx.x / LANES;
    bool valid = index < a.tokens * a.n_heads;
    int64_t at = (valid ? index : 0) * LANES + threadIdx.x % LANES;
    uint4 x = __ldg((const uint4 *)a.out_rows + at), y = __ldg((const uint4 *)a.dout + at);
    const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum += __uint_as_float(xs[i] << 16) * __uint_as_float(ys[i] << 16);
        sum += __uint_as_float(xs[i] & 0xffff0000u) * __uint_as_float(ys[i] & 0xffff0000u);
    }
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, step);
    if (valid && threadIdx.x % LANES == 0)
        a.delta[index % a.n_heads * a.tokens + index / a.n_heads] = sum;
}

/* ---- queries ---- */

template <int DIM> INLINE void make_dq(const self_attention_any_args &a)
{
    extern __shared__ __align__(256) char memory[];
    enum { KEYS = SELF_MMA_STEP(DIM), BYTES = KEYS * DIM * 2, STAGE = 2 * BYTES };
    uint32_t q_at = shared_at(memory), dout_at = q_at + TILE * DIM * 2;
    uint32_t at = dout_at + TILE * DIM * 2; /* a stage: keys, then values */
    int pair = (int)(blockIdx.x / (uint32_t)a.tiles), lane = threadIdx.x % WARP;
    int first = (a.tiles - 1 - (int)(blockIdx.x % (uint32_t)a.tiles)) * TILE; /* longest first */
    int head = pair % a.n_heads, kv_heads = a.n_heads / a.group, kv_head = head / a.group;
    int64_t token0 = (int64_t)(pair / a.n_heads) * a.length;
    mma_rows k = rows_of<DIM>(a.k, token0, a.length, kv_heads, kv_head);
    mma_rows v = rows_of<DIM>(a.v, token0, a.length, kv_heads, kv_head);
    int row = (int)threadIdx.x / WARP * MINE, query = first + row + lane / 4;
    int key = (min(first + (int)TILE, a.length) - 1) / KEYS * KEYS;
    int begin = max(0, first - a.window + 1) / KEYS * KEYS;
    float sums[1][DIM / 2], lse[2], delta[2], by = a.scale * LOG2_E;
    wait_for_input();
    let_next_start();
    fetch_rows<DIM, TILE>(q_at, rows_of<DIM>(a.q, token0, a.length, a.n_heads, head), first);
    fetch_rows<DIM, TILE>(dout_at, rows_of<DIM>(a.dout, token0, a.length, a.n_heads, head), first);
    fetch_rows<DIM, KEYS>(at, k, key);
    fetch_rows<DIM, KEYS>(at + BYTES, v, key);
    copy_commit();
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int64_t of = head * a.tokens + token0 + min(query + 8 * e, a.length - 1);
        lse[e] = a.lse_rows[of] * LOG2_E, delta[e] = a.delta[of];
    }
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) sums[0][i] = 0;
    for (int next = STAGE; key >= begin; key -= KEYS, at += next, next = -next) {
        float s[1][KEYS / 2], dp[1][KEYS / 2];
        uint32_t slopes[1][KEYS / 4];
        bool whole = all_seen(a, first + row, MINE, key, KEYS);
        copy_wait<0>();
        __syncthreads(); /* and nobody reads the other stage any more */
        if (key > begin) {
            fetch_rows<DIM, KEYS>(at + next, k, key - KEYS);
            fetch_rows<DIM, KEYS>(at + next + BYTES, v, key - KEYS);
        }
        copy_commit();
        rows_by_rows<DIM, 1, KEYS>(s, q_at, row, at);
        rows_by_rows<DIM, 1, KEYS>(dp, dout_at, row, at + BYTES);
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            int e = i / 2 % 2, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            bool seen = whole || is_seen(a, query + 8 * e, key + column);
            s[0][i] = seen ? exp2_unit(s[0][i] * by - lse[e]) * (dp[0][i] - delta[e]) : 0;
        }
        pack_weights<1, KEYS>(slopes, s);
        weights_by_rows<DIM, 1, KEYS>(sums, slopes, at);
    }
#pragma unroll
    for (int e = 0; e < 2; e++)
        store_row<DIM>((uint16_t *)a.dq + ((token0 + query + 8 * e) * a.n_heads + head) * DIM,
                       query + 8 * e < a.length, sums[0], e, a.scale);
}

/* ---- keys and values ---- */

/* Numbers of the queries of a step. */
template <int QUERIES> struct mma_stats {
    float lse[QUERIES], delta[QUERIES]; /* lse as a power of two; 0 weight where there is no query */
};

template <int QUERIES>
INLINE void fetch_stats(const self_attention_any_args &a, mma_stats<QUERIES> &s, int64_t token0,
                        int head, int query)
{
    int i = threadIdx.x % QUERIES;
    bool valid = query + i < a.length;
    int64_t at = head * a.tokens + token0 + (valid ? query + i : 0);
    if (threadIdx.x < QUERIES)
        s.lse[i] = valid ? a.lse_rows[at] * LOG2_E : INFINITY;
    else if (threadIdx.x < 2 * QUERIES)
        s.delta[i] = valid ? a.delta[at] : 0;
}

/* Scores to weights, gradients of weights to those of scores; rows are keys. */
template <int QUERIES>
INLINE void make_slopes(const self_attention_any_args &a, const mma_stats<QUERIES> &stats, int key,
                        int query, float (&w)[1][QUERIES / 2], float (&slope)[1][QUERIES / 2])
{
    int lane = threadIdx.x % WARP;
    float by = a.scale * LOG2_E;
    bool whole = all_seen(a, query, QUERIES, key, MINE);
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        int e = i / 2 % 2, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        bool seen = whole || is_seen(a, query + column, key + lane / 4 + 8 * e);
        w[0][i] = seen ? exp2_unit(w[0][i] * by - stats.lse[column]) : 0;
        slope[0][i] = seen ? w[0][i] * (slope[0][i] - stats.delta[column]) : 0;
    }
}

template <int DIM> INLINE void make_dkv(const self_attention_any_args &a)
{
    extern __shared__ __align__(256) char memory[];
    enum { QUERIES = SELF_MMA_STEP(DIM), BYTES = QUERIES * DIM * 2, STAGE = 2 * BYTES };
    __shared__ mma_stats<QUERIES> stats[2]; /* of this step and the next */
    uint32_t k_at = shared_at(memory), v_at = k_at + TILE * DIM * 2;
    uint32_t at = v_at + TILE * DIM * 2; /* a stage: queries, then gradients of results */
    int kv_heads = a.n_heads / a.group, pair = (int)(blockIdx.x / (uint32_t)a.tiles);
    int first = (int)(blockIdx.x % (uint32_t)a.tiles) * TILE, kv_head = pair % kv_heads;
    int64_t token0 = (int64_t)(pair / kv_heads) * a.length;
    int row = (int)threadIdx.x / WARP * MINE, lane = threadIdx.x % WARP;
    int end = min((int64_t)a.length, (int64_t)first + TILE - 1 + a.window); /* behind the last one */
    int head = kv_head * a.group, last_head = head + a.group - 1, query = first; /* of a step */
    float dk[1][DIM / 2], dv[1][DIM / 2];
    auto fetch = [&](uint32_t to) {
        fetch_rows<DIM, QUERIES>(to, rows_of<DIM>(a.q, token0, a.length, a.n_heads, head), query);
        fetch_rows<DIM, QUERIES>(to + BYTES,
                                 rows_of<DIM>(a.dout, token0, a.length, a.n_heads, head), query);
    };
    wait_for_input();
    let_next_start();
    fetch_rows<DIM, TILE>(k_at, rows_of<DIM>(a.k, token0, a.length, kv_heads, kv_head), first);
    fetch_rows<DIM, TILE>(v_at, rows_of<DIM>(a.v, token0, a.length, kv_heads, kv_head), first);
    fetch(at);
    copy_commit();
    fetch_stats(a, stats[0], token0, head, query);
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) dk[0][i] = dv[0][i] = 0;
    for (int n = 0, next = STAGE, more = true; more; n ^= 1, at += next, next = -next) {
        int now = query;
        float w[1][QUERIES / 2], slope[1][QUERIES / 2];
        uint32_t weights[1][QUERIES / 4], slopes[1][QUERIES / 4];
        copy_wait<0>();
        __syncthreads(); /* and nobody reads the other stage any more */
        query += QUERIES;
        if (query >= end) query = first, more = head++ < last_head;
        if (more) {
            fetch(at + next);
            fetch_stats(a, stats[n ^ 1], token0, head, query);
        }
        copy_commit();
        rows_by_rows<DIM, 1, QUERIES>(w, k_at, row, at);
        rows_by_rows<DIM, 1, QUERIES>(slope, v_at, row, at + BYTES);
        make_slopes(a, stats[n], first + row, now, w, slope);
        pack_weights<1, QUERIES>(weights, w);
        pack_weights<1, QUERIES>(slopes, slope);
        weights_by_rows<DIM, 1, QUERIES>(dv, weights, at + BYTES);
        weights_by_rows<DIM, 1, QUERIES>(dk, slopes, at);
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int key = first + row + lane / 4 + 8 * e;
        int64_t at = ((token0 + key) * kv_heads + kv_head) * DIM;
        store_row<DIM>((uint16_t *)a.dk + at, key < a.length, dk[0], e, a.scale);
        store_row<DIM>((uint16_t *)a.dv + at, key < a.length, dv[0], e, 1);
    }
}

#define MMA_KERNELS(DIM)                                                                           \
    extern "C" __global__ void __launch_bounds__(SELF_MMA_DELTA_THREADS)                           \
        self_attention_mma_delta_##DIM(const __grid_constant__ self_attention_any_args a)          \
    {                                                                                              \
        make_delta<DIM>(a);                                                                        \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(SELF_MMA_THREADS, 2)                              \
        self_attention_mma_dq_##DIM(const __grid_constant__ self_attention_any_args a)             \
    {                                                                                              \
        make_dq<DIM>(a);                                                                           \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(SELF_MMA_THREADS, 2)                              \
        self_attention_mma_dkv_##DIM(const __grid_constant__ self_attention_any_args a)            \
    {                                                                                              \
        make_dkv<DIM>(a);                                                                          \
    }
MMA_KERNELS(128)
MMA_KERNELS(64)
