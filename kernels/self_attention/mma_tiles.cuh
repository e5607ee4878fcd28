/* What attention on mma.sync is made of: tiles of bf16 rows of one head in shared memory, products
 * of rows by rows along their dimensions, and sums of rows with weights that are in registers.
 *
 * A row's pieces of 16 bytes are swizzled by its number modulo 8, so that ldmatrix reads a piece of
 * eight rows without conflicts. With .trans it makes a tile the second operand either way. */
#ifndef KERNELS_SELF_ATTENTION_MMA_TILES_CUH
#define KERNELS_SELF_ATTENTION_MMA_TILES_CUH

#include "common.cuh"
#include "copy_async.cuh"
#include "mma.cuh"
#include "self_attention/quads.cuh"
#include "self_attention/self_attention_mma_args.h"

#define LOG2_E 1.44269504f
#define LN_2   0.693147181f

/* Rows of one head of a sequence. */
struct mma_rows {
    const uint16_t *data;
    int64_t stride; /* numbers */
    int count;
};

template <int DIM>
INLINE mma_rows rows_of(const void *data, int64_t token0, int length, int heads, int head)
{
    int64_t stride = (int64_t)heads * DIM;
    return {(const uint16_t *)data + token0 * stride + head * DIM, stride, length};
}

/* ROWS rows from `first` on to shared memory; zeros behind the last one. */
template <int DIM, int ROWS> INLINE void fetch_rows(uint32_t to, const mma_rows &rows, int first)
{
    enum { PIECES = DIM / 8, STEP = SELF_MMA_THREADS / PIECES }; /* rows at once: whole eights */
    int row = (int)threadIdx.x / PIECES, piece = (int)threadIdx.x % PIECES;
    const uint16_t *from = rows.data + (first + row) * rows.stride + piece * 8;
    to += row * DIM * 2 + (piece ^ row % 8) * 16;
    int left = rows.count - first - row;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP) {
        copy_16(to + i * DIM * 2, from, i < left);
        from += STEP * rows.stride;
    }
}

/* s = x y^T: of 16 H rows of x from `row` on, and N rows of y. s[h][4 j ..]: columns 8 j .. as
 * mma_bf16 has them. */
template <int DIM, int H, int N>
INLINE void rows_by_rows(float (&s)[H][N / 2], uint32_t x, int row, uint32_t y)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t left = x + (row + lane % 16) * DIM * 2 + (lane / 16 ^ lane % 8) * 16;
    uint32_t right = y + (lane % 8 + lane / 16 * 8) * DIM * 2 + (lane / 8 % 2 ^ lane % 8) * 16;
#pragma unroll
    for (int i = 0; i < H * N / 2; i++) s[i / (N / 2)][i % (N / 2)] = 0;
#pragma unroll
    for (int d = 0; d < DIM / 16; d++) {
        uint32_t a[H][4];
#pragma unroll
        for (int h = 0; h < H; h++) load_matrices(a[h], (left ^ d * 32) + h * 16 * DIM * 2);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            load_matrices(b, (right ^ d * 32) + n * 16 * DIM * 2);
#pragma unroll
            for (int h = 0; h < H; h++) {
                mma_bf16(s[h] + 8 * n, a[h], b);
                mma_bf16(s[h] + 8 * n + 4, a[h], b + 2);
            }
        }
    }
}

/* What rows_by_rows leaves as first operand of weights_by_rows. */
template <int H, int N> INLINE void pack_weights(uint32_t (&w)[H][N / 4], const float (&s)[H][N / 2])
{
#pragma unroll
    for (int i = 0; i < H * N / 4; i++)
        w[i / (N / 4)][i % (N / 4)] =
            f32_to_bf16x2(s[i / (N / 4)][i % (N / 4) * 2], s[i / (N / 4)][i % (N / 4) * 2 + 1]);
}

/* sums += w y, along the N rows of y. */
template <int DIM, int H, int N>
INLINE void weights_by_rows(float (&sums)[H][DIM / 2], const uint32_t (&w)[H][N / 4], uint32_t y)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t right = y + lane % 16 * DIM * 2 + (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
#pragma unroll
        for (int n = 0; n < DIM / 16; n++) {
            uint32_t b[4];
            load_transposed(b, (right ^ n * 32) + k * 16 * DIM * 2);
#pragma unroll
            for (int h = 0; h < H; h++) {
                mma_bf16(sums[h] + 8 * n, w[h] + 4 * k, b);
                mma_bf16(sums[h] + 8 * n + 4, w[h] + 4 * k, b + 2);
            }
        }
    }
}

/* Row g + 8 h of 16 rows of sums, times `factor`, to `to`, where it begins. */
template <int DIM>
INLINE void store_row(uint16_t *to, bool valid, const float (&sums)[DIM / 2], int h, float factor)
{
#pragma unroll
    for (int j = 0; j < DIM / 8; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = sums + 4 * (j + i) + 2 * h;
            w[i] = f32_to_bf16x2(pair[0] * factor, pair[1] * factor);
        }
        quad_transpose(w);
        if (valid) *(uint4 *)(to + (j + threadIdx.x % 4) * 8) = uint4{w[0], w[1], w[2], w[3]};
    }
}

/* Whether all pairs of `rows` queries from `query` on and `columns` keys from `key` on are seen. */
INLINE bool all_seen(const self_attention_any_args &a, int query, int rows, int key, int columns)
{
    return key + columns - 1 <= query && query + rows - 1 - key < a.window;
}

INLINE bool is_seen(const self_attention_any_args &a, int query, int key)
{
    return key <= query && query - key < a.window;
}

#endif
