/* What the parts of the grouped products on wgmma share (grouped_wgmma.cuh): a kernel's sizes, the
 * work of a block. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_WORK_CUH
#define KERNELS_GROUPED_GEMM_GROUPED_WORK_CUH

#include "common.cuh"
#include "grouped_gemm/grouped_gemm_args.h"
#include "grouped_gemm/grouped_wgmma_args.h"
#include "inline.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* What a kernel is made of. */
template <int ROWS_, int TOKENS_, int STAGES_> struct grouped_kind {
    enum {
        ROWS = ROWS_, /* times 64, of each of two warpgroups */
        TOKENS = TOKENS_,
        STAGES = STAGES_,
        CLUSTER = 1, /* every block copies for itself */
        FEATURES = GROUPED_FEATURES(ROWS_),
        HALF_BYTES = GROUPED_HALF_BYTES(TOKENS_),
        CODES_AT = GROUPED_CODES_AT(TOKENS_),
        SCALES_AT = GROUPED_SCALES_AT(ROWS_, TOKENS_),
        STAGE_BYTES = GROUPED_STAGE_BYTES(ROWS_, TOKENS_),
        OUT_AT = GROUPED_OUT_AT(ROWS_, TOKENS_, STAGES_),
        BARRIERS_AT = GROUPED_BARRIERS_AT(ROWS_, TOKENS_, STAGES_),
        SUMS_BARRIER_AT = GROUPED_SUMS_BARRIER_AT(ROWS_, TOKENS_, STAGES_),
        PARTIAL = GROUPED_PARTIAL_BYTES(ROWS_, TOKENS_),
        SUMS = TOKENS_ / 2, /* of a thread, for 64 features of its warpgroup */
    };
};

/* ---- the work of a block ---- */

struct grouped_tile {
    const grouped_part *part;
    int feature, token;   /* the first ones */
    int first, last, end; /* steps: this block's are first .. last - 1, the tile has `end` */
};

INLINE uint32_t step_cost(const grouped_part &g)
{
    return grouped_step_cost(g.width);
}

/* The cost x, moved to where the work can be cut: between tiles, or between two steps that are not
 * near a tile's ends. */
INLINE uint32_t grouped_cut(const grouped_wgmma_args &a, uint32_t x)
{
    enum { LEAST = 2 }; /* steps of a part */
    int i = 0;
    while (i + 1 < a.n_parts && a.part[i + 1].first <= x) i++;
    const grouped_part &g = a.part[i];
    uint32_t each = step_cost(g), tile = g.steps * each, in = x - g.first;
    uint32_t step = (in % tile + each / 2) / each;
    if (a.whole) step = step * 2 < g.steps ? 0 : g.steps;
    if (step < LEAST)
        step = 0;
    else if (g.steps - step < LEAST)
        step = g.steps;
    return g.first + in / tile * tile + step * each;
}

/* Where the work of block b begins. */
INLINE uint32_t grouped_begin(const grouped_wgmma_args &a, uint32_t b)
{
    if (b >= gridDim.x) return a.cost;
    uint32_t each = a.cost / gridDim.x, more = a.cost % gridDim.x;
    return grouped_cut(a, each * b + more * b / gridDim.x);
}

template <class K> struct grouped_tiles {
    uint32_t at, end;
    int part;

    INLINE grouped_tiles(const grouped_wgmma_args &a)
        : at(grouped_begin(a, blockIdx.x)), end(grouped_begin(a, blockIdx.x + 1)), part(0)
    {
    }

    INLINE bool next(const grouped_wgmma_args &a, grouped_tile &tile)
    {
        if (at >= end) return false;
        while (part + 1 < a.n_parts && a.part[part + 1].first <= at) part++;
        const grouped_part &g = a.part[part];
        uint32_t each = step_cost(g), cost = g.steps * each;
        uint32_t which = (at - g.first) / cost, begin = g.first + which * cost;
        tile.part = &g;
        tile.feature = (int)(which / g.tiles) * K::FEATURES;
        tile.token = g.token + (int)(which % g.tiles) * g.width;
        tile.first = (int)((at - begin) / each);
        tile.end = g.steps;
        at = min(end, begin + cost);
        tile.last = (int)((at - begin) / each);
        return true;
    }
};

#endif
#endif
