// spills: moe_up_several 24
/* The experts of several rows, up to 32 of each at a time (a piece); activations and results in bf16.
 *
 * The list of work is (piece, step of 64 rows of weights: 32 features of gate and of up, or 64 of down), pieces by
 * rising expert; every block, one an SM, takes an equal stretch of it. Three warpgroups share the columns. A piece's
 * activations stay in shared memory, each third put there by the warpgroup that multiplies it. Weights come straight
 * from memory into registers, a step ahead, and are decoded there while the products of those before run. Four helping
 * warps add up what the three have for a step while these go on. Beside gemm_wgmma.cuh a weight takes a fifth fewer
 * instructions, no block is idle at the end, and a product is of 16 rows or 32. */
#include "common.cuh"
#include "copy_bulk.cuh"
#include "gemm/wgmma_mxfp4.cuh"
#include "inline.cuh"
#include "mma.cuh"
#include "moe/moe_several_args.h"
#include "moe/pieces.cuh"
#include "swiglu/swiglu_near.cuh"
#include "weights.cuh"
#include "wgmma.cuh"
#include "words.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ON_HOPPER(...) __VA_ARGS__

enum {
    ROWS = MOE_SEVERAL_ROWS,
    UNITS = MOE_SEVERAL_UNITS,
    WARPGROUPS = MOE_SEVERAL_WARPGROUPS,
    WARPGROUP_THREADS = 128,
    MULTIPLIERS = WARPGROUPS * WARPGROUP_THREADS,
    BOX_BYTES = MOE_SEVERAL_BOX * 128,
    UNIT_X = ROWS * 128, /* bytes of a unit's columns in shared memory */
};

/* What the warpgroups have for a step. */
struct several_sums {
    float at[WARPGROUPS][ROWS][MOE_SEVERAL_SUM_STRIDE];

    /* Of N rows. */
    template <int N> INLINE void put(const float (&d)[ROWS / 2])
    {
        uint32_t wg = threadIdx.x / WARPGROUP_THREADS, row = threadIdx.x / WARP % 4 * 16 + threadIdx.x % WARP / 4;
        uint32_t t = threadIdx.x % 4;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) at[wg][8 * j + 2 * t + i % 2][row + i / 2 * 8] = d[4 * j + i];
    }
    /* Of rows of weights `feature` and the next. */
    __device__ float2 total(uint32_t row, uint32_t feature) const
    {
        float2 sum = {0, 0};
#pragma unroll
        for (int w = 0; w < WARPGROUPS; w++) {
            float2 v = *(const float2 *)&at[w][row][feature];
            sum.x += v.x, sum.y += v.y;
        }
        return sum;
    }
};

struct several_state {
    piece_list<ROWS, MOE_SEVERAL_GROUPS_MAX, MOE_SEVERAL_PIECES_MAX> pieces;
    uint32_t large[MULTIPLIERS / WARP]; /* whether a scale of this warp's step is 128 or more */
    uint64_t there[WARPGROUPS], multiplied, added;

    __device__ void init_barriers()
    {
        for (int i = 0; i < WARPGROUPS; i++) barrier_init(shared_address(&there[i]), 1);
        barrier_init(shared_address(&multiplied), MULTIPLIERS / WARP);
        barrier_init(shared_address(&added), MOE_SEVERAL_HELPERS / WARP);
        barrier_init_done();
    }
};

/* The weights of a warp, a step ahead. GATED: of the four warps of a warpgroup two take gate's tiles. */
template <bool GATED> struct several_stream {
    enum { TILES = GATED ? 2 : 4 };
    const moe_several_args &a;
    const uint4 *codes;
    const uint32_t *scales;
    uint32_t own; /* units of a tile */

    __device__ several_stream(const moe_several_args &args) : a(args), own((uint32_t)args.k / MOE_SEVERAL_K) {}
    INLINE void begin(uint32_t expert, uint32_t step)
    {
        uint32_t warp = threadIdx.x / WARP % 4, lane = threadIdx.x % WARP, which = GATED ? warp / 2 : 0;
        uint32_t tile = expert * ((uint32_t)a.n / 16) + step * TILES + warp % TILES;
        uint32_t first = ((tile * WARPGROUPS + threadIdx.x / WARPGROUP_THREADS) * own) * WARP + lane;
        codes = (const uint4 *)(which ? a.w[1] : a.w[0]) + first;
        scales = (const uint32_t *)(which ? a.scales[1] : a.scales[0]) + first / 4;
        keep(codes), keep(scales);
    }
    /* Within an expert. */
    INLINE void advance()
    {
        codes += TILES * WARPGROUPS * own * (UNIT_BYTES / 16);
        scales += TILES * WARPGROUPS * own * (UNIT_SCALES_MXFP4 / 4);
    }
    INLINE void fetch(uint4 &w, uint32_t &s, int u) const
    {
        w = load_once(codes + u * (UNIT_BYTES / 16));
        s = __ldg(scales + u * (UNIT_SCALES_MXFP4 / 4));
    }
};

/* The warps that multiply. */
template <bool GATED> struct several_multiplier {
    const moe_several_args &a;
    several_state &state;
    several_sums &sums;
    several_stream<GATED> weights;
    uint4 codes[UNITS];
    uint32_t scales[UNITS];
    float d[ROWS / 2];
    uint32_t x, there; /* this warpgroup's columns, and their barrier */
    uint32_t large, number; /* of the step */

    __device__ several_multiplier(const moe_several_args &args, several_state &s, several_sums &to, uint32_t columns)
        : a(args), state(s), sums(to), weights(args), large(0), number(0)
    {
        uint32_t wg = threadIdx.x / WARPGROUP_THREADS;
        x = columns + wg * weights.own * UNIT_X;
        there = shared_address(&state.there[wg]);
    }
    INLINE void open(const place &start)
    {
        weights.begin(state.pieces[start.index].expert, start.tile);
#pragma unroll
        for (int u = 0; u < UNITS; u++)
            if (u < weights.own) weights.fetch(codes[u], scales[u], u);
    }
    /* The rows of a piece, by one warp for all of the warpgroup. */
    INLINE void ask_rows(const piece &p) const
    {
        if (threadIdx.x / WARP % 4) return;
        uint32_t own = weights.own, boxes = (p.count + MOE_SEVERAL_BOX - 1) / MOE_SEVERAL_BOX;
        uint32_t lane = threadIdx.x % WARP, first = threadIdx.x / WARPGROUP_THREADS * own;
        if (lane == 0) barrier_expect(there, own * boxes * BOX_BYTES);
        __syncwarp();
        for (uint32_t i = lane; i < own * boxes; i += WARP) {
            uint32_t unit = i / boxes, box = i % boxes;
            copy_box_2d(x + unit * UNIT_X + box * BOX_BYTES, a.x, (int)((first + unit) * UNIT_COLUMNS),
                        (int)(p.first + box * MOE_SEVERAL_BOX), there);
        }
    }

    template <int N> INLINE void multiply_two(const uint32_t (&f)[2][4], uint32_t columns, int step)
    {
        wgmma_fence();
        wgmma<N>::registers(d, f[0], wgmma_operand(columns, 16 * step));
        wgmma<N>::registers(d, f[1], wgmma_operand(columns, 16 * step + 16));
        wgmma_commit();
    }
    /* With N rows. `more`: the weights of the next step take the places of these. */
    template <int N> INLINE void multiply_step(bool more)
    {
        /* The compiler knows that all lanes have the same of it. */
        uint32_t columns = __reduce_max_sync(FULL_MASK, x);
#pragma unroll
        for (int i = 0; i < N / 2; i++) d[i] = 0;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            if (u >= weights.own) break;
            unit_words w;
            uint32_t first[2][4], second[2][4];
            w.w = codes[u];
            set_scales(w, scales[u]);
            large |= scales[u];
            decode<0>(first[0], w);
            decode<1>(first[1], w);
            wgmma_wait<0>();
            multiply_two<N>(first, columns + u * UNIT_X, 0);
            decode<2>(second[0], w);
            decode<3>(second[1], w);
            if (more) weights.fetch(codes[u], scales[u], u);
            wgmma_wait<0>();
            multiply_two<N>(second, columns + u * UNIT_X, 2);
        }
        wgmma_wait<0>();
        wgmma_settle(d);
    }
    template <int N> INLINE void end_step()
    {
        bool any = __any_sync(FULL_MASK, large & 0x80808080u), tells = threadIdx.x % WARP == 0;
        large = 0;
        if (number) barrier_wait(shared_address(&state.added), (number - 1) % 2);
        sums.put<N>(d);
        if (tells) state.large[threadIdx.x / WARP] = any;
        __syncwarp();
        if (tells) barrier_arrive(shared_address(&state.multiplied));
        number++;
    }
    /* Some steps of one expert; next: whose steps come behind them. */
    template <int N> INLINE void multiply_steps(uint32_t steps, const piece *next)
    {
        for (uint32_t i = 1; i <= steps; i++) {
            bool more = i < steps || next;
            if (i < steps)
                weights.advance();
            else if (next)
                weights.begin(next->expert, 0);
            multiply_step<N>(more);
            end_step<N>();
        }
    }
    INLINE void multiply_all(const place &start)
    {
        uint32_t left = __reduce_max_sync(FULL_MASK, start.end - start.item), tile = start.tile;
        const piece *p = &state.pieces.at[start.index];
        for (uint32_t parity = 0; left; parity ^= 1) {
            uint32_t steps = __reduce_min_sync(FULL_MASK, min(left, start.tiles - tile));
            uint32_t wide = __reduce_max_sync(FULL_MASK, p->count > 16);
            left -= steps;
            const piece *next = left ? p + 1 : nullptr;
            barrier_wait(there, parity);
            if (wide)
                multiply_steps<ROWS>(steps, next);
            else
                multiply_steps<16>(steps, next);
            if (!left) break;
            named_sync(1 + threadIdx.x / WARPGROUP_THREADS, WARPGROUP_THREADS); /* nobody reads these rows any more */
            p = next, tile = 0;
            ask_rows(*p);
        }
    }
};

/* Four warps finish: a thread two neighbouring features of some rows. */
template <bool GATED> struct several_finisher {
    enum {
        FEATURES = GATED ? MOE_SEVERAL_STEP / 2 : MOE_SEVERAL_STEP,
        PAIRS = FEATURES / 2,
        APART = MOE_SEVERAL_HELPERS / PAIRS, /* rows of a thread */
        EACH = ROWS / APART,
    };
    const moe_several_args &a;
    several_state &state;
    const several_sums &sums;
    uint32_t row, pair;

    __device__ several_finisher(const moe_several_args &args, several_state &s, const several_sums &from)
        : a(args), state(s), sums(from), row((threadIdx.x - MULTIPLIERS) / PAIRS), pair(threadIdx.x % PAIRS * 2)
    {
    }
    __device__ float2 bias_of(int which, int64_t feature) const
    {
        return a.bias[which] ? *(const float2 *)(a.bias[which] + feature) : float2{0, 0};
    }
    /* One sum by float32 arithmetic: any scale, whatever the speed. */
    INLINE float plain_sum(int which, uint32_t expert, uint32_t feature, uint32_t slot) const
    {
        uint32_t units = (uint32_t)a.k / UNIT_COLUMNS, tile = expert * ((uint32_t)a.n / 16) + feature / 16;
        const uint8_t *w = (const uint8_t *)a.w[which] + (int64_t)tile * units * UNIT_BYTES;
        const uint8_t *s = (const uint8_t *)a.scales[which] + (int64_t)tile * units * UNIT_SCALES_MXFP4;
        const uint16_t *x = (const uint16_t *)a.plain_x + (int64_t)slot * a.k;
        float sum = a.bias[which] ? a.bias[which][(int64_t)expert * a.n + feature] : 0;
#pragma unroll 1
        for (int k = 0; k < a.k; k++) sum += mxfp4_tile_at(w, s, feature % 16, (uint32_t)k) * bf16_to_f32(x[k]);
        return sum;
    }
    INLINE void finish_plainly(const piece &p, uint32_t first) const
    {
#pragma unroll 1
        for (uint32_t i = threadIdx.x - MULTIPLIERS; i < p.count * FEATURES; i += MOE_SEVERAL_HELPERS) {
            uint32_t feature = first + i % FEATURES, slot = p.first + i / FEATURES;
            float y = 0, gate = 0;
#pragma unroll 1
            for (int which = 0; which < (GATED ? 2 : 1); which++) {
                gate = y;
                y = plain_sum(which, p.expert, feature, slot);
            }
            if (GATED) y = swiglu_near(gate, y, a.alpha, a.limit);
            ((uint16_t *)a.out)[(int64_t)slot * a.n + feature] = f32_to_bf16(y);
        }
    }
    __device__ void finish(const place &p, uint32_t s) const
    {
        piece own = state.pieces[p.index];
        uint32_t feature = p.tile * FEATURES + pair;
        int64_t at = (int64_t)own.expert * a.n + feature;
        float2 bias = bias_of(0, at), other = GATED ? bias_of(1, at) : float2{0, 0}, y[EACH], z[EACH];
        barrier_wait(shared_address(&state.multiplied), s % 2);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (i * APART >= own.count) break;
            y[i] = sums.total(row + i * APART, pair);
            if (GATED) z[i] = sums.total(row + i * APART, FEATURES + pair);
        }
        uint32_t lane = threadIdx.x % WARP;
        bool large = __any_sync(FULL_MASK, lane < MULTIPLIERS / WARP && state.large[lane]);
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&state.added));
        if (large) return finish_plainly(own, p.tile * FEATURES);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            uint32_t r = row + i * APART;
            if (r >= own.count) break;
            float low = y[i].x + bias.x, high = y[i].y + bias.y;
            if (GATED) {
                low = swiglu_near(low, z[i].x + other.x, a.alpha, a.limit);
                high = swiglu_near(high, z[i].y + other.y, a.alpha, a.limit);
            }
            *(uint32_t *)((uint16_t *)a.out + (int64_t)(own.first + r) * a.n + feature) = f32_to_bf16x2(low, high);
        }
    }
    __device__ void finish_all(place p) const
    {
        for (uint32_t s = 0; p.inside(); s++, p.advance(1)) finish(p, s);
    }
};

/* Routing has ended when either kernel starts: gate and up follow the kernel that gathers rows, down follows gate and
 * up, and both let the next one start behind their own wait. So weights are asked for before the rows are there. */
template <bool GATED> __device__ inline void moe_several(const moe_several_args &a)
{
    extern __shared__ __align__(1024) char memory[];
    static_assert(sizeof(several_state) <= MOE_SEVERAL_STATE && sizeof(several_sums) == MOE_SEVERAL_SUMS * 4, "host");
    several_sums &sums = *(several_sums *)(memory + a.k * 2 * ROWS);
    several_state &state = *(several_state *)(memory + a.k * 2 * ROWS + sizeof(several_sums));
    if (threadIdx.x < WARP) state.pieces.list(a.group_offsets, a.groups);
    if (threadIdx.x == WARP) prefetch_map(a.x);
    if (threadIdx.x == MULTIPLIERS) state.init_barriers();
    __syncthreads();
    uint32_t steps = (uint32_t)a.n / (GATED ? MOE_SEVERAL_STEP / 2 : MOE_SEVERAL_STEP);
    uint32_t all = state.pieces.count * steps;
    place start(all * blockIdx.x / gridDim.x, all * (blockIdx.x + 1) / gridDim.x, steps);
    if (!start.inside()) {
        wait_for_input();
    } else if (threadIdx.x < MULTIPLIERS) {
        registers_take<MOE_SEVERAL_REGISTERS>();
        several_multiplier<GATED> warp(a, state, sums, shared_address(memory));
        warp.open(start);
        wait_for_input();
        let_next_start();
        warp.ask_rows(state.pieces[start.index]);
        warp.multiply_all(start);
    } else {
        registers_give<MOE_SEVERAL_REGISTERS_HELPERS>();
        wait_for_input();
        several_finisher<GATED>(a, state, sums).finish_all(start);
    }
}

#else
#define ON_HOPPER(...) /* it divides registers between warps */
#endif

#define MOE_SEVERAL(name, gated)                                                                    \
    extern "C" __global__ void __launch_bounds__(MOE_SEVERAL_THREADS, 1)                            \
        name(const __grid_constant__ moe_several_args a)                                            \
    {                                                                                               \
        ON_HOPPER(moe_several<gated>(a));                                                           \
    }

MOE_SEVERAL(moe_up_several, true)
MOE_SEVERAL(moe_down_several, false)
