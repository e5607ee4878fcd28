/* The experts of few rows: gate, up and swiglu, then the down projections of each slot. Activations are rounded to
 * bf16. Reading the weights is all that counts, so only experts with rows are read, each once for up to 8 of them
 * (a piece).
 *
 * The list of work is (piece, tile of 16 features), pieces by rising expert; every block, one an SM, takes an equal
 * stretch of it. 12 warps share the columns of two tiles at a time, those of gate and up or two neighbours of down,
 * with the next two such steps on their way in registers. They wait for nobody but for helpers: four warps that add
 * up what the 12 have for a step, while these multiply the next, and that bring the activations of the piece after.
 * A row's sums are made in the same order whatever rows are beside it. */
#include "copy_bulk.cuh"
#include "gemm/few_rows.cuh"
#include "moe/moe_few_args.h"
#include "moe/pieces.cuh"
#include "swiglu/swiglu.cuh"
#include "wgmma.cuh"
#include "words.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ON_HOPPER(...) __VA_ARGS__

enum {
    WARPS = MOE_FEW_WARPS,
    FINISHERS = MOE_FEW_HELPERS / 2, /* threads */
    BRINGERS = MOE_FEW_HELPERS - FINISHERS,
    UNITS = MOE_FEW_UNITS,
    AHEAD = 2,         /* steps on their way */
    BIASES = 2 * AHEAD, /* steps whose biases are there or on their way */
};
typedef mxfp4_weights weights;

/* What the warps have for a step, in dynamic shared memory behind the columns of two pieces. */
struct step_sums {
    float at[2][WARPS][MOE_FEW_COLUMNS][MOE_FEW_SUM_STRIDE];

    __device__ void put(uint32_t i, uint32_t warp, const float sum[4])
    {
        uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
        at[i][warp][2 * t][g] = sum[0];
        at[i][warp][2 * t + 1][g] = sum[1];
        at[i][warp][2 * t][g + 8] = sum[2];
        at[i][warp][2 * t + 1][g + 8] = sum[3];
    }
    /* Of features `feature` and the next. */
    __device__ float2 total(uint32_t i, uint32_t row, uint32_t feature) const
    {
        float2 sum = {0, 0};
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float2 v = *(const float2 *)&at[i][w][row][feature];
            sum.x += v.x, sum.y += v.y;
        }
        return sum;
    }
};

/* Barriers and tables of a block. A piece's columns lie in the half of its number's parity. */
struct block_state {
    piece_list<MOE_FEW_COLUMNS, EXPERT_ROWS_GROUPS_MAX, MOE_FEW_PIECES_MAX> pieces;
    int32_t tokens[EXPERT_ROWS_MAX];
    alignas(16) float bias[BIASES][2][FEATURES]; /* of a step */
    uint64_t there[2], left[2];                  /* the columns of a piece; nobody reads them any more */
    uint64_t biased[BIASES], multiplied, added;

    __device__ void init_barriers(bool up)
    {
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_address(&there[i]), up ? BRINGERS : 1);
            barrier_init(shared_address(&left[i]), WARPS);
        }
        for (int i = 0; i < BIASES; i++) barrier_init(shared_address(&biased[i]), 1);
        barrier_init(shared_address(&multiplied), WARPS);
        barrier_init(shared_address(&added), FINISHERS / WARP);
        barrier_init_done();
    }
};

/* Which of the two kernels: what it multiplies, and how many tiles of a matrix are a step. */
template <bool UP> struct product {
    enum { SIDE = UP ? 1 : 2 };
    const moe_few_args &a;
    uint32_t k, n, tiles;

    __device__ product(const moe_few_args &args)
        : a(args), k((uint32_t)(UP ? args.hidden : args.intermediate)),
          n((uint32_t)(UP ? args.intermediate : args.hidden)), tiles(tile_count(TILES_MXFP4, n))
    {
    }
    /* Codes of a step's tile i from this lane's share of a unit on, which is counted over all tiles, and scales: a
     * fourth of that. */
    __device__ const uint4 *codes(int i, uint32_t at) const
    {
        return (const uint4 *)(!UP ? a.down : i ? a.up : a.gate) + at;
    }
    __device__ const uint32_t *scales(int i, uint32_t at) const
    {
        return (const uint32_t *)(!UP ? a.down_scales : i ? a.up_scales : a.gate_scales) + at / 4;
    }
    __device__ bool has_bias() const { return (UP ? a.gate_bias : a.down_bias) != nullptr; }
    /* The biases of a step, by a thread. Loads would queue behind those of the weights. */
    __device__ void ask_bias(block_state &state, uint32_t s, const place &p) const
    {
        enum { EACH = FEATURES * sizeof(float) };
        if (!has_bias()) return;
        uint32_t to = shared_address(state.bias[s % BIASES]), barrier = shared_address(&state.biased[s % BIASES]);
        int64_t at = (int64_t)state.pieces[p.index].expert * n + p.tile * FEATURES;
        uint32_t count = UP ? 2 : p.take(SIDE);
        barrier_expect(barrier, count * EACH);
        copy_in(to, (UP ? a.gate_bias : a.down_bias) + at, UP ? EACH : count * EACH, barrier);
        if (UP) copy_in(to + EACH, a.up_bias + at, EACH, barrier);
    }
};

/* The warps that multiply. */
template <bool UP> struct multiplier {
    enum { SIDE = product<UP>::SIDE };
    const product<UP> &of;
    block_state &state;
    const char *columns;
    step_sums &sums;
    weights::window ring[AHEAD][UNITS][2];
    const char *x;   /* this lane's column of the piece */
    place now, next; /* next: whose weights are asked for */
    uint32_t first_piece, warp, units, own; /* own: units of this warp in a tile */

    __device__ multiplier(const product<UP> &p, block_state &s, const char *c, step_sums &to, const place &start)
        : of(p), state(s), columns(c), sums(to), x(c), now(start), next(start), first_piece(start.index),
          warp(threadIdx.x / WARP), units(unit_count(p.k)), own((units + WARPS - 1 - warp) / WARPS)
    {
    }
    /* The weights of the next step. Where it has one tile, this is read twice, and nobody looks at the second sum. */
    struct source {
        const uint4 *codes[2];
        const uint32_t *scales[2];

        __device__ source(const multiplier &m)
        {
            uint32_t tile = m.state.pieces[m.next.index].expert * m.of.tiles + m.next.tile;
            uint32_t at = (tile * m.units + m.warp) * WARP + threadIdx.x % WARP;
            uint32_t other = UP || m.next.take(SIDE) < SIDE ? at : at + m.units * WARP;
            codes[0] = m.of.codes(0, at), codes[1] = m.of.codes(1, other);
            scales[0] = m.of.scales(0, at), scales[1] = m.of.scales(1, other);
#pragma unroll
            for (int i = 0; i < 2; i++) keep(codes[i]), keep(scales[i]);
        }
        __device__ void fetch(weights::window to[2], int d) const
        {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                to[i].codes = load_once(codes[i] + d * (WARPS * UNIT_BYTES / 16));
                to[i].scales = __ldg(scales[i] + d * (WARPS * UNIT_SCALES_MXFP4 / 4));
            }
        }
    };
    __device__ void open()
    {
#pragma unroll
        for (int h = 0; h < AHEAD; h++) {
            if (!next.inside()) return;
            source from(*this);
#pragma unroll
            for (uint32_t d = 0; d < UNITS; d++)
                if (d < own) from.fetch(ring[h][d], d);
            if (threadIdx.x == 0) of.ask_bias(state, h, next);
            next.advance(SIDE);
        }
    }
    __device__ void enter(uint32_t number)
    {
        uint32_t bytes = column_bytes<weights>(of.k), column = threadIdx.x % WARP / 4 % state.pieces[now.index].count;
        if (!UP || number) barrier_wait(shared_address(&state.there[number % 2]), number / 2 % 2);
        x = columns + (number % 2 * MOE_FEW_COLUMNS + column) * bytes + warp * weights::COLUMN_STEP +
            weights::lane_at(threadIdx.x % 4, warp);
    }
    /* Step number s, the weights of which are in the ring's part h. */
    __device__ void step(int h, uint32_t s)
    {
        static_assert(WARPS % 4 == 0, "lane_at is the same for all of a warp's units");
        uint32_t number = now.index - first_piece;
        if (s == 0 || now.tile == 0) enter(number);
        bool more = next.inside(), tells = threadIdx.x % WARP == 0;
        if (more && threadIdx.x == 0) of.ask_bias(state, s + AHEAD, next);
        source from(*this);
        float sum[2][4] = {};
#pragma unroll
        for (uint32_t d = 0; d < UNITS; d++) {
            if (d >= own) break;
            weights::fragment f = weights::columns_at(x + d * (WARPS * weights::COLUMN_STEP));
            weights::multiply(sum[0], ring[h][d][0], f);
            weights::multiply(sum[1], ring[h][d][1], f);
            if (more) from.fetch(ring[h][d], d);
        }
        if (s) barrier_wait(shared_address(&state.added), (s - 1) % 2);
        sums.put(0, warp, sum[0]);
        sums.put(1, warp, sum[1]);
        __syncwarp();
        if (tells) barrier_arrive(shared_address(&state.multiplied));
        now.advance(SIDE);
        if (tells && now.tile == 0) barrier_arrive(shared_address(&state.left[number % 2]));
        if (more) next.advance(SIDE);
    }
    __device__ void run()
    {
        for (uint32_t s = 0; now.inside(); s += AHEAD)
#pragma unroll
            for (int h = 0; h < AHEAD; h++)
                if (now.inside()) step(h, s + h);
    }
};

/* The rows of a piece by some threads, a batch of chunks of 8 values each at a time. */
struct piece_rows {
    enum { BATCH = 3 };
    const float *x; /* all rows, of k values */
    const int32_t *tokens;
    piece p;
    uint32_t k, bytes, chunks, threads;
    char *to;
    float held[BATCH][8];
    uint32_t row[BATCH], chunk[BATCH];

    /* Chunks first, first + threads ... are asked for. */
    __device__ void take(uint32_t first)
    {
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            uint32_t i = first + b * threads;
            row[b] = i / chunks, chunk[b] = i % chunks;
            take_chunk(row[b] < p.count ? x + (int64_t)tokens[p.first + row[b]] * k : nullptr, k, chunk[b], held[b]);
        }
    }
    __device__ void put()
    {
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (row[b] < p.count) put_chunk<weights, 1>(to + row[b] * bytes, bytes, chunk[b], held[b]);
    }
    /* All that come behind the first batch. */
    __device__ void rest(uint32_t thread)
    {
        for (uint32_t i = thread + BATCH * threads; i < p.count * chunks; i += BATCH * threads) take(i), put();
    }
};

/* Two warps bring columns of activations, but for the first pieces of gate and up: the first one by who multiplies it,
 * asked for before the weights, as what comes behind them in the first cache waits for them; the second by all
 * helpers. */
template <bool UP> struct bringer {
    const product<UP> &of;
    block_state &state;
    char *columns;

    __device__ char *place_of(uint32_t number) const
    {
        return columns + number % 2 * (MOE_FEW_COLUMNS * column_bytes<weights>(of.k));
    }
    /* Piece `index` of all, the block's `number`th. */
    __device__ piece_rows rows(uint32_t index, uint32_t number, uint32_t threads) const
    {
        return {of.a.normed, state.tokens, state.pieces[index], of.k, column_bytes<weights>(of.k),
                step_count<weights>(of.k) * (weights::STEP / 8), threads, place_of(number)};
    }
    __device__ void spread(uint32_t index, uint32_t number, uint32_t thread, uint32_t threads) const
    {
        piece_rows some = rows(index, number, threads);
        some.take(thread);
        some.put();
        some.rest(thread);
    }
    __device__ void copy(uint32_t index, uint32_t number) const
    {
        uint32_t bytes = column_bytes<weights>(of.k), barrier = shared_address(&state.there[number % 2]);
        piece p = state.pieces[index];
        barrier_expect(barrier, p.count * bytes);
        copy_in(shared_address(place_of(number)), of.a.act + (int64_t)p.first * bytes, p.count * bytes, barrier);
    }
    __device__ void run(const place &start, uint32_t thread) const
    {
        uint32_t first = start.index, last = start.last_piece();
        if (!UP && thread) return; /* nobody waits for them: barriers could pass them by, and leave them waiting */
        for (uint32_t i = first; i <= last; i++) {
            uint32_t number = i - first, side = number % 2;
            if (number >= 2) barrier_wait(shared_address(&state.left[side]), (number / 2 - 1) % 2);
            if (UP && number >= 2) spread(i, number, thread, BRINGERS);
            if (UP) barrier_arrive(shared_address(&state.there[side]));
            if (!UP) copy(i, number);
        }
    }
};

/* Two warps add up. A thread finishes two neighbouring features of a row, of both tiles. */
template <bool UP> struct finisher {
    enum { SIDE = product<UP>::SIDE };
    const product<UP> &of;
    block_state &state;
    uint32_t row, at;

    __device__ finisher(const product<UP> &p, block_state &s)
        : of(p), state(s), row((threadIdx.x - WARPS * WARP) / (FEATURES / 2)), at(threadIdx.x % (FEATURES / 2) * 2)
    {
    }
    /* Two neighbours of a slot's activations. */
    __device__ void put_act(uint32_t slot, uint32_t feature, float low, float high) const
    {
        char *column = of.a.act + (int64_t)slot * column_bytes<weights>(of.n);
        *(uint32_t *)weights::place_of(column, feature) =
            f32_to_bf16x2(low * weights::ENLARGE, high * weights::ENLARGE);
    }
    __device__ void finish(const place &p, uint32_t s, const step_sums &sums) const
    {
        piece own = state.pieces[p.index];
        uint32_t feature = p.tile * FEATURES + at, count = p.take(SIDE);
        float2 y[2] = {};
        if (of.has_bias()) {
            barrier_wait(shared_address(&state.biased[s % BIASES]), s / BIASES % 2);
#pragma unroll
            for (int i = 0; i < 2; i++) y[i] = *(const float2 *)&state.bias[s % BIASES][i][at];
        }
        barrier_wait(shared_address(&state.multiplied), s % 2);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float2 sum = sums.total(i, row, at);
            y[i].x += sum.x * weights::RESTORE, y[i].y += sum.y * weights::RESTORE;
        }
        __syncwarp();
        if (threadIdx.x % WARP == 0) barrier_arrive(shared_address(&state.added));
        if (row >= own.count) return;
        if constexpr (UP) {
            put_act(own.first + row, feature, swiglu(y[0].x, y[1].x, of.a.alpha, of.a.limit),
                    swiglu(y[0].y, y[1].y, of.a.alpha, of.a.limit));
            if (p.tile + 1 == of.tiles) /* zeros up to the end of the last unit */
                for (uint32_t f = feature + FEATURES; f < unit_count(of.n) * UNIT_COLUMNS; f += FEATURES)
                    put_act(own.first + row, f, 0, 0);
        } else {
            float *out = of.a.y + (int64_t)(own.first + row) * of.n + feature;
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (i < count) *(float2 *)(out + i * FEATURES) = y[i];
        }
    }
    __device__ void run(place p, const step_sums &sums) const
    {
        for (uint32_t s = 0; p.inside(); s++) {
            finish(p, s, sums);
            p.advance(SIDE);
        }
    }
};

/* Who routed has ended when down begins, as up lets it start behind its own wait: so down asks for weights before up
 * has ended. */
template <bool UP> __device__ inline void moe_few(const moe_few_args &a)
{
    extern __shared__ __align__(128) char memory[];
    static_assert(sizeof(block_state) <= MOE_FEW_STATE && sizeof(step_sums) == MOE_FEW_SUMS * sizeof(float), "host");
    static_assert(FINISHERS == MOE_FEW_COLUMNS * FEATURES / 2, "a thread finishes two features");
    static_assert(WARPS * WARP * MOE_FEW_REGISTERS + MOE_FEW_HELPERS * MOE_FEW_REGISTERS_HELPERS <= 65536, "an SM");
    block_state &state = *(block_state *)memory;
    char *columns = memory + MOE_FEW_STATE;
    product<UP> of(a);
    if (UP) wait_for_input();
    if (UP) let_next_start();
    if (threadIdx.x < WARP)
        state.pieces.list(a.group_offsets, (int)a.n_experts);
    else
        for (uint32_t i = threadIdx.x - WARP; UP && i < a.slots; i += MOE_FEW_THREADS - WARP)
            state.tokens[i] = __ldcg(a.token_of_row + i);
    if (threadIdx.x == WARPS * WARP) state.init_barriers(UP);
    __syncthreads();
    uint32_t all = state.pieces.count * of.tiles;
    place start(all * blockIdx.x / gridDim.x, all * (blockIdx.x + 1) / gridDim.x, of.tiles);
    step_sums &sums = *(step_sums *)(columns + 2 * MOE_FEW_COLUMNS * column_bytes<weights>(of.k));
    bringer<UP> bringer{of, state, columns};
    if (!start.inside()) {
        if (!UP) wait_for_input();
    } else if (threadIdx.x < WARPS * WARP) {
        registers_take<MOE_FEW_REGISTERS>();
        multiplier<UP> warp(of, state, columns, sums, start);
        if constexpr (UP) {
            piece_rows first = bringer.rows(start.index, 0, WARPS * WARP);
            first.take(threadIdx.x);
            warp.open();
            first.put();
            first.rest(threadIdx.x);
            named_sync(1, WARPS * WARP);
        } else {
            warp.open();
            wait_for_input();
            let_next_start();
        }
        warp.run();
    } else {
        uint32_t thread = threadIdx.x - WARPS * WARP;
        registers_give<MOE_FEW_REGISTERS_HELPERS>();
        if (!UP) wait_for_input();
        if (UP && start.index < start.last_piece()) bringer.spread(start.index + 1, 1, thread, MOE_FEW_HELPERS);
        if (UP) named_sync(2, MOE_FEW_HELPERS);
        if (thread < FINISHERS)
            finisher<UP>(of, state).run(start, sums);
        else
            bringer.run(start, thread - FINISHERS);
    }
}

#else
#define ON_HOPPER(...) /* it divides registers between warps */
#endif

#define MOE_FEW(name, up)                                                                           \
    extern "C" __global__ void __launch_bounds__(MOE_FEW_THREADS, 1)                                \
        name(const __grid_constant__ moe_few_args a)                                                \
    {                                                                                               \
        ON_HOPPER(moe_few<up>(a));                                                                  \
    }

MOE_FEW(moe_up_few, true)
MOE_FEW(moe_down_few, false)
