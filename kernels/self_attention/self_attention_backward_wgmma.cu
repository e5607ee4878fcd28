/* Gradients of causal attention of whole sequences on Hopper's tensor cores, in bf16: head_dim 64
 * or 128, sums in float32.
 *
 * A block has 128 keys of a sequence and their values, 64 for each of two warpgroups, which keep
 * the sums of dk and dv of theirs in registers; it goes through the tiles of queries that see them,
 * of each head that shares them. Scores and their gradients are transposed, keys by queries, so
 * that they are operands of dv and dk as they are. Gradients of scores go to shared memory too,
 * where each warpgroup takes half of the tile's dq from all 128 keys. A third warpgroup has a warp
 * that copies tiles in, and one for each half of dq that the copy engine adds to sums in float32.
 *
 * ordered: blocks add to a tile in the order of their keys, from the last ones on, and begin in
 * that order, each two tiles behind the one before: so nobody waits long, and sums are the same
 * each time. The first one writes. */
#include "self_attention/finish_dq.cuh"
#include "self_attention/self_attention.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    COMPUTING = 2,               /* warpgroups */
    HALF_KEYS = BACK_KEYS * 128, /* bytes: 64 dimensions of keys or values */
    SCORES_TURN = 1,             /* named barrier: of those that compute */
};

template <int DIM> struct back_kind {
    static constexpr int ROWS = BACK_ROWS(DIM), HALVES = DIM / 64;
    static constexpr int KEYS_BOX = HALVES * HALF_KEYS;
    static constexpr int HALF_ROWS = ROWS * 128, ROWS_BOX = BACK_TILE * 2; /* bytes */
    static constexpr int STATS = BACK_STATS(DIM) * 4;
    static constexpr int SUMS = ROWS / 2; /* scores of a thread */
    /* In shared memory. */
    static constexpr int K_AT = BACK_BARRIERS, V_AT = K_AT + KEYS_BOX, Q_AT = V_AT + KEYS_BOX;
    static constexpr int D_AT = Q_AT + BACK_Q_STAGES * ROWS_BOX;
    static constexpr int SCORES_AT = D_AT + BACK_D_STAGES * ROWS_BOX;
    static constexpr int DQ_AT = SCORES_AT + 2 * BACK_SCORES(DIM);
    static constexpr int STATS_AT = DQ_AT + BACK_TILE * 4;
    static_assert(STATS_AT + BACK_Q_STAGES * STATS + 1024 == BACK_SHARED(DIM), "the host's size");
};

struct back_shared {
    uint64_t keys, values;
    uint64_t q_full[BACK_Q_STAGES], q_empty[BACK_Q_STAGES];
    uint64_t d_full[BACK_D_STAGES], d_empty[BACK_D_STAGES];
    uint64_t dq_full[COMPUTING], dq_empty[COMPUTING];
};

/* What the block does: keys of tile k of a sequence's key head; tiles of queries from `low` to
 * `high` of the heads from `head` on. */
struct back_work {
    int sequence, kv_head, k, low, high;

    template <int ROWS> INLINE void find(const self_attention_backward_wgmma_args &a)
    {
        int pair = (int)(blockIdx.x / (uint32_t)a.k_tiles),
            place = (int)(blockIdx.x % (uint32_t)a.k_tiles);
        int heads = a.n_heads / a.group;
        sequence = pair / heads;
        kv_head = pair % heads;
        k = a.ordered ? a.k_tiles - 1 - place : place;
        low = k * BACK_KEYS / ROWS;
        high = min(a.q_tiles, (min(a.length, (k + 1) * BACK_KEYS) - 1 + a.window - 1) / ROWS + 1);
    }
};

template <int STAGES> struct stage_at {
    uint32_t stage, phase;
    INLINE void next()
    {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

/* ---- one thread copies in ---- */

template <int DIM>
INLINE void back_feed(const self_attention_backward_wgmma_args &a, const back_work &w,
                      back_shared &s, uint32_t base)
{
    typedef back_kind<DIM> K;
    uint32_t keys = shared_address(&s.keys), values = shared_address(&s.values);
    stage_at<BACK_Q_STAGES> q_at = {0, 0};
    stage_at<BACK_D_STAGES> d_at = {0, 0};
    barrier_expect(keys, K::KEYS_BOX);
    copy_box_4d(base + K::K_AT, a.k, 0, w.k * BACK_KEYS, w.kv_head * K::HALVES, w.sequence, keys);
    for (int head = w.kv_head * a.group; head < (w.kv_head + 1) * a.group; head++) {
        const float *stats =
            a.stats + ((int64_t)w.sequence * a.n_heads + head) * a.q_tiles * BACK_STATS(DIM);
        for (int i = w.low; i < w.high; i++) {
            uint32_t q = shared_address(&s.q_full[q_at.stage]),
                     d = shared_address(&s.d_full[d_at.stage]);
            barrier_wait(shared_address(&s.q_empty[q_at.stage]), q_at.phase ^ 1);
            barrier_expect(q, K::ROWS_BOX + K::STATS);
            copy_box_4d(base + K::Q_AT + q_at.stage * K::ROWS_BOX, a.q, 0, i * K::ROWS,
                        head * K::HALVES, w.sequence, q);
            copy_in(base + K::STATS_AT + q_at.stage * K::STATS, stats + i * BACK_STATS(DIM),
                    K::STATS, q);
            if (i == w.low && head == w.kv_head * a.group) {
                barrier_expect(values, K::KEYS_BOX);
                copy_box_4d(base + K::V_AT, a.v, 0, w.k * BACK_KEYS, w.kv_head * K::HALVES,
                            w.sequence, values);
            }
            barrier_wait(shared_address(&s.d_empty[d_at.stage]), d_at.phase ^ 1);
            barrier_expect(d, K::ROWS_BOX);
            copy_box_4d(base + K::D_AT + d_at.stage * K::ROWS_BOX, a.dout, 0, i * K::ROWS,
                        head * K::HALVES, w.sequence, d);
            q_at.next();
            d_at.next();
        }
    }
}

/* ---- one thread for each half of dq has it added ---- */

template <int DIM>
INLINE void back_add(const self_attention_backward_wgmma_args &a, const back_work &w,
                     back_shared &s, uint32_t base, int half)
{
    enum { HALF = BACK_TILE / 2 };
    const int ROWS = BACK_ROWS(DIM);
    uint32_t from = base + back_kind<DIM>::DQ_AT + half * HALF * 4, phase = 0;
    for (int head = w.kv_head * a.group; head < (w.kv_head + 1) * a.group; head++) {
        for (int i = w.low; i < w.high; i++, phase ^= 1) {
            int64_t tile = ((int64_t)w.sequence * a.n_heads + head) * a.q_tiles + i;
            float *to = a.sums + tile * BACK_TILE + half * HALF;
            uint32_t *turn = a.turns + 2 * tile + half;
            uint32_t place = (uint32_t)((min((i + 1) * ROWS, a.length) - 1) / BACK_KEYS - w.k);
            barrier_wait(shared_address(&s.dq_full[half]), phase);
            if (a.ordered) turn_wait(turn, place);
            if (a.ordered && place == 0)
                copy_out(to, from, HALF * 4);
            else
                add_out(to, from, HALF * 4);
            copy_out_commit();
            copy_out_read();
            barrier_arrive(shared_address(&s.dq_empty[half]));
            if (!a.ordered) continue;
            copy_out_done();
            turn_set(turn, place + 1);
        }
    }
    copy_out_done();
}

/* ---- the warpgroups that compute ---- */

template <int DIM> struct back_computer {
    typedef back_kind<DIM> K;
    static constexpr int STEPS = K::ROWS / 16; /* of k, of products over queries */
    static constexpr bool WIDE = DIM == 128;
    typedef uint32_t fragments[STEPS][4];
    const self_attention_backward_wgmma_args &a;
    back_shared &s;
    const float *stats; /* of all stages */
    uint32_t base;
    int group;
    float scale; /* of scores, as powers of two */

    /* Scores, or their gradients: 64 keys of this warpgroup by the tile's rows. */
    INLINE void begin_scores(float (&d)[K::SUMS], uint32_t keys, uint32_t rows)
    {
        keys += group * 64 * 128;
        wgmma_fence();
        wgmma_product<K::ROWS, false>::shared(d, wgmma_operand(keys, 0), wgmma_operand(rows, 0));
#pragma unroll
        for (int i = 1; i < DIM / 16; i++)
            wgmma_product<K::ROWS, true>::shared(
                d, wgmma_operand(keys + i / 4 * HALF_KEYS, i % 4 * 16),
                wgmma_operand(rows + i / 4 * K::HALF_ROWS, i % 4 * 16));
        wgmma_commit();
    }

    INLINE void begin_sums(float (&d)[DIM / 2], const fragments &f, uint32_t rows)
    {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            wgmma_product<DIM, true>::registers_transposed(
                d, f[i], wgmma_operand_transposed<K::HALF_ROWS>(rows + i * 2048));
        wgmma_commit();
    }

    /* 64 rows and 64 dimensions of dq. */
    INLINE void begin_dq(float (&d)[32], uint32_t scores)
    {
        uint32_t from = scores + (DIM == 64 ? group * 64 * 128 : 0);
        uint32_t keys = base + K::K_AT + (DIM == 128 ? group * HALF_KEYS : 0);
        wgmma_fence();
        wgmma_product<64, false>::shared_transposed(d, wgmma_operand(from, 0),
                                                    wgmma_operand_transposed<16>(keys));
#pragma unroll
        for (int i = 1; i < BACK_KEYS / 16; i++)
            wgmma_product<64, true>::shared_transposed(
                d, wgmma_operand(from + i / 4 * K::HALF_ROWS, i % 4 * 16),
                wgmma_operand_transposed<16>(keys + i * 2048));
        wgmma_commit();
    }

    INLINE const float2 *lse_of(const stage_at<BACK_Q_STAGES> &at)
    {
        return (const float2 *)(stats + at.stage * BACK_STATS(DIM)) + threadIdx.x % 4;
    }

    /* What keys weigh, from scores. `key`: the thread's first one, in the sequence; `row` of the
     * tile. It always holds: without a branch the compiler moves the exponentials behind the waits
     * for the products that they are to run beside. */
    INLINE void weigh(float (&p)[K::SUMS], const float2 *lse, int key, int row, bool always)
    {
        int first = key - (int)threadIdx.x % WARP / 4 - (int)threadIdx.x % GROUP / WARP * 16;
        if (first + 63 > row || first + a.window < row + K::ROWS) {
#pragma unroll
            for (int i = 0; i < K::SUMS; i++) { /* key <= query < key + window */
                int query = row + i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
                if ((uint32_t)(query - key - i / 2 % 2 * 8) >= (uint32_t)a.window) p[i] = -INFINITY;
            }
        }
        if (!always) return;
#pragma unroll
        for (int j = 0; j < K::SUMS / 4; j++) {
            float2 l = lse[4 * j];
            p[4 * j] = exp2_unit(p[4 * j] * scale - l.x);
            p[4 * j + 1] = exp2_unit(p[4 * j + 1] * scale - l.y);
            p[4 * j + 2] = exp2_unit(p[4 * j + 2] * scale - l.x);
            p[4 * j + 3] = exp2_unit(p[4 * j + 3] * scale - l.y);
        }
    }

    INLINE void differentiate(float (&d)[K::SUMS], const float (&p)[K::SUMS], const float2 *delta,
                              bool always)
    {
        if (!always) return;
#pragma unroll
        for (int j = 0; j < K::SUMS / 4; j++) {
            float2 l = delta[4 * j];
            d[4 * j] = p[4 * j] * (d[4 * j] - l.x);
            d[4 * j + 1] = p[4 * j + 1] * (d[4 * j + 1] - l.y);
            d[4 * j + 2] = p[4 * j + 2] * (d[4 * j + 2] - l.x);
            d[4 * j + 3] = p[4 * j + 3] * (d[4 * j + 3] - l.y);
        }
    }

    INLINE void round_all(const float (&d)[K::SUMS], fragments &f)
    {
#pragma unroll
        for (int i = 0; i < K::SUMS / 2; i++)
            f[i / 4][i % 4] = f32_to_bf16x2(d[2 * i], d[2 * i + 1]);
    }

    /* Gradients of scores to shared memory: rows of 64 keys. */
    INLINE void put_scores(const fragments &f, uint32_t scores)
    {
        uint32_t lane = threadIdx.x % WARP, row = lane / 16 * 8 + lane % 8;
        uint32_t chunk = threadIdx.x % GROUP / WARP * 2 + lane / 8 % 2;
        uint32_t to = scores + group * K::HALF_ROWS + row * 128 + (chunk ^ row % 8) * 16;
#pragma unroll
        for (int i = 0; i < STEPS; i++) store_transposed(to + i * 16 * 128, f[i]);
        fence_for_copies();
    }

    INLINE void put_dq(const float (&d)[32], uint32_t phase)
    {
        uint32_t to = base + K::DQ_AT + group * BACK_TILE * 2 + threadIdx.x % GROUP * 16;
        barrier_wait(shared_address(&s.dq_empty[group]), phase ^ 1);
#pragma unroll
        for (int j = 0; j < 8; j++)
            store_shared_16(to + j * GROUP * 16, d[4 * j], d[4 * j + 1], d[4 * j + 2],
                            d[4 * j + 3]);
        fence_for_copies();
        barrier_arrive(shared_address(&s.dq_full[group]));
    }

    INLINE void release(const uint64_t &barrier)
    {
        if (threadIdx.x % WARP == 0) barrier_arrive(shared_address(&barrier));
    }

    /* dq of tiles whose sums are ready, while the block's own operands are on their way. */
    INLINE void finish_others()
    {
        int all = a.group * a.q_tiles, each = (all + a.k_tiles - 1) / a.k_tiles;
        int pair = (int)(blockIdx.x / (uint32_t)a.k_tiles) - a.lag;
        int from = (int)(blockIdx.x % (uint32_t)a.k_tiles) * each, to = min(all, from + each);
        if (!a.lag || pair < 0) return;
        for (int t = from + (int)threadIdx.x % WARP; t < to; t += WARP) {
            int row = t % a.q_tiles * K::ROWS, first = max(0, row - a.window + 1) / BACK_KEYS;
            int last = (min(row + K::ROWS, a.length) - 1) / BACK_KEYS;
            turn_wait(a.turns + 2 * ((int64_t)pair * all + t) + group,
                      (uint32_t)(last - first + 1));
        }
        __syncwarp();
        for (int t = from; t < to; t++) finish_dq<DIM>(a, pair * all + t);
    }

    INLINE void write(uint16_t *to, const back_work &w, int key, const float (&d)[DIM / 2],
                      float factor)
    {
        int heads = a.n_heads / a.group;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t token = (int64_t)w.sequence * a.length + key + 8 * h;
            write_row<DIM>(to + (token * heads + w.kv_head) * DIM, key + 8 * h < a.length, d, h,
                           factor);
        }
    }

    /* The first tile, none of whose rows sees this warpgroup's keys: only the other one's part of
     * dq. */
    INLINE void pass(const stage_at<BACK_Q_STAGES> &at, const stage_at<BACK_D_STAGES> &d_at)
    {
        const fragments none = {};
        float dq[32];
        put_scores(none, base + K::SCORES_AT);
        named_sync(SCORES_TURN, COMPUTING * GROUP);
        begin_dq(dq, base + K::SCORES_AT);
        wgmma_wait<0>();
        wgmma_settle(dq);
        put_dq(dq, 0);
        release(s.q_empty[at.stage]);
        release(s.d_empty[d_at.stage]);
    }

    /* All tiles. Products are started so that the tensor cores have work while exponentials and
     * gradients of scores are calculated, and each as late as its registers are needed: that for dk
     * beside the next tile's. No product runs where the loop begins, which the compiler would not
     * follow. */
    INLINE void differentiate_all(const back_work &w, int key, float (&dk)[DIM / 2],
                                  float (&dv)[DIM / 2])
    {
        float p[K::SUMS], dp[K::SUMS];
        stage_at<BACK_Q_STAGES> at = {0, 0};
        stage_at<BACK_D_STAGES> d_at = {0, 0};
        int steps = w.high - w.low, left = a.group * steps, tile = 0;
        uint32_t odd = 0;
        if (w.k * BACK_KEYS + group * 64 >= (w.low + 1) * K::ROWS) {
            pass(at, d_at);
            if (--left == 0) return;
            odd = 1;
            at.next();
            d_at.next();
            if (++tile == steps) tile = 0;
        }
        barrier_wait(shared_address(&s.q_full[at.stage]), 0);
        begin_scores(p, base + K::K_AT, base + K::Q_AT + at.stage * K::ROWS_BOX);
        barrier_wait(shared_address(&s.d_full[at.stage]), 0);
        begin_scores(dp, base + K::V_AT, base + K::D_AT + at.stage * K::ROWS_BOX);
        wgmma_wait<0>();
        wgmma_settle(p);
        wgmma_settle(dp);
        weigh(p, lse_of(at), key, (w.low + tile) * K::ROWS, true);
        differentiate(dp, p, lse_of(at) + K::ROWS / 2, true);
        for (int i = 0;;) {
            float dq[32];
            fragments weights, changes;
            uint32_t q = base + K::Q_AT + at.stage * K::ROWS_BOX,
                     scores = base + K::SCORES_AT + odd * BACK_SCORES(DIM);
            round_all(p, weights);
            begin_sums(dv, weights, base + K::D_AT + d_at.stage * K::ROWS_BOX);
            round_all(dp, changes);
            put_scores(changes, scores);
            named_sync(SCORES_TURN, COMPUTING * GROUP);
            begin_dq(dq, scores);
            wgmma_wait<0>();
            wgmma_settle(dv);
            wgmma_settle(dq);
            release(s.d_empty[d_at.stage]);
            if (++i == left) {
                begin_sums(dk, changes, q);
                put_dq(dq, odd);
                break;
            }
            uint32_t before = at.stage;
            at.next();
            d_at.next();
            if (++tile == steps) tile = 0;
            barrier_wait(shared_address(&s.q_full[at.stage]), at.phase);
            begin_scores(p, base + K::K_AT, base + K::Q_AT + at.stage * K::ROWS_BOX);
            put_dq(dq, odd);
            odd ^= 1;
            if (!WIDE) { /* registers for one of the two */
                begin_sums(dk, changes, q);
                wgmma_wait<0>();
            }
            barrier_wait(shared_address(&s.d_full[d_at.stage]), d_at.phase);
            begin_scores(dp, base + K::V_AT, base + K::D_AT + d_at.stage * K::ROWS_BOX);
            if (WIDE) begin_sums(dk, changes, q);
            wgmma_wait<WIDE ? 2 : 1>();
            wgmma_settle(p);
            weigh(p, lse_of(at), key, (w.low + tile) * K::ROWS, a.length > 0);
            wgmma_settle(p);
            wgmma_wait<WIDE ? 1 : 0>();
            wgmma_settle(dp);
            differentiate(dp, p, lse_of(at) + K::ROWS / 2, a.length > 0);
            wgmma_settle(dp);
            wgmma_wait<0>();
            wgmma_settle(dk);
            release(s.q_empty[before]);
        }
        wgmma_wait<0>();
        wgmma_settle(dk);
    }

    INLINE void compute(const back_work &w)
    {
        float dk[DIM / 2], dv[DIM / 2];
        finish_others();
        int key = w.k * BACK_KEYS + group * 64 + (int)threadIdx.x % GROUP / WARP * 16 +
                  (int)threadIdx.x % WARP / 4;
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) dk[i] = dv[i] = 0;
        barrier_wait(shared_address(&s.keys), 0);
        barrier_wait(shared_address(&s.values), 0);
        differentiate_all(w, key, dk, dv);
        write(a.dv, w, key, dv, 1);
        write(a.dk, w, key, dk, a.scale);
    }
};

template <int DIM> INLINE void backward(const self_attention_backward_wgmma_args &a)
{
    extern __shared__ char memory[];
    uint32_t base = (shared_address(memory) + 1023) & ~1023u;
    char *there = memory + (base - shared_address(memory));
    back_shared &s = *(back_shared *)there;
    int group = warp_uniform(threadIdx.x / GROUP), warp = warp_uniform(threadIdx.x / WARP);
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&s.keys), 1);
        barrier_init(shared_address(&s.values), 1);
        for (int i = 0; i < BACK_Q_STAGES; i++) {
            barrier_init(shared_address(&s.q_full[i]), 1);
            barrier_init(shared_address(&s.q_empty[i]), COMPUTING * GROUP / WARP);
        }
        for (int i = 0; i < BACK_D_STAGES; i++) {
            barrier_init(shared_address(&s.d_full[i]), 1);
            barrier_init(shared_address(&s.d_empty[i]), COMPUTING * GROUP / WARP);
        }
        for (int i = 0; i < COMPUTING; i++) {
            barrier_init(shared_address(&s.dq_full[i]), GROUP);
            barrier_init(shared_address(&s.dq_empty[i]), 1);
        }
        barrier_init_done();
    }
    back_work w;
    w.find<BACK_ROWS(DIM)>(a);
    __syncthreads();
    wait_for_input();
    let_next_start();
    if (group == COMPUTING) {
        registers_give<24>();
        if (threadIdx.x % WARP) return;
        if (warp == COMPUTING * GROUP / WARP)
            back_feed<DIM>(a, w, s, base);
        else if (warp <= COMPUTING * GROUP / WARP + COMPUTING)
            back_add<DIM>(a, w, s, base, warp - COMPUTING * GROUP / WARP - 1);
    } else {
        registers_take<240>();
        back_computer<DIM> c = {a,    s,     (const float *)(there + back_kind<DIM>::STATS_AT),
                                base, group, a.scale * LOG2_E};
        c.compute(w);
    }
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BACKWARD(dim) backward<dim>(a)
#else /* other architectures have no such instructions; the host does not choose these kernels     \
         there */
#define BACKWARD(dim) __trap()
#endif

extern "C" __global__ void __launch_bounds__(BACK_THREADS, 1)
    self_attention_backward_128(const __grid_constant__ self_attention_backward_wgmma_args a)
{
    BACKWARD(128);
}

extern "C" __global__ void __launch_bounds__(BACK_THREADS, 1)
    self_attention_backward_64(const __grid_constant__ self_attention_backward_wgmma_args a)
{
    BACKWARD(64);
}
