/* Products of experts with the few rows that chose each: reading the weights is all that counts, so
 * only experts with rows are read, each once for up to 8 * TILES / P rows (a piece).
 *
 * The list of work is (piece, tile of 16 features), pieces by rising expert; every block takes an
 * equal stretch of it, so a block spreads the activations of a piece once for many tiles. A tile is
 * 8 warps times HELD units; its next one's unit is fetched into a warp's registers as soon as it
 * has multiplied the present one, so that memory never waits for sums. A row's sums are made in the
 * same order whatever rows are beside it. */
#ifndef KERNELS_GEMM_EXPERT_ROWS_CUH
#define KERNELS_GEMM_EXPERT_ROWS_CUH

#include "gemm/expert_rows_args.h"
#include "gemm/few_rows.cuh"
#include "gemm/groups.cuh"
#include "swiglu/swiglu.cuh"

enum {
    EXPERT_WARPS = EXPERT_ROWS_THREADS / WARP,
    EXPERT_HELD = EXPERT_ROWS_K_MAX / UNIT_COLUMNS / EXPERT_WARPS,
};

/* Some rows of an expert. */
struct expert_piece {
    uint32_t expert, first, count;

    __device__ void find(const int32_t *offsets, const expert_rows_args &a, uint32_t index,
                         int size)
    {
        row_tile tile = find_tile(offsets, a.groups, a.rows, index, size);
        expert = (uint32_t)tile.group, first = (uint32_t)tile.first, count = (uint32_t)tile.count;
    }
};

/* What the warps have for one tile, and the sums of it. */
template <int C> struct expert_partial {
    float at[EXPERT_WARPS][FEATURES][C + 1];

    __device__ void put(uint32_t warp, int n, const float sum[4])
    {
        int lane = threadIdx.x % WARP, g = lane / 4, c = n * COLUMNS + 2 * (lane % 4);
        at[warp][g][c] = sum[0] * mxfp4_weights::RESTORE;
        at[warp][g][c + 1] = sum[1] * mxfp4_weights::RESTORE;
        at[warp][g + 8][c] = sum[2] * mxfp4_weights::RESTORE;
        at[warp][g + 8][c + 1] = sum[3] * mxfp4_weights::RESTORE;
    }
    /* Row r of a piece, of P parts: the small parts first. */
    template <int P> __device__ float total(uint32_t feature, uint32_t r) const
    {
        float sum = 0;
#pragma unroll
        for (int p = P - 1; p >= 0; p--)
#pragma unroll
            for (int w = 0; w < EXPERT_WARPS; w++) sum += at[w][feature][r * P + p];
        return sum;
    }
};

/* M matrices' tile of features: a warp's units are warp, warp + 8 ... */
template <int M> struct expert_tile {
    mxfp4_weights weights[M];
    mxfp4_weights::window held[M][EXPERT_HELD];

    __device__ void point(const expert_rows_args &a, uint32_t index)
    {
#pragma unroll
        for (int i = 0; i < M; i++) weights[i].set(a.w[i], a.scales[i], a.k, index);
    }
    __device__ void fetch(int d, uint32_t unit, uint32_t units)
    {
#pragma unroll
        for (int i = 0; i < M; i++)
            if (unit < units) weights[i].fetch(held[i][d], unit);
    }
    __device__ void open(uint32_t warp, uint32_t units)
    {
#pragma unroll
        for (int d = 0; d < EXPERT_HELD; d++) fetch(d, warp + d * EXPERT_WARPS, units);
    }
};

/* A piece's rows into columns. By all threads; a few loads of each on their way at a time. */
template <int P>
__device__ inline void spread_piece(const expert_rows_args &a, const expert_piece &piece,
                                    const int32_t *rows, char *columns)
{
    enum { BATCH = 3 };
    typedef mxfp4_weights W;
    uint32_t bytes = column_bytes<W>(a.k), chunks = step_count<W>(a.k) * (W::STEP / 8);
    uint32_t all = piece.count * chunks;
    for (uint32_t i = threadIdx.x; i < all; i += BATCH * EXPERT_ROWS_THREADS) {
        float x[BATCH][8];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            uint32_t at = i + b * EXPERT_ROWS_THREADS, r = at / chunks;
            const float *row = nullptr;
            if (at < all) row = a.x + (int64_t)rows[piece.first + r] * a.k;
            take_chunk(row, a.k, at - r * chunks, x[b]);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            uint32_t at = i + b * EXPERT_ROWS_THREADS, r = at / chunks;
            if (at < all) put_chunk<W, P>(columns + r * P * bytes, bytes, at - r * chunks, x[b]);
        }
    }
}

/* EARLY: who routed has ended, as the kernel right before this one lets it begin behind its own wait, so that
 * weights are asked for before that one has ended. */
template <int M, int TILES, int P, bool EARLY>
__device__ inline void expert_rows(const expert_rows_args &a)
{
    enum { ROWS = COLUMNS * TILES / P };
    typedef mxfp4_weights W;
    extern __shared__ __align__(16) char columns[];
    __shared__ expert_partial<COLUMNS * TILES> partial[M];
    __shared__ int32_t offsets[EXPERT_ROWS_GROUPS_MAX + 1], rows[EXPERT_ROWS_MAX];
    expert_tile<M> tile;
    uint32_t warp = threadIdx.x / WARP, units = unit_count(a.k), tiles = tile_count(TILES_MXFP4, a.n);
    uint32_t groups = (uint32_t)a.groups, at = threadIdx.x % FEATURES, r = threadIdx.x / FEATURES;
    if (!EARLY) wait_for_input();
    if (!EARLY) let_next_start();
    for (uint32_t i = threadIdx.x; i <= groups; i += EXPERT_ROWS_THREADS)
        offsets[i] = __ldcg(a.group_offsets + i);
    for (uint32_t i = threadIdx.x; i < a.rows; i += EXPERT_ROWS_THREADS)
        rows[i] = a.x_rows ? __ldcg(a.x_rows + i) : (int32_t)i;
    __syncthreads();
    uint32_t all = count_tiles(offsets, (int)groups, ROWS) * tiles;
    uint32_t item = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
    expert_piece piece;
    piece.find(offsets, a, item / tiles, ROWS);
    if (item < end) {
        tile.point(a, piece.expert * tiles + item % tiles);
        tile.open(warp, units);
    }
    if (EARLY) wait_for_input();
    if (EARLY) let_next_start();
    for (bool fresh = true; item < end; item++) {
        if (fresh) spread_piece<P>(a, piece, rows, columns);
        if (fresh) __syncthreads();
        uint32_t used = piece.count * P, first = item % tiles, g = threadIdx.x % WARP / 4;
        const char *x[TILES];
#pragma unroll
        for (int n = 0; n < TILES; n++)
            x[n] = columns + (n * COLUMNS + g) % used * column_bytes<W>(a.k) +
                   W::lane_at(threadIdx.x % 4, warp);
        /* Who finishes the tile, and where the next one is. */
        uint32_t feature = first * FEATURES + at;
        bool finishes = r < piece.count && feature < a.n, more = item + 1 < end;
        expert_piece next = piece;
        fresh = first + 1 == tiles;
        if (fresh && more) next.find(offsets, a, item / tiles + 1, ROWS);
        if (more) tile.point(a, next.expert * tiles + (fresh ? 0 : first + 1));
        float start[M];
#pragma unroll
        for (int i = 0; i < M; i++)
            start[i] = finishes && a.bias[i] ? a.bias[i][piece.expert * a.n + feature] : 0;

        float sum[M][TILES][4] = {};
#pragma unroll
        for (int d = 0; d < EXPERT_HELD; d++) {
            uint32_t unit = warp + d * EXPERT_WARPS;
            if (unit >= units) break;
            W::fragment f[TILES];
#pragma unroll
            for (int n = 0; n < TILES; n++) f[n] = W::columns_at(x[n] + unit * W::COLUMN_STEP);
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int n = 0; n < TILES; n++) W::multiply(sum[i][n], tile.held[i][d], f[n]);
            if (more) tile.fetch(d, unit, units);
        }
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int n = 0; n < TILES; n++) partial[i].put(warp, n, sum[i][n]);
        __syncthreads();
        if (finishes) {
            float y = partial[0].template total<P>(at, r) + start[0];
            if (M == 2)
                y = swiglu(y, partial[M - 1].template total<P>(at, r) + start[M - 1], a.alpha,
                           a.limit);
            a.out[(piece.first + r) * a.n + feature] = y;
        }
        __syncthreads();
        piece = next;
    }
}

#define EXPERT_ROWS(name, matrices, tiles, parts, early)                                           \
    extern "C" __global__ void __launch_bounds__(EXPERT_ROWS_THREADS, EXPERT_ROWS_BLOCKS)          \
        name(const __grid_constant__ expert_rows_args a)                                           \
    {                                                                                              \
        expert_rows<matrices, tiles, parts, early>(a);                                             \
    }

#endif
