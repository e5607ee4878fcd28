/* MXFP4 times rows in int8, for gemm_wgmma.cuh: twice the operations of bf16. A row's weights become whole numbers
 * over 1/8 of its largest scale: those of blocks with that scale are up to 48, and whole, as with the two scales
 * below it; those of smaller blocks are rounded, by 1/96 of the row's largest magnitude at most. So one scale
 * serves a whole row, and sums along it are exact.
 *
 * A pair of codes as bf16 (mxfp4_pair, 2^-126 times the values) times 2^127 over the block's distance from the
 * largest scale, plus 48, has 64 + the whole number in the low byte of each half: from 32 to 64 a bf16 counts
 * quarters. So a fused multiply-add and a byte permutation make bytes of codes. The 64 times the sum of a row of x
 * goes again when sums are finished. */
#ifndef KERNELS_GEMM_I8_WEIGHTS_CUH
#define KERNELS_GEMM_I8_WEIGHTS_CUH

#include "copy_async.cuh"
#include "gemm/wgmma_kind.cuh"
#include "gemm/wgmma_results.cuh"
#include "mma.cuh"
#include "pack/mxfp4_tiles.h"
#include "wgmma_i8.cuh"
#include "wgmma_ring.cuh"
#include "words.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum { I8_OFFSET = 64 };

/* Fragments of 32 columns of a row: a word's codes, `scale` twice 2^(127 - distance) in bf16. */
INLINE void decode_i8(uint32_t &first, uint32_t &second, uint32_t word, uint32_t scale)
{
    const uint32_t base = 0x42404240; /* 48 */
    uint32_t p[4] = {mxfp4_pair(word, 0), mxfp4_pair(word, 1), mxfp4_pair(word, 2), mxfp4_pair(word, 3)};
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = fma_bf16x2(p[i], scale, base);
    first = __byte_perm(p[0], p[1], 0x6420);
    second = __byte_perm(p[2], p[3], 0x6420);
}

/* A lane's part of a unit: its words as of unit_words (gemm_wgmma.cuh), the scales of row g's two blocks and of row
 * g + 8's, a byte each. */
struct i8_unit {
    uint4 w;
    uint32_t scales;
};

/* Sums of a tile: while they are added up, and then. */
template <class K> union i8_sums {
    int32_t whole[K::TOKENS / 2];
    float finished[K::TOKENS / 2];
};

/* What is said of a tile's rows of x, and each thread's biases, which a warpgroup keeps in shared memory while it
 * multiplies. */
template <class K> INLINE uint32_t i8_rows_at(uint32_t shared)
{
    return shared + K::ROWS_AT + (threadIdx.x / WARPGROUP - 1) * I8_ROWS_BYTES(K::TOKENS);
}

template <class K> INLINE uint32_t i8_bias_at(uint32_t shared)
{
    return i8_rows_at<K>(shared) + K::TOKENS * sizeof(i8_row) + threadIdx.x % WARPGROUP * 8;
}

/* The rows of weights of a lane: g and g + 8 of a warp's tile, or (GATED) of half a tile of gate and of up. */
template <class K> struct i8_weights {
    uint32_t largest[2]; /* scale */

    INLINE i8_weights(const gemm_wgmma_args &a, const wgmma_tile &tile, int feature, uint32_t shared)
    {
        int thread = threadIdx.x % WARPGROUP, warp = thread / WARP, g = thread % WARP / 4;
        int rows = a.group_rows * TILE_ROWS_MXFP4;
        float bias[2];
        load_bias<K>(a, tile.group, feature, bias);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = feature + g + (K::GATED ? 8 * warp : 16 * warp + 8 * i);
            largest[i] = row < rows ? a.largest[K::GATED ? i : 0][(int64_t)tile.group * rows + row] : 0;
            store_shared_f32(i8_bias_at<K>(shared) + 4 * i, bias[i]);
        }
        for (int i = thread; i < tile.width; i += WARPGROUP) {
            i8_row row = a.x_rows[tile.first_row + i];
            store_shared_f32(i8_rows_at<K>(shared) + 8 * i, row.scale);
            store_shared_4(i8_rows_at<K>(shared) + 8 * i + 4, (uint32_t)row.sum);
        }
    }

    /* Unit number U of the stage. */
    template <int U> INLINE i8_unit load(const wgmma_ring<K> &ring) const
    {
        enum { TILE = K::UNITS * UNIT_BYTES, TILE_SCALES = K::UNITS * UNIT_SCALES_MXFP4 };
        int warp = threadIdx.x / WARP - WARPGROUP / WARP, lane = threadIdx.x % WARP;
        uint32_t at = ring.at() + K::W_AT + U * UNIT_BYTES + lane * 16;
        uint32_t scales = ring.at() + K::SCALES_AT + U * UNIT_SCALES_MXFP4 + lane / 4 * 4;
        if (!K::GATED)
            return {load_shared_16(at + warp * TILE), load_shared_4(scales + warp * TILE_SCALES)};
        at += warp / 2 * TILE + warp % 2 * 8;
        scales += warp / 2 * TILE_SCALES;
        uint2 gate = load_shared_8_at<0>(at), up = load_shared_8_at<0>(at + K::W_EACH);
        uint32_t both = __byte_perm(load_shared_4(scales), load_shared_4(scales + K::S_EACH),
                                    warp % 2 ? 0x7632 : 0x5410);
        return {{gate.x, gate.y, up.x, up.y}, both};
    }

    /* What decode_i8 takes for block number I of a unit. A block of zeros may have any scale. */
    template <int I> INLINE uint32_t scale_of(const i8_unit &u) const
    {
        uint32_t scale = min(__byte_perm(u.scales, 0, 0x4440 + I), largest[I / 2]);
        return 0x7f007f00u - (largest[I / 2] - scale) * 0x00800080u;
    }

    /* Fragments of a unit, 32 columns each. */
    INLINE void decode(uint32_t (&f)[2][4], const i8_unit &u) const
    {
        decode_i8(f[0][0], f[0][2], u.w.x, scale_of<0>(u));
        decode_i8(f[0][1], f[0][3], u.w.z, scale_of<2>(u));
        decode_i8(f[1][0], f[1][2], u.w.y, scale_of<1>(u));
        decode_i8(f[1][1], f[1][3], u.w.w, scale_of<3>(u));
    }

    /* As finish, of whole sums: those of tokens 8 j + 2 t and the next, rows g and g + 8. */
    INLINE void finish(const gemm_wgmma_args &a, const wgmma_tile &tile, uint32_t shared, i8_sums<K> &sums) const
    {
        uint32_t rows = i8_rows_at<K>(shared) + threadIdx.x % 4 * 16;
        uint2 stored = load_shared_8_at<0>(i8_bias_at<K>(shared));
        const float bias[2] = {__uint_as_float(stored.x), __uint_as_float(stored.y)};
        const float by_w[2] = {e8m0_to_f32((uint8_t)largest[0]) / 8, e8m0_to_f32((uint8_t)largest[1]) / 8};
        wgmma_settle(sums.whole);
        named_sync(threadIdx.x / WARPGROUP, WARPGROUP); /* rows are there */
#pragma unroll
        for (int j = 0; j < K::TOKENS / 8; j++) {
            if (j % 2 == 0 && 8 * j >= tile.rows) break;
            uint4 two = load_shared_16(rows + 64 * j);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float by_x = __uint_as_float(i % 2 ? two.z : two.x);
                int32_t offset = I8_OFFSET * (int32_t)(i % 2 ? two.w : two.y);
                sums.finished[4 * j + i] = (float)(sums.whole[4 * j + i] - offset) * (by_w[i / 2] * by_x);
            }
            finish_block<K>(a, bias, sums.finished + 4 * j);
        }
    }
};

/* 32 columns and N tokens, of which one instruction takes 256. */
template <class K, int N>
INLINE void multiply_i8_step(int32_t (&sums)[K::TOKENS / 2], const uint32_t (&f)[4], uint32_t x, int step)
{
    enum { ONE = N < 256 ? N : 256 };
    wgmma_u8s8<ONE>::registers(sums, f, wgmma_operand(x, 16 * step));
    if constexpr (N > ONE)
        wgmma_u8s8<N - ONE>::registers(sums + ONE / 2, f, wgmma_operand(x + ONE * WGMMA_ROW_BYTES, 16 * step));
}

/* A unit of 64 columns. */
template <class K, int N>
INLINE void multiply_i8_unit(int32_t (&sums)[K::TOKENS / 2], const uint32_t (&f)[2][4], uint32_t x, int unit)
{
    wgmma_fence();
    multiply_i8_step<K, N>(sums, f[0], x, 2 * unit);
    multiply_i8_step<K, N>(sums, f[1], x, 2 * unit + 1);
    wgmma_commit();
}

/* While the products of a unit run, the next one is decoded, whole: the latencies of its four words then hide
 * each other's. */
template <class K, int N>
INLINE void multiply_i8_stages(int32_t (&sums)[K::TOKENS / 2], int units, wgmma_ring<K> &ring, const i8_weights<K> &w)
{
    uint32_t first[2][4], second[2][4];
    i8_unit one, two;
    barrier_wait(ring.full(ring.stage), ring.phase);
    one = w.template load<0>(ring);
    two = w.template load<1>(ring);
    w.decode(first, one);
    for (int u = 0; u < units; u += K::UNITS) {
        uint32_t x = ring.uniform_at();
        int last = ring.stage;
        multiply_i8_unit<K, N>(sums, first, x, 0);
        w.decode(second, two);
        wgmma_wait<0>();
        multiply_i8_unit<K, N>(sums, second, x, 1);
        ring.step();
        if (u + K::UNITS < units) {
            barrier_wait(ring.full(ring.stage), ring.phase);
            one = w.template load<0>(ring);
            two = w.template load<1>(ring);
            w.decode(first, one);
        }
        wgmma_wait<0>();
        ring.release(last);
    }
}

#endif
#endif
