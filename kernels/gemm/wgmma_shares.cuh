/* A tile whose columns the blocks of a cluster share (K::SHARES): few tokens, and fewer tiles than SMs. Each block
 * has sums of all tokens over its columns; each finishes some of the tokens, eight or a multiple, and gets their
 * sums from the others. They are added in the order of the columns, whoever does it. */
#ifndef KERNELS_GEMM_WGMMA_SHARES_CUH
#define KERNELS_GEMM_WGMMA_SHARES_CUH

#include "barriers.cuh"
#include "copy_async.cuh"
#include "gemm/wgmma_kind.cuh"
#include "put_across.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Of a block that shares nothing: it has all columns, and finishes what it multiplies. */
template <class K, bool SHARED = (K::SHARES > 1)> struct wgmma_share {
    typedef K own;
    int first_unit, last_unit;

    INLINE wgmma_share(const gemm_wgmma_args &a) : first_unit(0), last_unit(a.units) {}
    INLINE void expect(const gemm_wgmma_args &, const wgmma_tile &, uint32_t) const {}
    INLINE const wgmma_tile &own_tile(const wgmma_tile &tile) const { return tile; }
};

template <class K> struct wgmma_share<K, true> {
    enum {
        GROUPS = K::TOKENS / 8,
        MOST = WGMMA_SHARE_TOKENS(K::TOKENS, K::SHARES) / 8, /* groups of tokens of a block */
        PIECE = WARPGROUP * 16,                               /* bytes of a group, of a warpgroup */
    };
    static_assert(GROUPS * 8 % K::OUT_TOKENS == 0, "nobody writes what another finishes");
    static_assert(K::UNITS == 1 && K::CLUSTER == 1, "fetch_ahead goes by units, and has features of its own");
    static_assert(!K::PACKED && !K::I8, "no tile is computed again; rotations are there before the products");
    typedef wgmma_kind<K::TYPE, K::GATED, K::WARPGROUPS, 8 * MOST, K::STAGES, K::OUT_TOKENS, 1, 1, K::RESULT> own;
    int rank, first_unit, last_unit;

    INLINE wgmma_share(const gemm_wgmma_args &a) : rank(cluster_rank())
    {
        first_unit = a.units * rank / K::SHARES;
        last_unit = a.units * (rank + 1) / K::SHARES;
    }
    /* The groups of block `rank`: the last ones may have fewer, or none. */
    INLINE static constexpr int first_of(int rank) { return rank * MOST < GROUPS ? rank * MOST : (int)GROUPS; }

    INLINE wgmma_tile own_tile(const wgmma_tile &tile) const
    {
        wgmma_tile own = tile;
        int first = 8 * first_of(rank), behind = 8 * first_of(rank + 1);
        own.first_row += first;
        own.rows = max(min(tile.rows, behind) - first, 0);
        return own;
    }
    /* By the thread that fetches: what this block will get. */
    INLINE void expect(const gemm_wgmma_args &a, const wgmma_tile &tile, uint32_t base) const
    {
        int warpgroups = min((a.n - tile.first_feature + K::WG_FEATURES - 1) / K::WG_FEATURES, (int)K::WARPGROUPS);
        int groups = (own_tile(tile).rows + 7) / 8;
        barrier_expect(base + K::PARTS_BARRIER_AT, (K::SHARES - 1) * warpgroups * groups * PIECE);
    }
    /* Where block `to` finds group `i` of its own of block `from`, for this thread. */
    INLINE static uint32_t part(uint32_t base, int from, int to, int i)
    {
        int slot = from - (from > to), wg = threadIdx.x / WARPGROUP - 1;
        return base + K::PARTS_AT + ((slot * MOST + i) * K::WARPGROUPS + wg) * PIECE + threadIdx.x % WARPGROUP * 16;
    }
    INLINE void exchange(const wgmma_tile &tile, float (&sums)[K::TOKENS / 2], float (&total)[4 * MOST],
                         uint32_t base) const
    {
        uint32_t barrier = base + K::PARTS_BARRIER_AT;
        wgmma_settle(sums);
#pragma unroll
        for (int i = 0; i < 4 * MOST; i++) total[i] = 0;
#pragma unroll
        for (int to = 0; to < K::SHARES; to++)
#pragma unroll
            for (int i = 0; i < first_of(to + 1) - first_of(to); i++) {
                float *four = sums + 4 * (first_of(to) + i);
                if (to == rank)
                    for (int e = 0; e < 4; e++) total[4 * i + e] = four[e];
                else if (8 * (first_of(to) + i) < tile.rows)
                    put_four_across(part(base, rank, to, i), four, barrier, to);
            }
        if (own_tile(tile).rows == 0) return;
        barrier_wait_cluster(barrier, 0);
#pragma unroll
        for (int i = 0; i < MOST; i++) {
            float4 mine = {total[4 * i], total[4 * i + 1], total[4 * i + 2], total[4 * i + 3]}, sum = {0, 0, 0, 0};
            if (8 * (first_of(rank) + i) >= tile.rows) break;
#pragma unroll
            for (int from = 0; from < K::SHARES; from++) {
                float4 v = mine;
                if (from != rank) {
                    uint4 its = load_shared_16(part(base, from, rank, i));
                    v = {__uint_as_float(its.x), __uint_as_float(its.y), __uint_as_float(its.z),
                         __uint_as_float(its.w)};
                }
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            total[4 * i] = sum.x, total[4 * i + 1] = sum.y, total[4 * i + 2] = sum.z, total[4 * i + 3] = sum.w;
        }
    }
};

#endif
#endif
