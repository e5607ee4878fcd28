/* Attention of many rows on tensor cores through mma.sync and cp.async, which every architecture
 * from sm_80 on has: head_dim 64, eight query heads a key head, caches in f16 or bf16. Numbers,
 * softmax, cuts and joins are those of attention_prefill.cu, which says why; here is another way to
 * the same products.
 *
 * A tile is 16 neighbouring rows of one sequence with the eight heads of a key head: 128 rows of a
 * product, 32 for each of four warps, so that what a warp reads from shared memory serves two
 * products of 16 rows. A warp's are two rows of the batch from the tile's first half and two from
 * its second, as two warpgroups of attention_prefill would have them. Queries, scores, weights and
 * sums stay in registers.
 *
 * Keys lie transposed within blocks of 32 positions and values in rows: ldmatrix with .trans makes
 * the second operand of both. Steps of 64 positions, three in shared memory; two blocks share an
 * SM, so that one's exponentials run beside the other's products. */
#include "attention/prefill_work.cuh"
#include "cache.cuh"
#include "copy_async.cuh"
#include "mma.cuh"

enum {
    KEYS = MMA_PREFILL_KEYS,
    STAGES = MMA_PREFILL_STAGES,
    HALVES = MMA_PREFILL_GROUPS, /* products of 16 rows that a warp has */
    SCORES = KEYS / 2,           /* of a thread in one of them */
    DIM_STEPS = PREFILL_DIM / 16,
    KEY_STEPS = KEYS / 16,
    BLOCKS = KEYS / CACHE_BLOCK, /* of the cache, in a step */
    BLOCK_BYTES = CACHE_BLOCK * PREFILL_DIM * 2,
    HALF_STAGE = KEYS * PREFILL_DIM * 2, /* keys, then values */
    STAGE = 2 * HALF_STAGE,
};
static_assert((int)STAGES * STAGE == (int)MMA_PREFILL_SHARED && (int)GROUP == (int)MMA_PREFILL_THREADS,
              "one size");

template <int TYPE> __device__ inline void multiply(float *d, const uint32_t *a, const uint32_t *b);
template <>
__device__ inline void multiply<DTYPE_F16>(float *d, const uint32_t *a, const uint32_t *b)
{
    mma_f16(d, a, b);
}
template <>
__device__ inline void multiply<DTYPE_BF16>(float *d, const uint32_t *a, const uint32_t *b)
{
    mma_bf16(d, a, b);
}

/* ---- a step of keys and values ---- */

/* Positions from `base` on; behind the last block comes nothing: that one again, whose rows are
 * masked. Rows of 64 bytes (a dimension of keys) and of 128 (a position's value), swizzled. */
__device__ inline void fetch(const attention_prefill_args &a, const prefill_piece &p, int base,
                             uint32_t to)
{
    enum { EACH = BLOCK_BYTES / 16 / MMA_PREFILL_THREADS };
    int last = (p.position + p.count - 1) / CACHE_BLOCK * CACHE_BLOCK, thread = threadIdx.x;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        int from = min(last, base + b * CACHE_BLOCK);
        const char *k =
            (const char *)a.cache.k + 2 * cache_k_index(a.cache, p.sequence, p.head, from);
        const char *v =
            (const char *)a.cache.v + 2 * cache_v_index(a.cache, p.sequence, p.head, from);
        uint32_t block = to + b * BLOCK_BYTES;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int at = i * MMA_PREFILL_THREADS + thread;
            copy_16(block + at / 4 * 64 + (at % 4 ^ at / 8 % 4) * 16, k + at * 16);
            copy_16(block + HALF_STAGE + at / 8 * 128 + (at % 8 ^ at / 8 % 8) * 16, v + at * 16);
        }
    }
}

/* ---- what a warp has ---- */

struct warp_rows {
    softmax_rows r[HALVES];
    uint32_t q[HALVES][DIM_STEPS][4];
    float o[HALVES][SUMS];
};

/* Its first row in the tile. */
__device__ inline int first_row(int half)
{
    return half * GROUP_ROWS + threadIdx.x / WARP * 2;
}

/* Scores come out as powers of two. */
template <int TYPE>
__device__ inline void start_rows(const attention_prefill_args &a, const prefill_piece &p,
                                  warp_rows &w)
{
    int lane = threadIdx.x % WARP, head = p.head * PREFILL_HEADS + lane / 4;
    float scale = a.scale * LOG2_E;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = min(first_row(half) + h, p.count - 1);
            const float *q = a.q + ((int64_t)(p.row + row) * a.n_heads + head) * PREFILL_DIM;
#pragma unroll
            for (int i = 0; i < 2 * DIM_STEPS; i++) {
                float2 x = __ldg((const float2 *)q + 4 * i + lane % 4);
                w.q[half][i / 2][i % 2 * 2 + h] =
                    prefill_number<TYPE>::pair(x.x * scale, x.y * scale);
            }
            w.r[half].end[h] = p.position + row + 1;
            w.r[half].top[h] = NOTHING;
            w.r[half].total[h] = 0;
        }
#pragma unroll
        for (int i = 0; i < SUMS; i++) w.o[half][i] = 0;
    }
}

/* ---- products ---- */

/* Of all queries and the keys of the stage at `k`. */
template <int TYPE>
__device__ inline void make_scores(const warp_rows &w, uint32_t k, float (&s)[HALVES][SCORES])
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t at = k + lane % 16 * 64 + ((lane / 16 ^ lane / 2) % 4) * 16;
#pragma unroll
    for (int i = 0; i < HALVES * SCORES; i++) s[i / SCORES][i % SCORES] = 0;
#pragma unroll
    for (int d = 0; d < DIM_STEPS; d++)
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) { /* 16 positions */
            uint32_t b[4];
            load_transposed(b, (at ^ n % 2 * 32) + n / 2 * BLOCK_BYTES + d * 16 * 64);
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                multiply<TYPE>(s[half] + 8 * n, w.q[half][d], b);
                multiply<TYPE>(s[half] + 8 * n + 4, w.q[half][d], b + 2);
            }
        }
}

/* Scores to weights, and sums so far to the reference that they are relative to. */
template <int TYPE>
__device__ inline void weigh(softmax_rows &r, float (&s)[SCORES], float (&o)[SUMS], int base,
                             int window)
{
    if (base < first_seen(r.end[1], window) || base + KEYS > r.end[0])
        mask_scores(r, s, base, window);
    if (exceeds_reference<TYPE>(r, s)) {
        float scale[2];
        renew_reference<TYPE>(r, s, scale);
#pragma unroll
        for (int i = 0; i < SUMS; i++) o[i] *= scale[i / 2 % 2];
    }
    float sum[2][2];
#pragma unroll
    for (int i = 0; i < SCORES; i++) {
        s[i] = exp2_unit(s[i] - r.top[i / 2 % 2]);
        sum[i / 2 % 2][i % 2] = i < 4 ? s[i] : sum[i / 2 % 2][i % 2] + s[i];
    }
    r.total[0] += sum[0][0] + sum[0][1];
    r.total[1] += sum[1][0] + sum[1][1];
}

/* Adds the products of weights and the values of the stage at `v`. */
template <int TYPE>
__device__ inline void add_values(warp_rows &w, uint32_t v, const float (&s)[HALVES][SCORES])
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t at = v + lane % 16 * 128 + (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int k = 0; k < KEY_STEPS; k++) {
        uint32_t weights[HALVES][4];
#pragma unroll
        for (int i = 0; i < 4 * HALVES; i++)
            weights[i / 4][i % 4] = prefill_number<TYPE>::pair(s[i / 4][8 * k + 2 * (i % 4)],
                                                               s[i / 4][8 * k + 2 * (i % 4) + 1]);
#pragma unroll
        for (int n = 0; n < PREFILL_DIM / 16; n++) { /* 16 dimensions */
            uint32_t b[4];
            load_transposed(b, (at ^ n * 32) + k * 16 * 128);
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                multiply<TYPE>(w.o[half] + 8 * n, weights[half], b);
                multiply<TYPE>(w.o[half] + 8 * n + 4, weights[half], b + 2);
            }
        }
    }
}

/* All steps of a piece, last to first. Nobody reads shared memory any more when it is called. */
template <int TYPE>
__device__ inline void attend(const attention_prefill_args &a, const prefill_piece &p,
                              uint32_t stages, warp_rows &w)
{
    int steps = p.high - p.low, base = p.begin + (p.high - 1) * KEYS, stage = 0;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < steps) fetch(a, p, base - i * KEYS, stages + i * STAGE);
        copy_commit();
    }
    start_rows<TYPE>(a, p, w);
    for (int n = 0; n < steps; n++, base -= KEYS) {
        float s[HALVES][SCORES];
        uint32_t at = stages + stage * STAGE;
        copy_wait<STAGES - 2>();
        __syncthreads();
        int next = stage == 0 ? STAGES - 1 : stage - 1; /* the stage that was read last */
        if (n + STAGES - 1 < steps) fetch(a, p, base - (STAGES - 1) * KEYS, stages + next * STAGE);
        copy_commit();
        make_scores<TYPE>(w, at, s);
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            weigh<TYPE>(w.r[half], s[half], w.o[half], base, a.window);
        add_values<TYPE>(w, at + HALF_STAGE, s);
        if (++stage == STAGES) stage = 0;
    }
#pragma unroll
    for (int i = 0; i < 2 * HALVES; i++)
        w.r[i / 2].total[i % 2] = quad_sum(w.r[i / 2].total[i % 2]);
}

__device__ inline void write_results(const attention_prefill_args &a, const prefill_piece &p,
                                     const warp_rows &w)
{
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        int first = first_row(half);
        if (first >= p.count) continue;
        if (p.slot < 0)
            list_again(a, p, first,
                       write_rows(a, p.row + first, p.count - first, p.head, w.r[half], w.o[half]));
        else
            write_part(part_at(a, p.slot, half, HALVES), w.r[half], w.o[half]);
    }
}

/* The block's pieces: thread 0 finds the next one while the others begin with this one. */
struct mma_shared {
    piece_source source;
    prefill_piece held[2], pieces[2];
    bool more[2];
};

template <int TYPE> __device__ inline void prefill(const attention_prefill_args &a)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ mma_shared s;
    uint32_t stages = shared_at(memory);
    wait_for_input();
    let_next_start();
    if (threadIdx.x < WARP) {
        piece_source source;
        source.start(a);
        if (threadIdx.x == 0) {
            s.source = source;
            s.more[0] = s.source.next(a, s.held, s.pieces[0]);
        }
    }
    for (int n = 0;; n ^= 1) {
        __syncthreads();
        if (!s.more[n]) return;
        if (threadIdx.x == 0) s.more[n ^ 1] = s.source.next(a, s.held, s.pieces[n ^ 1]);
        warp_rows w;
        attend<TYPE>(a, s.pieces[n], stages, w);
        write_results(a, s.pieces[n], w);
    }
}

extern "C" __global__ void __launch_bounds__(MMA_PREFILL_THREADS, MMA_PREFILL_BLOCKS_PER_SM)
    attention_mma_f16(const __grid_constant__ attention_prefill_args a)
{
    prefill<DTYPE_F16>(a);
}

extern "C" __global__ void __launch_bounds__(MMA_PREFILL_THREADS, MMA_PREFILL_BLOCKS_PER_SM)
    attention_mma_bf16(const __grid_constant__ attention_prefill_args a)
{
    prefill<DTYPE_BF16>(a);
}
