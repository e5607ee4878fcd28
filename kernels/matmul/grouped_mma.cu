/* Products of grouped rows in bf16, and gradients of groups' weights, through mma.sync and
 * cp.async, which every architecture from sm_80 on has; sums in float32.
 *
 * A block has a tile of 128 x 128 results, a warp a quarter of it. Operands come to shared memory
 * as they lie: a row of 64 numbers of k for each row of results ("along"), or a row of 128 numbers
 * for each of 64 numbers of k. Pieces of 16 bytes are swizzled by their row modulo 8, so that
 * ldmatrix, with .trans for the second kind, reads without conflicts. Three stages, the next two on
 * their way. */
#include "copy_async.cuh"
#include "matmul/group_tiles.cuh"
#include "matmul/grouped_args.h"
#include "mma.cuh"
#include "self_attention/quads.cuh"

enum {
    TILE = GROUPED_MMA_TILE,
    STEP = GROUPED_MMA_STEP,
    THREADS = GROUPED_MMA_THREADS,
    STAGES = GROUPED_MMA_STAGES,
    PART = 64,           /* rows and columns of a warp's results */
    ROWS_OF = PART / 16, /* fragments */
    COLUMNS_OF = PART / 8,
};

/* A tile's operand. */
struct mma_side {
    const uint16_t *data; /* where the tile begins */
    int64_t pitch;        /* numbers from one row in memory to the next */
    int64_t rows, k;      /* rows that there are from the tile's first on, and numbers along k */
};

/* Zeros where the matrix ends. */
template <bool ALONG> INLINE void fetch(const mma_side &s, int64_t k, uint32_t to)
{
    enum { PIECES = (ALONG ? STEP : TILE) / 8, LINES = THREADS / PIECES, WIDTH = PIECES * 16 };
    const int piece = (int)threadIdx.x % PIECES, line = (int)threadIdx.x / PIECES;
    const int64_t row = ALONG ? line : piece * 8, column = k + (ALONG ? piece * 8 : line);
    const uint16_t *from = s.data + (ALONG ? row * s.pitch + column : column * s.pitch + row);
    to += line * WIDTH + (piece ^ line % 8) * 16;
#pragma unroll
    for (int i = 0; i < (ALONG ? TILE : STEP) / LINES; i++) {
        const bool inside = ALONG ? row + i * LINES < s.rows && column < s.k
                                  : row < s.rows && column + i * LINES < s.k;
        copy_16(to + i * LINES * WIDTH, from + i * LINES * s.pitch, inside);
    }
}

/* 16 rows of the first operand from `row` on, at 16 numbers of k. */
template <bool ALONG> INLINE void load_rows(uint32_t (&f)[4], uint32_t tile, int row, int k)
{
    const int lane = threadIdx.x % WARP;
    if (ALONG)
        load_matrices(f,
                      tile + (row + lane % 16) * STEP * 2 + ((k / 8 + lane / 16) ^ lane % 8) * 16);
    else
        load_transposed(f, tile + (k + lane % 8 + lane / 16 * 8) * TILE * 2 +
                               ((row / 8 + lane / 8 % 2) ^ lane % 8) * 16);
}

/* 16 columns of the second one: two fragments. */
template <bool ALONG> INLINE void load_columns(uint32_t (&f)[4], uint32_t tile, int column, int k)
{
    const int lane = threadIdx.x % WARP;
    if (ALONG)
        load_matrices(f, tile + (column + lane % 8 + lane / 16 * 8) * STEP * 2 +
                             ((k / 8 + lane / 8 % 2) ^ lane % 8) * 16);
    else
        load_transposed(f, tile + (k + lane % 16) * TILE * 2 +
                               ((column / 8 + lane / 16) ^ lane % 8) * 16);
}

/* Fragments of 16 numbers of k. */
template <bool A_ALONG, bool B_ALONG> struct fragments {
    uint32_t a[ROWS_OF][4], b[COLUMNS_OF / 2][4];

    INLINE void load(uint32_t stage, int row, int column, int k)
    {
#pragma unroll
        for (int i = 0; i < ROWS_OF; i++) load_rows<A_ALONG>(a[i], stage, row + 16 * i, k);
#pragma unroll
        for (int j = 0; j < COLUMNS_OF / 2; j++)
            load_columns<B_ALONG>(b[j], stage + GROUPED_MMA_OPERAND, column + 16 * j, k);
    }
    INLINE void multiply(float (&sums)[ROWS_OF][COLUMNS_OF][4]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS_OF; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS_OF; j++) mma_bf16(sums[i][j], a[i], b[j / 2] + j % 2 * 2);
    }
};

/* sums = the warp's part of the tile, at (row, column). */
template <bool A_ALONG, bool B_ALONG>
INLINE void multiply(const mma_side &x, const mma_side &y, int row, int column,
                     float (&sums)[ROWS_OF][COLUMNS_OF][4])
{
    extern __shared__ __align__(1024) char memory[];
    const uint32_t base = shared_at(memory);
    const int steps = (int)((x.k + STEP - 1) / STEP);
    fragments<A_ALONG, B_ALONG> f[2];
#pragma unroll
    for (int i = 0; i < ROWS_OF * COLUMNS_OF * 4; i++)
        sums[i / (COLUMNS_OF * 4)][i / 4 % COLUMNS_OF][i % 4] = 0;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            fetch<A_ALONG>(x, s * STEP, base + s * GROUPED_MMA_STAGE);
            fetch<B_ALONG>(y, s * STEP, base + s * GROUPED_MMA_STAGE + GROUPED_MMA_OPERAND);
        }
        copy_commit();
    }
    for (int s = 0, at = 0, next = STAGES - 1; s < steps; s++) {
        const uint32_t stage = base + at * GROUPED_MMA_STAGE, to = base + next * GROUPED_MMA_STAGE;
        copy_wait<STAGES - 2>();
        __syncthreads(); /* and nobody reads the stage any more that is written next */
        if (s + STAGES - 1 < steps) {
            fetch<A_ALONG>(x, (int64_t)(s + STAGES - 1) * STEP, to);
            fetch<B_ALONG>(y, (int64_t)(s + STAGES - 1) * STEP, to + GROUPED_MMA_OPERAND);
        }
        copy_commit();
        f[0].load(stage, row, column, 0);
#pragma unroll
        for (int k = 0; k < STEP / 16; k++) {
            if (k + 1 < STEP / 16) f[(k + 1) % 2].load(stage, row, column, 16 * (k + 1));
            f[k % 2].multiply(sums);
        }
        at = at + 1 == STAGES ? 0 : at + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
}

/* Where a warp's results go: `data` is the place of its first one. */
template <class T> struct mma_result {
    T *data;
    int64_t pitch, rows, columns; /* rows and columns that there are from there on */
    bool add;                     /* to what is there */
};

INLINE void store(const mma_result<float> &r, const float (&sums)[ROWS_OF][COLUMNS_OF][4])
{
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 2 * ROWS_OF; i++) {
        const int row = i * 8 + lane / 4;
#pragma unroll
        for (int j = 0; j < COLUMNS_OF; j++) {
            if (row >= r.rows || j * 8 >= r.columns) continue;
            float2 *to = (float2 *)(r.data + row * r.pitch + j * 8 + lane % 4 * 2);
            const float *pair = sums[i / 2][j] + i % 2 * 2;
            const float2 old = r.add ? *to : make_float2(0, 0);
            *to = make_float2(old.x + pair[0], old.y + pair[1]);
        }
    }
}

/* Four neighbouring pieces of 8 numbers are exchanged within a quad, so that each lane writes one.
 */
INLINE void store(const mma_result<uint16_t> &r, const float (&sums)[ROWS_OF][COLUMNS_OF][4])
{
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 2 * ROWS_OF; i++) {
        const int row = i * 8 + lane / 4;
        uint16_t *to = r.data + row * r.pitch;
#pragma unroll
        for (int j = 0; j < COLUMNS_OF; j += 4) {
            uint32_t w[4];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const float *pair = sums[i / 2][j + q] + i % 2 * 2;
                const bool inside = row < r.rows && (j + q) * 8 < r.columns;
                const uint32_t old =
                    r.add && inside ? *(const uint32_t *)(to + (j + q) * 8 + lane % 4 * 2) : 0;
                w[q] = f32_to_bf16x2(__uint_as_float(old << 16) + pair[0],
                                     __uint_as_float(old & 0xffff0000u) + pair[1]);
            }
            __syncwarp(); /* what is added was read */
            quad_transpose(w);
            const int column = (j + lane % 4) * 8;
            if (row < r.rows && column < r.columns)
                *(uint4 *)(to + column) = uint4{w[0], w[1], w[2], w[3]};
        }
    }
}

/* The place of a warp's part of a tile. */
struct mma_part {
    int row, column;
    INLINE mma_part()
        : row((int)threadIdx.x / WARP % 2 * PART), column((int)threadIdx.x / WARP / 2 * PART)
    {
    }
};

template <bool TRANSPOSE> INLINE void grouped_matmul(const grouped_matmul_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    group_tile tile;
    if (!find_group_tile(a.group_offsets, a.groups, TILE, (int)(blockIdx.x / a.tiles), tile))
        return;
    const int64_t first_row = tile.begin + tile.first, rows = tile.rows - tile.first;
    const int64_t first = (int64_t)(blockIdx.x % a.tiles) * TILE;
    const uint16_t *w = (const uint16_t *)a.b + tile.group * a.n * a.k;
    const mma_side x = {(const uint16_t *)a.a + first_row * a.k, a.k, rows, a.k};
    const mma_side y = {w + first * (TRANSPOSE ? a.k : 1), TRANSPOSE ? a.k : a.n, a.n - first, a.k};
    const mma_part part;
    float sums[ROWS_OF][COLUMNS_OF][4];
    multiply<true, TRANSPOSE>(x, y, part.row, part.column, sums);
    store(
        mma_result<uint16_t>{(uint16_t *)a.out + (first_row + part.row) * a.n + first + part.column,
                             a.n, rows - part.row, a.n - first - part.column, a.add != 0},
        sums);
}

#define GROUPED(name, ...)                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, GROUPED_MMA_BLOCKS)                      \
        name(const __grid_constant__ grouped_matmul_kernel_args a)                                 \
    {                                                                                              \
        grouped_matmul<__VA_ARGS__>(a);                                                            \
    }
GROUPED(grouped_matmul_mma_transposed, true)
GROUPED(grouped_matmul_mma, false)

/* blockIdx.y: the group and the split of its rows. */
extern "C" __global__ void __launch_bounds__(THREADS, GROUPED_MMA_BLOCKS)
    grouped_wgrad_mma(const __grid_constant__ grouped_matmul_kernel_args a)
{
    wait_for_input();
    let_next_start();
    const int group = (int)blockIdx.y / a.splits, split = (int)blockIdx.y % a.splits;
    const int64_t begin = a.group_offsets[group], rows = a.group_offsets[group + 1] - begin;
    if (rows == 0 && !a.partials) return;
    const int64_t from = rows * split / a.splits, k = rows * (split + 1) / a.splits - from;
    const int64_t row = (int64_t)(blockIdx.x / a.tiles) * TILE;
    const int64_t column = (int64_t)(blockIdx.x % a.tiles) * TILE;
    const mma_side x = {(const uint16_t *)a.a + (begin + from) * a.n + row, a.n, a.n - row, k};
    const mma_side y = {(const uint16_t *)a.b + (begin + from) * a.k + column, a.k, a.k - column,
                        k};
    const mma_part part;
    float sums[ROWS_OF][COLUMNS_OF][4];
    multiply<false, false>(x, y, part.row, part.column, sums);
    float *out = a.partials ? a.partials + (int64_t)split * a.groups * a.n * a.k : (float *)a.out;
    out += (group * a.n + row + part.row) * a.k + column + part.column;
    store(
        mma_result<float>{out, a.k, a.n - row - part.row, a.k - column - part.column, !a.partials},
        sums);
}
