// spills: attn_out_route_f32_128_64 24
// spills: attn_out_route_f32_32_64 24
// spills: attn_out_route_bf16_128_64 36
/* Norm, router and choice of experts for many rows. A cluster of 8 blocks has ROWS rows, each block an eighth
 * of the columns: of its part of the rows it makes sums of squares and, with its part of the router, of logits.
 * Squares go to all blocks, logits to the block that chooses for the row, as every eighth row is a block's. The
 * norm's scale comes in behind the products, and nobody waits for it before.
 *
 * The product has experts as its 16 rows, tokens as its 8 columns, and float32 numbers as two bf16 parts, so
 * that what the choice hangs on is hardly rounded. A warp has 16 experts; of few experts several warps have the
 * same ones, and share the columns. The router goes from memory to registers, the first part of it before the
 * rows are there. */
#include "attn_out/attn_out_many_args.h"
#include "barriers.cuh"
#include "common.cuh"
#include "copy_async.cuh"
#include "copy_tiles.cuh"
#include "mma.cuh"
#include "put_across.cuh"
#include "route/choose.cuh"
#include "words.cuh"

#if __CUDA_ARCH__ == 900 /* the variant is of this one alone */

enum {
    BLOCKS = ROUTE_MANY_BLOCKS,
    THREADS = ROUTE_MANY_THREADS,
    WARPS = THREADS / WARP,
    STEP = ROUTE_MANY_STEP,
    PIECE = 8, /* columns: 16 bytes of first parts, 16 of second ones */
    PIECES = ROUTE_MANY_HIDDEN / BLOCKS / PIECE / WARP, /* of a lane */
};

/* Eight neighbours in k as two bf16 parts: the first is cut, not rounded, so that the rest is exact. */
struct two_parts {
    uint32_t high[4], low[4];

    __device__ void set(const float4 &a, const float4 &b)
    {
        set_pair(0, a.x, a.y), set_pair(1, a.z, a.w), set_pair(2, b.x, b.y), set_pair(3, b.z, b.w);
    }
    __device__ void set_pair(int i, float x, float y)
    {
        uint32_t u = __float_as_uint(x) & 0xffff0000u, v = __float_as_uint(y) & 0xffff0000u;
        high[i] = u >> 16 | v;
        low[i] = f32_to_bf16x2(x - __uint_as_float(u), y - __uint_as_float(v));
    }
    __device__ void put(uint32_t at) const
    {
        put_words(at, high);
        put_words(at + 16, low);
    }
    __device__ static void put_words(uint32_t at, const uint32_t (&w)[4])
    {
        store_shared_16(at, __uint_as_float(w[0]), __uint_as_float(w[1]), __uint_as_float(w[2]),
                        __uint_as_float(w[3]));
    }
    __device__ void take(uint32_t at)
    {
        uint4 a = load_shared_16(at), b = load_shared_16(at + 16);
        high[0] = a.x, high[1] = a.y, high[2] = a.z, high[3] = a.w;
        low[0] = b.x, low[1] = b.y, low[2] = b.z, low[3] = b.w;
    }
    /* Both together, but for what the second has lost. */
    __device__ float4 quad(int i) const
    {
        return {__uint_as_float(high[i] << 16) + __uint_as_float(low[i] << 16),
                __uint_as_float(high[i] & 0xffff0000u) + __uint_as_float(low[i] & 0xffff0000u),
                __uint_as_float(high[i + 1] << 16) + __uint_as_float(low[i + 1] << 16),
                __uint_as_float(high[i + 1] & 0xffff0000u) + __uint_as_float(low[i + 1] & 0xffff0000u)};
    }
};

__device__ inline float4 times(const float4 &a, const float4 &b)
{
    return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}

__device__ inline float4 times(const float4 &a, float b)
{
    return {a.x * b, a.y * b, a.z * b, a.w * b};
}

__device__ inline float squares(const float4 &a)
{
    return a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w;
}

/* ---- router ---- */

/* d += experts' weights times rows, 32 columns: lane (g, t) of both has columns 8t to 8t + 7. */
__device__ inline void multiply_parts(float d[4], const uint32_t (&g)[4], const uint32_t (&g8)[4],
                                      const uint32_t (&x)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t a[4] = {g[i], g8[i], g[i + 1], g8[i + 1]}, b[2] = {x[i], x[i + 1]};
        mma_bf16(d, a, b);
    }
}

/* A step of 32 columns of experts g and g + 8 of a tile: as it lies in memory, and as it is multiplied. */
struct router_bf16 {
    uint4 g, g8;

    __device__ void take(const void *router, uint32_t g_at, uint32_t g8_at)
    {
        g = __ldg((const uint4 *)((const uint16_t *)router + g_at));
        g8 = __ldg((const uint4 *)((const uint16_t *)router + g8_at));
    }
    __device__ static void ask(const void *router, uint32_t at)
    {
        ask_l2((const uint16_t *)router + at);
    }
    struct parts {
        uint32_t g[4], g8[4];

        __device__ void set(const router_bf16 &w)
        {
            g[0] = w.g.x, g[1] = w.g.y, g[2] = w.g.z, g[3] = w.g.w;
            g8[0] = w.g8.x, g8[1] = w.g8.y, g8[2] = w.g8.z, g8[3] = w.g8.w;
        }
        template <int SUMS> __device__ void multiply(float (&d)[SUMS][4], const two_parts &x) const
        {
            multiply_parts(d[0], g, g8, x.high);
            multiply_parts(d[1 % SUMS], g, g8, x.low);
        }
    };
};

struct router_f32 {
    float4 g[2], g8[2];

    __device__ void take(const void *router, uint32_t g_at, uint32_t g8_at)
    {
        const float4 *a = (const float4 *)((const float *)router + g_at);
        const float4 *b = (const float4 *)((const float *)router + g8_at);
        g[0] = __ldg(a), g[1] = __ldg(a + 1), g8[0] = __ldg(b), g8[1] = __ldg(b + 1);
    }
    __device__ static void ask(const void *router, uint32_t at)
    {
        ask_l2((const float *)router + at);
    }
    struct parts {
        two_parts g, g8;

        __device__ void set(const router_f32 &w)
        {
            g.set(w.g[0], w.g[1]);
            g8.set(w.g8[0], w.g8[1]);
        }
        template <int SUMS> __device__ void multiply(float (&d)[SUMS][4], const two_parts &x) const
        {
            multiply_parts(d[0], g.high, g8.high, x.high);
            multiply_parts(d[1 % SUMS], g.high, g8.high, x.low);
            multiply_parts(d[2 % SUMS], g.low, g8.low, x.high);
        }
    };
};

/* A warp's part of the router: HELD steps are on their way or there. Of TILES x 16 experts it has a tile, and
 * of the block's steps every SHARE-th. */
template <class ROUTER, int TILES, int HELD> struct router_part {
    enum { SHARE = WARPS / TILES };
    ROUTER held[HELD];
    const void *router;
    uint32_t g_at, g8_at;
    int steps; /* of this warp */

    __device__ static int tile()
    {
        return threadIdx.x / WARP % TILES;
    }
    __device__ static int share()
    {
        return threadIdx.x / WARP / TILES;
    }
    __device__ void open(const attn_out_kernel_args &a, uint32_t first_column, int steps_of_block)
    {
        int g = 16 * tile() + threadIdx.x % WARP / 4, last = (int)a.n_experts - 1;
        int first = max(min(share(), steps_of_block - 1), 0); /* of what is read, if not multiplied */
        uint32_t column = first_column + (uint32_t)first * STEP + threadIdx.x % 4 * PIECE;
        router = a.router;
        g_at = (uint32_t)min(g, last) * (uint32_t)a.hidden + column;
        g8_at = (uint32_t)min(g + 8, last) * (uint32_t)a.hidden + column;
        steps = (steps_of_block - share() + SHARE - 1) / SHARE;
    }
    __device__ void take(int n, int step)
    {
        held[n].take(router, g_at + step * SHARE * STEP, g8_at + step * SHARE * STEP);
    }
    /* Steps beyond the end are the last one again: no branch may stand between the loads. */
    __device__ void take_all(int step)
    {
#pragma unroll
        for (int n = 0; n < HELD; n++) take(n, max(min(step + n, steps - 1), 0));
    }
    __device__ void take_first()
    {
#pragma unroll
        for (int n = 0; n < HELD; n++)
            if (n < steps) take(n, n);
    }
    template <int GROUPS, int SUMS>
    __device__ void multiply_step(float (&d)[GROUPS][SUMS][4], const typename ROUTER::parts &w, uint32_t x_at,
                                  uint32_t row_bytes)
    {
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            two_parts x;
            x.take(x_at + i * 8 * row_bytes);
            w.multiply(d[i], x);
        }
    }
    /* `rows`: where this lane's piece of the first row of the first step is. Behind take_all(0); steps beyond
     * the end have weights of 0. */
    template <int GROUPS, int SUMS>
    __device__ void multiply_all(float (&d)[GROUPS][SUMS][4], uint32_t rows, uint32_t row_bytes)
    {
        rows += share() * STEP * 4;
#pragma unroll 1
        for (int step = 0; step < steps; step += HELD) {
            if (step) take_all(step);
#pragma unroll
            for (int n = 0; n < HELD; n++) {
                typename ROUTER::parts w;
                if (step + n >= steps) held[n] = {};
                w.set(held[n]);
                multiply_step(d, w, rows + min(step + n, steps - 1) * SHARE * STEP * 4, row_bytes);
            }
        }
    }
    /* Behind take_first: each step that is multiplied makes room for a later one. */
    template <int GROUPS, int SUMS>
    __device__ void multiply_in_turn(float (&d)[GROUPS][SUMS][4], uint32_t rows, uint32_t row_bytes)
    {
        rows += share() * STEP * 4;
#pragma unroll 1
        for (int step = 0; step < steps; step += HELD) {
#pragma unroll
            for (int n = 0; n < HELD; n++, rows += SHARE * STEP * 4) {
                if (step + n >= steps) break;
                typename ROUTER::parts w;
                w.set(held[n]);
                if (step + n + HELD < steps) take(n, step + n + HELD);
                multiply_step(d, w, rows, row_bytes);
            }
        }
    }
};

/* The block's part of the router, as far as the second cache. */
template <class ROUTER>
__device__ inline void ask_router(const attn_out_kernel_args &a, uint32_t first_column, int steps)
{
    int last = (int)a.n_experts * steps;
    for (int i = threadIdx.x; i < last; i += THREADS)
        ROUTER::ask(a.router, (uint32_t)(i / steps) * (uint32_t)a.hidden + first_column + i % steps * STEP);
}

/* ---- a block's part of the rows ---- */

/* Where things are in shared memory. */
template <int ROWS> struct places {
    uint32_t squares_there, sums_there; /* barriers */
    uint32_t bias, scale, squares;      /* squares: [block][row] */
    uint32_t rows, row_bytes, sums;     /* sums: [row of this block's][part][expert] */

    __device__ places(uint32_t memory, int64_t hidden)
    {
        squares_there = memory, sums_there = memory + 8;
        bias = memory + 16;
        scale = bias + 4 * ATTN_OUT_MANY_MAX;
        squares = scale + 4 * ROWS;
        rows = memory + ROUTE_MANY_HEAD(ROWS);
        row_bytes = (uint32_t)ROUTE_MANY_ROW_BYTES(hidden);
        sums = ROWS < ROUTE_MANY_LAID ? rows + ROWS * row_bytes : rows;
    }
};

/* Which columns are the block's. */
struct columns_of {
    uint32_t first;
    int steps;

    __device__ columns_of(uint32_t hidden, uint32_t rank)
    {
        uint32_t all = hidden / STEP, begin = rank * all / BLOCKS;
        first = begin * STEP;
        steps = (int)((rank + 1) * all / BLOCKS - begin);
    }
    __device__ int pieces() const
    {
        return steps * (STEP / PIECE);
    }
};

/* A lane's pieces of the gain. */
struct lane_gain {
    float4 v[PIECES][2];

    /* Lanes beyond the end take the last ones: no branch may stand between the loads. */
    __device__ static uint32_t column(const columns_of &mine, int p)
    {
        int piece = (int)threadIdx.x % WARP + p * WARP;
        return mine.first + (uint32_t)(PIECE * max(min(piece, mine.pieces() - 1), 0));
    }
    __device__ void take(const float *row, const columns_of &mine)
    {
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            const float4 *from = (const float4 *)(row + column(mine, p));
            v[p][0] = from[0], v[p][1] = from[1];
        }
    }
};

/* Rows times the gain to shared memory, sums of squares to all blocks; a warp has every eighth row. */
template <int ROWS>
__device__ inline void take_rows(const attn_out_many_args &args, const places<ROWS> &at,
                                 const columns_of &mine, const lane_gain &gain, uint32_t rank)
{
    enum { EACH = ROWS / WARPS, TOGETHER = EACH == 8 ? 2 : EACH }; /* of 8, 4 at a time spill */
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t first = (int64_t)(blockIdx.x / BLOCKS) * ROWS;
#pragma unroll 1
    for (int i = 0; i < EACH; i += TOGETHER) {
        lane_gain x[TOGETHER];
#pragma unroll
        for (int n = 0; n < TOGETHER; n++)
            x[n].take(args.row.x + min(first + (i + n) * WARPS + warp, (int64_t)args.m - 1) * args.row.hidden,
                      mine);
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) {
            int row = (i + n) * WARPS + warp;
            float sum = 0;
#pragma unroll
            for (int p = 0; p < PIECES; p++) {
                int piece = lane + p * WARP;
                if (piece >= mine.pieces()) break;
                two_parts parts;
                sum += squares(x[n].v[p][0]) + squares(x[n].v[p][1]);
                parts.set(times(x[n].v[p][0], gain.v[p][0]), times(x[n].v[p][1], gain.v[p][1]));
                parts.put(at.rows + row * at.row_bytes + piece * 32);
            }
            sum = warp_sum(sum);
            if (lane < BLOCKS)
                put_across(at.squares + (rank * ROWS + row) * 4, sum, at.squares_there, (uint32_t)lane);
        }
    }
}

/* Where squares of finite values overflow: those of values that are smaller by 2^70. */
__device__ inline float wide_scale(const float *row, int64_t hidden)
{
    float sum = 0;
#pragma unroll 1
    for (int64_t j = 0; j < hidden; j++) sum += row[j] * 0x1p-70f * (row[j] * 0x1p-70f);
    return 0x1p-70f / sqrtf(sum / (float)hidden);
}

/* The scale of a row for each of the first threads, in shared memory. */
template <int ROWS>
__device__ inline void make_scales(const attn_out_many_args &args, const places<ROWS> &at)
{
    const attn_out_kernel_args &a = args.row;
    int row = threadIdx.x;
    if (row >= ROWS) return;
    int64_t of = min((int64_t)(blockIdx.x / BLOCKS) * ROWS + row, (int64_t)args.m - 1);
    barrier_wait_cluster(at.squares_there, 0);
    float sum = 0;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) sum += load_shared_f32(at.squares + (b * ROWS + row) * 4);
    float scale = 1 / sqrtf(sum / (float)a.hidden + a.eps);
    if (isinf(sum)) scale = wide_scale(a.x + of * a.hidden, a.hidden);
    store_shared_f32(at.scale + row * 4, scale);
}

/* The block's columns of the normed rows to where others read them. */
template <int ROWS>
__device__ inline void write_normed(const attn_out_many_args &args, const places<ROWS> &at,
                                    const columns_of &mine)
{
    int64_t first = (int64_t)(blockIdx.x / BLOCKS) * ROWS;
#pragma unroll 2
    for (int row = threadIdx.x / WARP; row < ROWS; row += WARPS) {
        if (first + row >= args.m) break;
        float scale = load_shared_f32(at.scale + row * 4);
        for (int piece = threadIdx.x % WARP; piece < mine.pieces(); piece += WARP) {
            two_parts x;
            x.take(at.rows + row * at.row_bytes + piece * 32);
            float4 a = times(x.quad(0), scale), b = times(x.quad(2), scale);
            int64_t to = (first + row) * args.row.hidden + mine.first + PIECE * piece;
            if (args.narrow) {
                *(uint4 *)((uint16_t *)args.row.normed + to) = {f32_to_bf16x2(a.x, a.y), f32_to_bf16x2(a.z, a.w),
                                                                f32_to_bf16x2(b.x, b.y), f32_to_bf16x2(b.z, b.w)};
            } else {
                ((float4 *)(args.row.normed + to))[0] = a;
                ((float4 *)(args.row.normed + to))[1] = b;
            }
        }
    }
}

/* ---- sums and choice ---- */

/* A warp's sums to the blocks that choose: row 8 i + b to block b. `part`: which of the parts of a sum. */
template <int TILES, int ROWS, int SUMS>
__device__ inline void send_sums(const float (&d)[ROWS / BLOCKS][SUMS][4], const places<ROWS> &at, int tile,
                                 int part)
{
    enum { PARTS = BLOCKS * (WARPS / TILES), EXPERTS = 16 * TILES };
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < ROWS / BLOCKS; i++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float sum = d[i][0][n];
#pragma unroll
            for (int s = 1; s < SUMS; s++) sum += d[i][s][n];
            put_across(at.sums + ((i * PARTS + part) * EXPERTS + 16 * tile + n / 2 * 8 + g) * 4, sum,
                       at.sums_there, (uint32_t)(2 * t + n % 2));
        }
}

template <int TILES, int ROWS>
__device__ inline void choose_rows(const attn_out_many_args &args, const places<ROWS> &at, uint32_t rank)
{
    enum { PARTS = BLOCKS * (WARPS / TILES), EXPERTS = 16 * TILES };
    const attn_out_kernel_args &a = args.row;
    int mine = threadIdx.x / WARP, row = mine * BLOCKS + (int)rank;
    int64_t to = (int64_t)(blockIdx.x / BLOCKS) * ROWS + row;
    if (mine >= ROWS / BLOCKS) return;
    barrier_wait_cluster(at.sums_there, 0); /* also where there is nothing to choose: others write here */
    if (to >= args.m) return;
    float scale = load_shared_f32(at.scale + row * 4);
    choice chosen = choose<EXPERTS>(
        [&](int e) {
            float sum = 0;
#pragma unroll
            for (int p = 0; p < PARTS; p++) sum += load_shared_f32(at.sums + ((mine * PARTS + p) * EXPERTS + e) * 4);
            return sum * scale + load_shared_f32(at.bias + e * 4);
        },
        (int)a.n_experts, (int)a.top_k);
    int lane = threadIdx.x % WARP;
    if (lane >= a.top_k) return;
    a.weight[to * a.top_k + lane] = chosen.weight;
    a.expert[to * a.top_k + lane] = chosen.expert;
}

template <class ROUTER, int TILES, int ROWS, int HELD>
__device__ inline void route_rows(const attn_out_many_args &args)
{
    /* Of few rows the products wait for each other: each of their parts has a sum. */
    enum { SUMS = ROWS == 8 ? 3 : 1, EARLY = ROWS == 8 };
    extern __shared__ __align__(128) char shared[];
    const attn_out_kernel_args &a = args.row;
    const places<ROWS> at(shared_address(shared), a.hidden);
    const uint32_t rank = cluster_rank();
    const columns_of mine((uint32_t)a.hidden, rank);
    if (threadIdx.x == 0) {
        barrier_init(at.squares_there, 1);
        barrier_init(at.sums_there, 1);
        barrier_init_done();
    }
    __syncwarp();
    cluster_arrive(); /* others write here once the block runs and has its barriers */
    router_part<ROUTER, TILES, HELD> router;
    lane_gain gain;
    router.open(a, mine.first, mine.steps);
    if (EARLY)
        router.take_all(0);
    else
        ask_router<ROUTER>(a, mine.first, mine.steps);
    gain.take(a.norm, mine);
    if (threadIdx.x < a.n_experts)
        store_shared_f32(at.bias + threadIdx.x * 4, a.router_bias ? a.router_bias[threadIdx.x] : 0);
    cluster_wait();
    if (threadIdx.x == 0) {
        barrier_expect(at.squares_there, BLOCKS * ROWS * 4);
        barrier_expect(at.sums_there, ROUTE_MANY_SUMS(ROWS));
    }
    let_next_start(); /* the sort waits first of all */
    wait_for_input();
    take_rows<ROWS>(args, at, mine, gain, rank);
    if (!EARLY) router.take_first();
    __syncthreads();
    float d[ROWS / BLOCKS][SUMS][4] = {};
    uint32_t lane_rows = at.rows + threadIdx.x % WARP / 4 * at.row_bytes + threadIdx.x % 4 * 32;
    if (EARLY)
        router.multiply_all(d, lane_rows, at.row_bytes);
    else
        router.multiply_in_turn(d, lane_rows, at.row_bytes);
    int part = (int)rank * router.SHARE + router.share();
    if (ROWS < ROUTE_MANY_LAID) send_sums<TILES, ROWS, SUMS>(d, at, router.tile(), part);
    make_scales<ROWS>(args, at);
    __syncthreads();
    write_normed<ROWS>(args, at, mine);
    if (ROWS >= ROUTE_MANY_LAID) {
        cluster_sync(); /* the rows are read, by all blocks: sums may lie there */
        send_sums<TILES, ROWS, SUMS>(d, at, router.tile(), part);
    }
    choose_rows<TILES, ROWS>(args, at, rank);
}

#define ROUTE_ALL(...) __VA_ARGS__
#else
#define ROUTE_ALL(...)
#endif

#define ROUTE(name, router, tiles, rows, held, blocks)                                              \
    extern "C" __global__ void __launch_bounds__(ROUTE_MANY_THREADS, blocks)                        \
        name(const __grid_constant__ attn_out_many_args a)                                          \
    {                                                                                               \
        ROUTE_ALL(route_rows<router, tiles, rows, held>(a));                                        \
    }

/* Steps that are held: of 8 rows all, of real models; of float32 two thirds are what there are registers for. */
ROUTE(attn_out_route_bf16_32_8, router_bf16, 2, 8, 3, 1)
ROUTE(attn_out_route_bf16_32_32, router_bf16, 2, 32, 3, 2)
ROUTE(attn_out_route_bf16_32_64, router_bf16, 2, 64, 3, 2)
ROUTE(attn_out_route_bf16_128_8, router_bf16, 8, 8, 12, 1)
ROUTE(attn_out_route_bf16_128_32, router_bf16, 8, 32, 4, 2)
ROUTE(attn_out_route_bf16_128_64, router_bf16, 8, 64, 4, 2)
ROUTE(attn_out_route_f32_32_8, router_f32, 2, 8, 3, 1)
ROUTE(attn_out_route_f32_32_32, router_f32, 2, 32, 2, 2)
ROUTE(attn_out_route_f32_32_64, router_f32, 2, 64, 2, 2)
ROUTE(attn_out_route_f32_128_8, router_f32, 8, 8, 12, 1)
ROUTE(attn_out_route_f32_128_32, router_f32, 8, 32, 2, 2)
ROUTE(attn_out_route_f32_128_64, router_f32, 8, 64, 2, 2)
