/* Attention of whole sequences and its gradients in float32, on any card, of any head_dim and type:
 * what faster kernels do not serve, and what training that must be exact runs on. A block has a tile
 * of 64 queries, or of 64 keys for the gradients of keys and values, and 128 dimensions of their
 * results; scores go over all dimensions. Nothing depends on the order of blocks. */
#include "self_attention/plain_tiles.cuh"

enum { MINE = PLAIN_MINE, TILE = PLAIN_TILE };

/* The block's place: a sequence and head, of queries or of keys; a tile; dimensions. */
struct plain_place {
    int head, first, from; /* first: of the tile, in the sequence */
    int64_t token0;        /* of the sequence */

    __device__ inline plain_place(const self_attention_any_args &a, int heads)
    {
        int64_t index = blockIdx.x / (uint32_t)a.chunks;
        from = (int)(blockIdx.x % (uint32_t)a.chunks) * PLAIN_DIMS;
        first = (int)(index % a.tiles) * TILE;
        index /= a.tiles;
        head = (int)(index % heads);
        token0 = index / heads * a.length;
    }
};

/* A tile of a matrix that has `heads` heads. */
__device__ inline plain_rows plain_tile(const self_attention_any_args &a, const void *data,
                                        uint32_t type, int heads, int head, int64_t token0,
                                        int first)
{
    int64_t stride = (int64_t)heads * a.head_dim;
    return {data,   (token0 + first) * stride + (int64_t)head * a.head_dim,
            stride, min((int)TILE, a.length - first),
            a.head_dim, (a.bf16 & type) != 0};
}

/* The first key that a query sees. */
__device__ inline int plain_begin(const self_attention_any_args &a, int query)
{
    return max(0, query - a.window + 1);
}

__device__ inline bool plain_sees(const self_attention_any_args &a, int query, int key)
{
    return key <= query && query - key < a.window && query < a.length;
}

/* ---- forward ---- */

/* What the rows of a tile have so far. */
struct plain_softmax {
    float top[MINE], total[MINE];
};

/* Scores to weights; sums so far to the new reference. */
__device__ inline void plain_weigh(const self_attention_any_args &a, plain_softmax &r, int query,
                                   int key, float (&s)[MINE][MINE], float (&sums)[MINE][8])
{
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        float top = r.top[i], total = 0;
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            bool seen = plain_sees(a, query + plain_row(i), key + plain_column(j));
            s[i][j] = seen ? s[i][j] * a.scale : -INFINITY;
            top = fmaxf(top, s[i][j]);
        }
        top = plain_row_max(top);
        float reference = top == -INFINITY ? 0 : top, scale = expf(r.top[i] - reference);
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            s[i][j] = expf(s[i][j] - reference);
            total += s[i][j];
        }
        r.total[i] = r.total[i] * scale + plain_row_sum(total);
        r.top[i] = top;
#pragma unroll
        for (int d = 0; d < 8; d++) sums[i][d] *= scale;
    }
}

KERNEL_OF(PLAIN_THREADS, self_attention_any, self_attention_any_args)
{
    __shared__ __align__(16) plain_shared s;
    wait_for_input();
    let_next_start();
    plain_place p(a, a.n_heads);
    int kv_heads = a.n_heads / a.group, kv_head = p.head / a.group;
    plain_rows q = plain_tile(a, a.q, SELF_Q, a.n_heads, p.head, p.token0, p.first);
    float sums[MINE][8] = {}, factor[MINE];
    plain_softmax r;
    for (int i = 0; i < MINE; i++) r.top[i] = -INFINITY, r.total[i] = 0;
    for (int key = plain_begin(a, p.first) / TILE * TILE; key <= p.first; key += TILE) {
        float scores[MINE][MINE];
        plain_rows k = plain_tile(a, a.k, SELF_K, kv_heads, kv_head, p.token0, key);
        plain_rows v = plain_tile(a, a.v, SELF_V, kv_heads, kv_head, p.token0, key);
        plain_product(s, q, k, scores);
        plain_weigh(a, r, p.first, key, scores, sums);
        plain_keep(s, scores);
        plain_sum(s, v, p.from, sums);
    }
    for (int i = 0; i < MINE; i++) {
        float sink = a.sinks ? a.sinks[p.head] : -INFINITY, top = fmaxf(r.top[i], sink);
        float scale = expf(r.top[i] - top), total = r.total[i] * scale + expf(sink - top);
        factor[i] = scale / total;
        if (p.from == 0 && threadIdx.x % PLAIN_LANES == 0 && plain_row(i) < q.count)
            a.lse[p.head * a.tokens + p.token0 + p.first + plain_row(i)] = top + logf(total);
    }
    plain_store(a.out, q, a.bf16 & SELF_OUT, p.from, sums, factor);
}

/* ---- gradients ---- */

/* delta of the rows of a tile and head. */
KERNEL_OF(PLAIN_THREADS, self_attention_any_delta, self_attention_any_args)
{
    wait_for_input();
    let_next_start();
    plain_place p(a, a.n_heads);
    if (p.from) return;
    plain_rows x = plain_tile(a, a.out_rows, SELF_OUT, a.n_heads, p.head, p.token0, p.first);
    plain_rows y = plain_tile(a, a.dout, SELF_DOUT, a.n_heads, p.head, p.token0, p.first);
    for (int row = threadIdx.x / WARP; row < x.count; row += PLAIN_THREADS / WARP) {
        float sum = 0;
        for (int d = threadIdx.x % WARP; d < a.head_dim; d += WARP)
            sum = fmaf(x.at(row, d), y.at(row, d), sum);
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) a.delta[p.head * a.tokens + p.token0 + p.first + row] = sum;
    }
}

/* The weight of a score, and its gradient, whose product with the other side's rows is the gradient
 * of this side's. */
__device__ inline float plain_weight(const self_attention_any_args &a, bool seen, float score,
                                     float lse)
{
    return seen ? expf(score * a.scale - lse) : 0;
}

__device__ inline float plain_slope(float weight, float dp, float delta)
{
    return weight == 0 ? 0 : weight * (dp - delta);
}

KERNEL_OF(PLAIN_THREADS, self_attention_any_dq, self_attention_any_args)
{
    __shared__ __align__(16) plain_shared s;
    wait_for_input();
    let_next_start();
    plain_place p(a, a.n_heads);
    int kv_heads = a.n_heads / a.group, kv_head = p.head / a.group;
    plain_rows q = plain_tile(a, a.q, SELF_Q, a.n_heads, p.head, p.token0, p.first);
    plain_rows dout = plain_tile(a, a.dout, SELF_DOUT, a.n_heads, p.head, p.token0, p.first);
    float sums[MINE][8] = {}, lse[MINE], delta[MINE], factor[MINE];
    for (int i = 0; i < MINE; i++) {
        int64_t at = p.head * a.tokens + p.token0 + p.first + min(plain_row(i), q.count - 1);
        lse[i] = a.lse_rows[at], delta[i] = a.delta[at], factor[i] = a.scale;
    }
    for (int key = plain_begin(a, p.first) / TILE * TILE; key <= p.first; key += TILE) {
        float scores[MINE][MINE], dp[MINE][MINE];
        plain_rows k = plain_tile(a, a.k, SELF_K, kv_heads, kv_head, p.token0, key);
        plain_product(s, q, k, scores);
        plain_product(s, dout, plain_tile(a, a.v, SELF_V, kv_heads, kv_head, p.token0, key), dp);
        for (int i = 0; i < MINE * MINE; i++) {
            int row = i / MINE, column = i % MINE;
            bool seen = plain_sees(a, p.first + plain_row(row), key + plain_column(column));
            float weight = plain_weight(a, seen, scores[row][column], lse[row]);
            scores[row][column] = plain_slope(weight, dp[row][column], delta[row]);
        }
        plain_keep(s, scores);
        plain_sum(s, k, p.from, sums);
    }
    plain_store(a.dq, q, a.bf16 & SELF_DQ, p.from, sums, factor);
}

/* What a tile of queries of head `head` adds to the gradients of the block's keys and values. */
__device__ inline void plain_add_queries(const self_attention_any_args &a, plain_shared &s,
                                         const plain_place &p, int head, int query,
                                         float (&dk)[MINE][8], float (&dv)[MINE][8])
{
    int kv_heads = a.n_heads / a.group;
    plain_rows k = plain_tile(a, a.k, SELF_K, kv_heads, p.head, p.token0, p.first);
    plain_rows v = plain_tile(a, a.v, SELF_V, kv_heads, p.head, p.token0, p.first);
    plain_rows q = plain_tile(a, a.q, SELF_Q, a.n_heads, head, p.token0, query);
    plain_rows dout = plain_tile(a, a.dout, SELF_DOUT, a.n_heads, head, p.token0, query);
    float w[MINE][MINE], slope[MINE][MINE];
    plain_product(s, k, q, w);
    plain_product(s, v, dout, slope);
    for (int j = 0; j < MINE; j++) {
        int column = plain_column(j);
        int64_t at = head * a.tokens + p.token0 + query + min(column, q.count - 1);
        float lse = a.lse_rows[at], delta = a.delta[at];
        for (int i = 0; i < MINE; i++) {
            bool seen = plain_sees(a, query + column, p.first + plain_row(i));
            w[i][j] = plain_weight(a, seen, w[i][j], lse);
            slope[i][j] = plain_slope(w[i][j], slope[i][j], delta);
        }
    }
    plain_keep(s, w);
    plain_sum(s, dout, p.from, dv);
    plain_keep(s, slope);
    plain_sum(s, q, p.from, dk);
}

KERNEL_OF(PLAIN_THREADS, self_attention_any_dkv, self_attention_any_args)
{
    __shared__ __align__(16) plain_shared s;
    wait_for_input();
    let_next_start();
    int kv_heads = a.n_heads / a.group;
    plain_place p(a, kv_heads);
    plain_rows k = plain_tile(a, a.k, SELF_K, kv_heads, p.head, p.token0, p.first);
    float dk[MINE][8] = {}, dv[MINE][8] = {};
    int end = min(a.length, p.first + k.count - 1 + a.window); /* behind the last that sees one */
    for (int head = p.head * a.group; head < (p.head + 1) * a.group; head++)
        for (int query = p.first; query < end; query += TILE)
            plain_add_queries(a, s, p, head, query, dk, dv);
    float scale[MINE], one[MINE];
    for (int i = 0; i < MINE; i++) scale[i] = a.scale, one[i] = 1;
    plain_store(a.dk, k, a.bf16 & SELF_DK, p.from, dk, scale);
    plain_store(a.dv, k, a.bf16 & SELF_DV, p.from, dv, one);
}

/* dsinks of a head, a block each. */
KERNEL_OF(PLAIN_THREADS, self_attention_any_sinks, self_attention_any_args)
{
    __shared__ float scratch[PLAIN_THREADS / WARP];
    wait_for_input();
    let_next_start();
    int64_t row0 = blockIdx.x * a.tokens;
    float sink = a.sinks[blockIdx.x], sum = 0;
    for (int64_t i = threadIdx.x; i < a.tokens; i += PLAIN_THREADS)
        sum += expf(sink - a.lse_rows[row0 + i]) * a.delta[row0 + i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) a.dsinks[blockIdx.x] -= sum;
}
