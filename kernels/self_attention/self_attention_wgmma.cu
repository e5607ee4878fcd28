/* Causal attention of whole sequences on Hopper's tensor cores, in bf16: head_dim 64 or 128, sums
 * in float32.
 *
 * A tile is 128 neighbouring rows with one head: 64 rows of a product for each of two warpgroups. A
 * third one feeds: one of its threads takes tiles from a counter and copies boxes of 128 keys, and
 * of their values, into a ring, and the queries of the next tile while this one is computed. Steps
 * go from the last keys to the first. While scores turn into weights the product of the last step's
 * weights and values runs; the two warpgroups take turns to start products, so that one's products
 * run beside the other's softmax.
 *
 * Tiles: those of a section of heads, whose keys and values fit into the L2 cache, with the most
 * steps first.
 *
 * Softmax: the reference that is subtracted from scores is a whole power of two in the weights, and
 * stays unless a score exceeds it by LIMIT: a step without such a score, which almost all are,
 * needs no maximum over threads and scales nothing. Since weights are floating-point numbers,
 * another reference changes only exponents. */
#include "self_attention/self_attention.cuh"
#include "self_attention/self_attention_wgmma_args.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define NOTHING (-1e30f) /* as reference: no key was seen so far */
#define LIMIT   60.0f    /* so that sums of values up to 2^50 stay finite */

enum {
    COMPUTING = 2,              /* warpgroups */
    SUMS = SELF_KEYS / 2,       /* scores of a thread: 2 rows, a quarter of the keys each */
    HALF_BOX = SELF_KEYS * 128, /* bytes: 64 dimensions */
    TURN = 1,                   /* named barriers, of each warpgroup */
};

template <int DIM> struct self_kind {
    static constexpr int HALVES = DIM / 64, BOX = HALVES * HALF_BOX, SLOTS = SELF_SLOTS(DIM);
};

/* A tile as those who compute get it. */
struct self_tile {
    int32_t pair, row, low,
        high; /* row: of the sequence; steps from high - 1 down to low. pair -1: the end */
};

struct self_shared {
    uint64_t full[8], empty[8];
    uint64_t q_full[2], q_empty[2];
    self_tile tile[2];
};
static_assert(sizeof(self_shared) <= SELF_BARRIERS, "before the boxes");

/* Where the next box of the ring is. */
template <int SLOTS> struct ring_at {
    uint32_t slot, phase;
    INLINE void next()
    {
        if (++slot == SLOTS) slot = 0, phase ^= 1;
    }
};

/* ---- one thread feeds ---- */

INLINE self_tile tile_of(const self_attention_wgmma_args &a, int index)
{
    int of_section = a.section * a.tiles, first = index / of_section * a.section;
    int heads = min(a.section, a.pairs - first), within = index % of_section;
    int row = (a.tiles - 1 - within / heads) * SELF_ROWS;
    int last = min(row + SELF_ROWS, a.length) - 1;
    return {first + within % heads, row, max(0, row - a.window + 1) / SELF_KEYS,
            last / SELF_KEYS + 1};
}

template <int DIM> struct self_feeder {
    typedef self_kind<DIM> K;
    const self_attention_wgmma_args &a;
    self_shared &s;
    uint32_t slots;
    ring_at<K::SLOTS> at;

    INLINE void put(const tensor_map &map, int step, int head, int sequence)
    {
        barrier_wait(shared_address(&s.empty[at.slot]), at.phase ^ 1);
        uint32_t full = shared_address(&s.full[at.slot]);
        barrier_expect(full, K::BOX);
        copy_box_4d(slots + at.slot * K::BOX, map, 0, step * SELF_KEYS, head * K::HALVES, sequence,
                    full);
        at.next();
    }

    INLINE void feed(uint32_t queries)
    {
        int all = a.pairs * a.tiles;
        at = {0, 0};
        for (uint32_t n = 0;; n++) {
            uint32_t entry = n % 2, full = shared_address(&s.q_full[entry]);
            int index = (int)atomicAdd(a.counter, 1u);
            barrier_wait(shared_address(&s.q_empty[entry]), (n / 2 & 1) ^ 1);
            if (index >= all) {
                if (index == all + (int)gridDim.x - 1) *a.counter = 0; /* all have seen the end */
                s.tile[entry].pair = -1;
                barrier_arrive(full);
                return;
            }
            self_tile t = tile_of(a, index);
            s.tile[entry] = t;
            int sequence = t.pair / a.n_heads, head = t.pair % a.n_heads, kv = head / a.group;
            barrier_expect(full, K::BOX);
            copy_box_4d(queries + entry * K::BOX, a.q, 0, t.row, head * K::HALVES, sequence, full);
            put(a.k, t.high - 1, kv, sequence);
            for (int j = t.high - 2; j >= t.low; j--) {
                put(a.k, j, kv, sequence);
                put(a.v, j + 1, kv, sequence);
            }
            put(a.v, t.low, kv, sequence);
        }
    }
};

/* ---- softmax ---- */

/* Of a thread's two rows, g and g + 8 of its warp. */
struct self_rows {
    float top[2];   /* the reference, or NOTHING */
    float total[2]; /* of this lane's keys */
};

/* What lies outside the keys that a row sees weighs nothing. */
INLINE void mask_scores(float (&s)[SUMS], int row, int base, int window)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int last = row + 8 * h - base - (int)(threadIdx.x % 4) * 2; /* key that the row sees */
        uint32_t behind = (uint32_t)(last - window);
#pragma unroll
        for (int i = 0; i < SUMS / 4; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) /* last - window < column <= last */
                if ((uint32_t)(8 * i + e) - behind - 1 >= (uint32_t)window)
                    s[4 * i + 2 * h + e] = -INFINITY;
    }
}

/* Whether some row has no reference, or a score too far above it. Positive numbers compare as
 * integers do; a reference so low that others matter is renewed every time. */
INLINE bool exceeds_reference(const self_rows &r, const float (&s)[SUMS], float scale)
{
    int highest[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < SUMS; i += 4)
#pragma unroll
        for (int h = 0; h < 2; h++)
            highest[h] = __vimax3_s32(highest[h], __float_as_int(s[i + 2 * h]),
                                      __float_as_int(s[i + 2 * h + 1]));
    return __any_sync(FULL_MASK, __int_as_float(highest[0]) * scale > r.top[0] + LIMIT ||
                                     __int_as_float(highest[1]) * scale > r.top[1] + LIMIT);
}

INLINE void renew_reference(self_rows &r, const float (&s)[SUMS], float scale, float (&change)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY;
#pragma unroll
        for (int i = 0; i < SUMS; i += 4) top = fmaxf(top, fmaxf(s[i + 2 * h], s[i + 2 * h + 1]));
        top = fmaxf(r.top[h], ceilf(quad_max(top) * scale));
        change[h] = exp2_unit(r.top[h] - top);
        r.top[h] = top;
        r.total[h] *= change[h];
    }
}

/* Scores to weights. True where a reference changed: then the sums so far are to be multiplied by
 * `change`. */
INLINE bool weigh(self_rows &r, float (&s)[SUMS], float scale, float (&change)[2], bool always)
{
    bool changes = exceeds_reference(r, s, scale);
    if (changes) renew_reference(r, s, scale, change);
    /* The condition always holds. Without a branch the compiler moves the exponentials behind the
     * wait for the products that they are to run beside. */
    if (always) {
        float sum[2][2];
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            s[i] = exp2_unit(s[i] * scale - r.top[i / 2 % 2]);
            sum[i / 2 % 2][i % 2] = i < 4 ? s[i] : sum[i / 2 % 2][i % 2] + s[i];
        }
        r.total[0] += sum[0][0] + sum[0][1];
        r.total[1] += sum[1][0] + sum[1][1];
    }
    wgmma_settle(s); /* before the products are waited for */
    return changes;
}

/* ---- the warpgroups that compute ---- */

template <int DIM> struct self_computer {
    typedef self_kind<DIM> K;
    const self_attention_wgmma_args &a;
    self_shared &s;
    uint32_t queries, slots; /* queries: of this warpgroup's tile */
    int group;
    ring_at<K::SLOTS> at;

    INLINE uint32_t take()
    {
        barrier_wait(shared_address(&s.full[at.slot]), at.phase);
        return slots + at.slot * K::BOX;
    }

    INLINE void release(uint32_t slot)
    {
        if (threadIdx.x % WARP == 0) barrier_arrive(shared_address(&s.empty[slot]));
    }

    INLINE void begin_scores(float (&scores)[SUMS], uint32_t q, uint32_t k)
    {
        wgmma_fence();
        wgmma_product<SELF_KEYS, false>::shared(scores, wgmma_operand(q, 0), wgmma_operand(k, 0));
#pragma unroll
        for (int i = 1; i < DIM / 16; i++)
            wgmma_product<SELF_KEYS, true>::shared(scores,
                                                   wgmma_operand(q + i / 4 * HALF_BOX, i % 4 * 16),
                                                   wgmma_operand(k + i / 4 * HALF_BOX, i % 4 * 16));
        wgmma_commit();
    }

    INLINE void begin_sums(float (&o)[DIM / 2], const uint32_t (&weights)[SUMS / 8][4], uint32_t v)
    {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < SELF_KEYS / 16; i++)
            wgmma_product<DIM, true>::registers_transposed(
                o, weights[i], wgmma_operand_transposed<HALF_BOX>(v + i * 2048));
        wgmma_commit();
    }

    INLINE void round_weights(const float (&scores)[SUMS], uint32_t (&weights)[SUMS / 8][4])
    {
#pragma unroll
        for (int i = 0; i < SUMS / 2; i++)
            weights[i / 4][i % 4] = f32_to_bf16x2(scores[2 * i], scores[2 * i + 1]);
    }

    /* All steps of a tile: leaves sums, and totals of whole rows. `row`: the thread's first. */
    INLINE void attend(const self_tile &t, uint32_t entry, uint32_t q, int row, self_rows &r,
                       float (&o)[DIM / 2])
    {
        uint32_t weights[SUMS / 8][4];
        float scores[SUMS], change[2];
        int first = t.row + group * 64;
        begin_scores(scores, q, take());
#pragma unroll
        for (int h = 0; h < 2; h++) r.top[h] = NOTHING, r.total[h] = 0;
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) o[i] = 0;
        wgmma_wait<0>();
        wgmma_settle(scores);
        release(at.slot);
        at.next();
        mask_scores(scores, row, (t.high - 1) * SELF_KEYS, a.window);
        weigh(r, scores, a.scale, change, true);
        round_weights(scores, weights);
        for (int j = t.high - 2; j >= t.low; j--) {
            uint32_t k = take(), k_slot = at.slot;
            named_sync(TURN + group, COMPUTING * GROUP);
            begin_scores(scores, q, k);
            at.next();
            begin_sums(o, weights, take());
            named_arrive(TURN + 1 - group, COMPUTING * GROUP);
            wgmma_wait<1>();
            wgmma_settle(scores);
            release(k_slot);
            if (j * SELF_KEYS < first + 64 - a.window)
                mask_scores(scores, row, j * SELF_KEYS, a.window);
            bool changed = weigh(r, scores, a.scale, change, j >= 0);
            wgmma_wait<0>();
            wgmma_settle(o);
            release(at.slot);
            at.next();
            if (changed)
#pragma unroll
                for (int i = 0; i < DIM / 2; i++) o[i] *= change[i / 2 % 2];
            round_weights(scores, weights);
        }
        if (threadIdx.x % WARP == 0) barrier_arrive(shared_address(&s.q_empty[entry]));
        begin_sums(o, weights, take());
#pragma unroll
        for (int h = 0; h < 2; h++) r.total[h] = quad_sum(r.total[h]);
        wgmma_wait<0>();
        wgmma_settle(o);
        release(at.slot);
        at.next();
    }

    INLINE void write(const self_tile &t, int row, const self_rows &r, const float (&o)[DIM / 2])
    {
        int sequence = t.pair / a.n_heads, head = t.pair % a.n_heads;
        float sink = a.sinks ? a.sinks[head] * LOG2_E : -INFINITY;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = fmaxf(r.top[h], sink), mine = exp2_unit(r.top[h] - top);
            float total = r.total[h] * mine + exp2_unit(sink - top);
            bool valid = row + 8 * h < a.length;
            int64_t token = (int64_t)sequence * a.length + row + 8 * h;
            if (valid && threadIdx.x % 4 == 0)
                a.lse[(int64_t)head * (a.pairs / a.n_heads) * a.length + token] =
                    (top + log2f(total)) * LN_2;
            write_row<DIM>(a.out + (token * a.n_heads + head) * DIM, valid, o, h, mine / total);
        }
    }

    INLINE void compute()
    {
        at = {0, 0};
        if (group) named_arrive(TURN, COMPUTING * GROUP); /* the first one has the first turn */
        for (uint32_t n = 0;; n++) {
            uint32_t entry = n % 2;
            barrier_wait(shared_address(&s.q_full[entry]), n / 2 & 1);
            self_tile t = s.tile[entry];
            t.pair = warp_uniform(t.pair), t.row = warp_uniform(t.row);
            t.low = warp_uniform(t.low), t.high = warp_uniform(t.high);
            if (t.pair < 0) break;
            int row = t.row + group * 64 + threadIdx.x % GROUP / WARP * 16 + threadIdx.x % WARP / 4;
            float o[DIM / 2];
            self_rows r;
            attend(t, entry, queries + entry * K::BOX + group * 64 * 128, row, r, o);
            write(t, row, r, o);
        }
        if (!group) named_sync(TURN, COMPUTING * GROUP);
    }
};

template <int DIM> INLINE void self_attention(const self_attention_wgmma_args &a)
{
    extern __shared__ char memory[];
    uint32_t base = (shared_address(memory) + 1023) & ~1023u, queries = base + SELF_BARRIERS;
    self_shared &s = *(self_shared *)(memory + (base - shared_address(memory)));
    uint32_t slots = queries + 2 * self_kind<DIM>::BOX;
    int group = warp_uniform(threadIdx.x / GROUP);
    if (threadIdx.x == 0) {
        for (int i = 0; i < SELF_SLOTS(DIM); i++) {
            barrier_init(shared_address(&s.full[i]), 1);
            barrier_init(shared_address(&s.empty[i]), COMPUTING * GROUP / WARP);
        }
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_address(&s.q_full[i]), 1);
            barrier_init(shared_address(&s.q_empty[i]), COMPUTING * GROUP / WARP);
        }
        barrier_init_done();
        prefetch_map(a.q);
        prefetch_map(a.k);
        prefetch_map(a.v);
    }
    __syncthreads();
    wait_for_input();
    let_next_start();
    if (group == COMPUTING) {
        registers_give<24>();
        if (threadIdx.x == COMPUTING * GROUP) {
            self_feeder<DIM> f = {a, s, slots};
            f.feed(queries);
        }
    } else {
        registers_take<240>();
        self_computer<DIM> c = {a, s, queries, slots, group};
        c.compute();
    }
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SELF_ATTENTION(dim) self_attention<dim>(a)
#else /* other architectures have no such instructions; the host does not choose these kernels     \
         there */
#define SELF_ATTENTION(dim) __trap()
#endif

extern "C" __global__ void __launch_bounds__(SELF_THREADS, 1)
    self_attention_wgmma_128(const __grid_constant__ self_attention_wgmma_args a)
{
    SELF_ATTENTION(128);
}

extern "C" __global__ void __launch_bounds__(SELF_THREADS, 1)
    self_attention_wgmma_64(const __grid_constant__ self_attention_wgmma_args a)
{
    SELF_ATTENTION(64);
}
