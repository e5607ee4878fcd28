/* What the parts of the products on wgmma share (gemm_wgmma.cuh): a kernel's sizes, its tiles. */
#ifndef KERNELS_GEMM_WGMMA_KIND_CUH
#define KERNELS_GEMM_WGMMA_KIND_CUH

#include "gemm/gemm_wgmma_args.h"
#include "inline.cuh"
#include "weights.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* What a kernel is made of. */
template <int TYPE_, bool GATED_, int WARPGROUPS_, int TOKENS_, int STAGES_, int OUT_TOKENS_, int CLUSTER_,
          int SHARES_ = 1, int RESULT_ = WGMMA_F32, int ROWS_ = WGMMA_ROWS_BF16>
struct wgmma_kind {
    enum {
        I8 = ROWS_ == WGMMA_ROWS_I8,
        UNITS = WGMMA_UNITS(ROWS_, WARPGROUPS_), /* of a stage */
        X_BOXES = WGMMA_BOXES_OF_X(ROWS_, WARPGROUPS_),
        X_UNIT = I8 ? WGMMA_K / 4 : WGMMA_K, /* elements of x's map in a unit: 4 bytes, or bf16 */
        RESULT = RESULT_, /* enum wgmma_result */
        HEADS = RESULT_ == WGMMA_HEADS,
        TYPE = TYPE_,             /* of weights */
        GATED = GATED_,           /* weights are gate and up of the same features */
        WARPGROUPS = WARPGROUPS_, /* that multiply */
        THREADS = (WARPGROUPS + 1) * WARPGROUP,
        WARPS = WARPGROUPS * (WARPGROUP / WARP),
        TOKENS = TOKENS_, /* of a tile, at most */
        STAGES = STAGES_,
        OUT_TOKENS = OUT_TOKENS_, /* whose results a warpgroup holds in shared memory, in float32 */
        BLOCK = RESULT_ == WGMMA_BF16 ? 2 * OUT_TOKENS_ : OUT_TOKENS_,
        CLUSTER = CLUSTER_,       /* blocks with the same tokens and neighbouring features */
        SHARES = SHARES_,         /* or with the same tile, a share of its columns each (wgmma_shares.cuh) */
        PACKED = TYPE_TILE_ROWS(TYPE_) != 0, /* in tiles, which are decoded in registers */
        VARIES = TYPE_ == TILES_MXFP4,       /* a tile is as wide as its tokens need */
        W_TILE_ROWS = TYPE_TILE_ROWS(TYPE_),
        W_BYTES = UNITS * WGMMA_W_BYTES(TYPE_), /* of 64 rows and a stage */
        S_BYTES = UNITS * WGMMA_SCALES_BYTES(TYPE_),
        /* Of a stage's gate or up, or all: copies begin at multiples of 128. */
        MATRICES = GATED_ ? 2 : 1,
        W_EACH = WARPGROUPS * W_BYTES / MATRICES,
        S_EACH = (WARPGROUPS * S_BYTES / MATRICES + 127) / 128 * 128,
        X_BYTES = TOKENS * WGMMA_ROW_BYTES, /* of a box */
        W_AT = X_BOXES * X_BYTES,
        SCALES_AT = W_AT + WARPGROUPS * W_BYTES,
        STAGE_BYTES = WGMMA_STAGE_BYTES(TYPE_, ROWS_, WARPGROUPS_, TOKENS_),
        /* Of a warpgroup; in boxes: a multiple of what the swizzle goes by. */
        OUT_BYTES = RESULT_ == WGMMA_BF16 ? BLOCK * (GATED_ ? 32 : 64) * 2
                    : HEADS               ? OUT_TOKENS_ * WGMMA_ROWS * 4
                                          : WGMMA_OUT_BYTES(GATED_, OUT_TOKENS_),
        OUT_AT = STAGES * STAGE_BYTES,
        PARTS_AT = OUT_AT + WARPGROUPS * OUT_BYTES,
        BARRIERS_AT = PARTS_AT + WGMMA_PARTS_BYTES(WARPGROUPS_, TOKENS_, SHARES_),
        PARTS_BARRIER_AT = BARRIERS_AT + 2 * 8 * STAGES,
        ROWS_AT = PARTS_BARRIER_AT + (SHARES > 1 ? 8 : 0), /* I8 */
        OFFSETS_AT = ROWS_AT + (I8 ? WARPGROUPS * I8_ROWS_BYTES(TOKENS) : 0),
        END = OFFSETS_AT + (WGMMA_GROUPS_MAX + 1) * 4,
        WG_FEATURES = GATED ? WGMMA_ROWS / 2 : WGMMA_ROWS, /* of a warpgroup */
        FEATURES = WARPGROUPS * WG_FEATURES,               /* of a block's tile */
        /* With few sums half of an SM's registers are enough, so that a block fits beside those of the kernel before.
         * Else a launch gives each thread as many as there are, in eights; what the fetching ones give back the
         * others get. */
        BLOCKS = SHARES > 1 && TOKENS <= 64 ? 2 : 1,
        POOL = 65536 / THREADS / 8 * 8 * THREADS,
        FETCH_REGISTERS = 24,
        REGISTERS = (POOL - FETCH_REGISTERS * WARPGROUP) / (WARPGROUPS * WARPGROUP) / 8 * 8,
    };
    static_assert((int)END <= (int)WGMMA_SHARED_BYTES(TYPE_, ROWS_, GATED_, WARPGROUPS_, TOKENS_, STAGES_, OUT_TOKENS_,
                                               SHARES_),
                  "what a launch gives");
    static_assert(SCALES_AT + MATRICES * S_EACH <= STAGE_BYTES, "a stage");
};

struct wgmma_tile {
    int group, first_feature, first_row, rows, width; /* width: of the product, at least rows */
};

/* Of WGMMA_HEADS: which of q, k and v (0, 1, 2) the features from `feature` on are of, and the row within it. */
struct wgmma_head {
    int which, row;

    INLINE wgmma_head(const gemm_wgmma_args &a, int feature)
    {
        int head = a.heads[feature / WGMMA_ROWS];
        which = head / WGMMA_HEAD_WHICH, row = head % WGMMA_HEAD_WHICH * WGMMA_ROWS;
    }
};

#endif
#endif
