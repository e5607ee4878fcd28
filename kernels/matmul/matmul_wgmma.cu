/* matmul of bf16 on Hopper's tensor cores, all four ways in which operands may lie: a transposed one
 * is read as it lies, since the instructions take either order from shared memory.
 *
 * A block has 128 rows of results, 64 for each of two warpgroups, and 128 or 256 columns; a third
 * warpgroup fetches. Two blocks of a cluster have the same columns, and each fetches half of B for
 * both: alone, a block would need more bytes a clock than the second cache gives. Blocks take tiles in
 * turn; those of eight clusters of rows and all columns before the next, so that what they share
 * stays in the second cache. Results leave through shared memory while the next tile begins.
 *
 * Where there are few results and k is long, parts of k are tiles of their own, whose results
 * matmul_join.cu adds up in order. */
#include "common.cuh"
#include "copy_async.cuh"
#include "copy_bulk.cuh"
#include "inline.cuh"
#include "matmul/matmul_args.h"
#include "wgmma_ring.cuh"
#include "wgmma_transposed.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum { GROUP = 128, BOX = 64 * MATMUL_K * 2 }; /* threads of a warpgroup; bytes: 64 by 64 */

template <int COLUMNS_, bool TRANSPOSED_A_, bool TRANSPOSED_B_> struct matmul_kind {
    enum {
        COLUMNS = COLUMNS_,
        TRANSPOSED_A = TRANSPOSED_A_,
        TRANSPOSED_B = TRANSPOSED_B_,
        CLUSTER = MATMUL_CLUSTER,
        WARPS = 2 * GROUP / WARP, /* that multiply */
        STAGES = MATMUL_STAGES(COLUMNS_),
        STAGE_BYTES = MATMUL_STAGE_BYTES(COLUMNS_),
        B_AT = MATMUL_ROWS * MATMUL_K * 2,
        OUT_AT = STAGES * STAGE_BYTES,
        OUT_BYTES = MATMUL_ROWS / 2 * MATMUL_OUT_STRIDE, /* of a warpgroup */
        BARRIERS_AT = OUT_AT + 2 * OUT_BYTES,
    };
};

/* Of a block. */
struct matmul_tile {
    int batch, split, row, column, unit, units;
};

template <class K> struct matmul_tiles {
    int index;

    INLINE matmul_tiles() : index(blockIdx.x / K::CLUSTER) {}

    INLINE bool next(const matmul_wgmma_args &a, matmul_tile &t)
    {
        enum { ROWS = MATMUL_ROWS * K::CLUSTER };
        int rows = (a.m + ROWS - 1) / ROWS, columns = (a.n + K::COLUMNS - 1) / K::COLUMNS;
        int which = index / (rows * columns), within = index % (rows * columns);
        if (which >= a.batch * a.splits) return false;
        int first = within / (MATMUL_GROUP * columns) * MATMUL_GROUP;
        int count = min((int)MATMUL_GROUP, rows - first), at = within - first * columns;
        t.split = which / a.batch;
        t.batch = which % a.batch;
        t.row = (first + at % count) * ROWS + (int)cluster_rank() * MATMUL_ROWS;
        t.column = at / count * K::COLUMNS;
        t.unit = (int)((int64_t)a.units * t.split / a.splits);
        t.units = (int)((int64_t)a.units * (t.split + 1) / a.splits) - t.unit;
        index += gridDim.x / K::CLUSTER;
        return true;
    }
};

/* ---- the thread that fetches ---- */

template <class K>
INLINE void fetch_unit(const matmul_wgmma_args &a, const matmul_tile &t, int k,
                       const wgmma_ring<K> &ring)
{
    enum { SHARE = K::COLUMNS / K::CLUSTER };
    uint32_t to = ring.at(), full = ring.full(ring.stage), rank = cluster_rank();
    uint32_t b = to + K::B_AT + rank * SHARE * MATMUL_K * 2;
    int column = t.column + (int)rank * SHARE;
    barrier_expect(full, K::STAGE_BYTES);
    if constexpr (K::TRANSPOSED_A) {
        copy_box_3d(to, a.a, t.row, k, t.batch, full);
        copy_box_3d(to + BOX, a.a, t.row + 64, k, t.batch, full);
    } else {
        copy_box_3d(to, a.a, k, t.row, t.batch, full);
    }
    if constexpr (K::TRANSPOSED_B) {
        copy_box_3d_to(b, a.b, k, column, t.batch, full, 3);
    } else {
#pragma unroll
        for (int i = 0; i < SHARE / 64; i++)
            copy_box_3d_to(b + i * BOX, a.b, column + i * 64, k, t.batch, full, 3);
    }
}

template <class K> INLINE void fetch_all(const matmul_wgmma_args &a, wgmma_ring<K> ring)
{
    matmul_tiles<K> tiles;
    matmul_tile t;
    while (tiles.next(a, t))
        for (int u = t.unit; u < t.unit + t.units; u++) {
            barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
            fetch_unit<K>(a, t, u * MATMUL_K, ring);
            ring.step();
        }
    /* Until nobody reads any more: the other block may still be behind. */
    for (int s = 0; s < K::STAGES; s++) {
        barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
        ring.step();
    }
}

/* ---- products ---- */

template <bool TRANSPOSED> INLINE uint64_t operand(uint32_t at, int step)
{
    return TRANSPOSED ? wgmma_operand_transposed<BOX>(at + step * 16 * 128)
                      : wgmma_operand(at, step * 16);
}

template <class K>
INLINE void multiply(float (&sums)[K::COLUMNS / 2], int units, wgmma_ring<K> &ring)
{
    int last = ring.stage;
    uint32_t mine = (threadIdx.x / GROUP - 1) * BOX;
    for (int u = 0; u < units; u++) {
        barrier_wait(ring.full(ring.stage), ring.phase);
        uint32_t x = ring.at() + mine, y = ring.at() + K::B_AT;
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < MATMUL_K / 16; s++)
            wgmma_either<K::COLUMNS, K::TRANSPOSED_A, !K::TRANSPOSED_B>::shared(
                sums, operand<K::TRANSPOSED_A>(x, s), operand<!K::TRANSPOSED_B>(y, s));
        wgmma_commit();
        wgmma_wait<1>();
        if (u > 0) ring.release(last);
        last = ring.stage;
        ring.step();
    }
    wgmma_wait<0>();
    ring.release(last);
    wgmma_settle(sums);
}

/* ---- results ---- */

/* Two neighbours of a row of add, times beta. */
template <bool BF16> INLINE float2 load_pair(const matmul_wgmma_args &a, int64_t at)
{
    if constexpr (BF16) {
        uint32_t pair = *(const uint32_t *)((const uint16_t *)a.add + at);
        return {a.beta * __uint_as_float(pair << 16), a.beta * __uint_as_float(pair & 0xffff0000u)};
    }
    float2 pair = *(const float2 *)((const float *)a.add + at);
    return {a.beta * pair.x, a.beta * pair.y};
}

/* What the thread's pairs of two rows and four blocks of eight columns are added to; zeros outside. */
template <bool BF16>
INLINE void load_added(const matmul_wgmma_args &a, const int64_t (&at)[2], const bool (&valid)[2],
                       int left, float2 (&added)[2][4])
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        bool inside = a.beta != 0 && valid[i / 4] && i % 4 * 8 < left;
        added[i / 4][i % 4] =
            inside ? load_pair<BF16>(a, at[i / 4] + i % 4 * 8) : make_float2(0, 0);
    }
}

/* Rows of this warpgroup from `row` on: `from` in them in shared memory, so many columns at a time as
 * are 256 bytes. */
template <class K, bool BF16>
INLINE void store(const matmul_wgmma_args &a, const matmul_tile &t, const float (&sums)[K::COLUMNS / 2],
                  uint32_t out)
{
    enum { SIZE = BF16 ? 2 : 4, COLUMNS = 256 / SIZE };
    int wg = threadIdx.x / GROUP, thread = threadIdx.x % GROUP, lane = threadIdx.x % WARP;
    int first = t.row + (wg - 1) * 64, row = thread / WARP * 16 + lane / 4;
    int64_t row0 = ((int64_t)t.split * a.batch + t.batch) * a.m + first;
    bool valid[2] = {first + row < a.m, first + row + 8 < a.m};
#pragma unroll
    for (int from = 0; from < K::COLUMNS; from += COLUMNS) {
        int left = a.n - t.column - from;
        if (left <= 0) break;
        copy_out_read(); /* what left before */
        named_sync(wg, GROUP);
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j += 4) {
            int column = 8 * j + lane % 4 * 2;
            int64_t at[2];
            for (int h = 0; h < 2; h++)
                at[h] = (row0 + row + 8 * h) * a.n + t.column + from + column;
            float2 added[2][4];
            load_added<BF16>(a, at, valid, left - column, added);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int h = i / 4, b = i % 4;
                const float *s = sums + (from / 8 + j + b) * 4 + 2 * h;
                float x = a.alpha * s[0] + added[h][b].x, y = a.alpha * s[1] + added[h][b].y;
                uint32_t to = out + (row + 8 * h) * MATMUL_OUT_STRIDE + (column + 8 * b) * SIZE;
                if constexpr (BF16) {
                    store_shared_4(to, f32_to_bf16x2(x, y));
                } else {
                    store_shared_4(to, __float_as_uint(x));
                    store_shared_4(to + 4, __float_as_uint(y));
                }
            }
        }
        fence_for_copies();
        named_sync(wg, GROUP);
        if (thread < 64 && first + thread < a.m)
            copy_out((char *)a.out + ((row0 + thread) * a.n + t.column + from) * SIZE,
                     out + thread * MATMUL_OUT_STRIDE, min(left, (int)COLUMNS) * SIZE);
        copy_out_commit();
    }
}

template <class K>
INLINE void multiply_all(const matmul_wgmma_args &a, wgmma_ring<K> &ring, uint32_t out)
{
    matmul_tiles<K> tiles;
    matmul_tile t;
    while (tiles.next(a, t)) {
        float sums[K::COLUMNS / 2];
#pragma unroll
        for (int i = 0; i < K::COLUMNS / 2; i++) sums[i] = 0;
        multiply<K>(sums, t.units, ring);
        if (a.bf16)
            store<K, true>(a, t, sums, out);
        else
            store<K, false>(a, t, sums, out);
    }
    copy_out_read();
}

template <class K> INLINE void matmul(const matmul_wgmma_args &a)
{
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = shared_address(shared);
    wgmma_ring<K> ring = {base, 0, 0};
    if (threadIdx.x == 0) {
        for (int s = 0; s < K::STAGES; s++) {
            barrier_init(ring.full(s), 1);
            barrier_init(ring.empty(s), K::WARPS * K::CLUSTER);
        }
        barrier_init_done();
        prefetch_map(a.a);
        prefetch_map(a.b);
    }
    wait_for_input();
    let_next_start();
    __syncthreads();
    cluster_sync();
    if (threadIdx.x < GROUP) {
        registers_give<24>();
        if (threadIdx.x == 0) fetch_all<K>(a, ring);
    } else {
        registers_take<240>();
        multiply_all<K>(a, ring, base + K::OUT_AT + (threadIdx.x / GROUP - 1) * K::OUT_BYTES);
    }
}

#define MATMUL_KERNEL(name, ...)                                                                   \
    extern "C" __global__ void __launch_bounds__(MATMUL_THREADS, 1)                                \
        name(const __grid_constant__ matmul_wgmma_args a)                                          \
    {                                                                                              \
        matmul<matmul_kind<__VA_ARGS__>>(a);                                                       \
    }

#else

/* Other architectures have no such instructions; the host does not choose these kernels there. */
#define MATMUL_KERNEL(name, ...)                                                                   \
    extern "C" __global__ void name(const __grid_constant__ matmul_wgmma_args a)                   \
    {                                                                                              \
        __trap();                                                                                  \
    }

#endif

MATMUL_KERNEL(matmul_wgmma_nn_256, 256, false, false)
MATMUL_KERNEL(matmul_wgmma_nt_256, 256, false, true)
MATMUL_KERNEL(matmul_wgmma_tn_256, 256, true, false)
MATMUL_KERNEL(matmul_wgmma_tt_256, 256, true, true)
MATMUL_KERNEL(matmul_wgmma_nn_128, 128, false, false)
MATMUL_KERNEL(matmul_wgmma_nt_128, 128, false, true)
MATMUL_KERNEL(matmul_wgmma_tn_128, 128, true, false)
MATMUL_KERNEL(matmul_wgmma_tt_128, 128, true, true)
