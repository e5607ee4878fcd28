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
template <int ROWS_, int TOKENS_, int STAGES_, int MATRICES_> struct grouped_kind {
    enum {
        ROWS = ROWS_, /* times 64, of each of two warpgroups */
        TOKENS = TOKENS_,
        STAGES = STAGES_,
        CLUSTER = 1, /* every block copies for itself */
        MATRICES = MATRICES_,
        STAGE_ROWS = GROUPED_FEATURES(ROWS_), /* of weights */
        FEATURES = STAGE_ROWS / MATRICES,     /* of a tile */
        /* From a warpgroup's first 64 rows to its next, and to the other warpgroup's. */
        NEXT_ROWS = MATRICES == 2 ? 128 : 64,
        WARPGROUP_ROWS = MATRICES == 2 ? 64 : 64 * ROWS_,
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
    int feature, token; /* the first ones */
    int first, last;    /* steps: this block's are first .. last - 1 */
};

/* The tiles of a block, one after the other. Divisions make them anew each time: registers are what
 * there is least of. */
template <class K> struct grouped_tiles {
    uint32_t at, end; /* cost before what is left, and before its end */
    int part;

    INLINE grouped_tiles(const grouped_wgmma_args &a)
        : at(a.begin[blockIdx.x]), end(a.begin[blockIdx.x + 1]), part(a.begin_part[blockIdx.x])
    {
    }

    INLINE bool next(const grouped_wgmma_args &a, grouped_tile &tile)
    {
        if (at >= end) return false;
        if (part + 1 < a.n_parts && at >= a.part[part + 1].first) part++;
        const grouped_part &g = a.part[part];
        uint32_t which = (at - g.first) / g.tile_cost, begin = g.first + which * g.tile_cost;
        tile.part = &g;
        tile.feature = (int)(which / g.tiles) * K::FEATURES;
        tile.token = g.token + (int)(which % g.tiles) * g.width;
        tile.first = (int)((at - begin) / g.step_cost);
        tile.last = min((int)g.steps, (int)((end - begin) / g.step_cost));
        at = min(end, begin + g.tile_cost);
        return true;
    }
};

#endif
#endif
