/* Arguments and sizes of the ladder of grouped products on wgmma (grouped_ladder.cuh), shared by
 * host and device. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_LADDER_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_LADDER_ARGS_H

#include "grouped_gemm/grouped_tiles_args.h"
#include "tensor_map_args.h"

/* What each step adds; the last one is the host's alone, which gives out tiles otherwise. */
enum ladder_step {
    LADDER_PLAIN,
    LADDER_SWIZZLE,
    LADDER_STAGES,
    LADDER_ROLES,
    LADDER_CLUSTER,
    LADDER_PERSISTENT,
    LADDER_STEPS
};

/* A tile has 128 features and up to 128 tokens, and is multiplied by 128 columns at a time. */
enum {
    LADDER_FEATURES = 128,
    LADDER_TOKENS = 128,
    LADDER_COLUMNS = 128,
    LADDER_EIGHTS = 16,                            /* of rows, of an operand */
    LADDER_ROW = LADDER_COLUMNS / 2,               /* bytes of codes */
    LADDER_CODES = LADDER_FEATURES * LADDER_ROW,   /* of an operand */
    LADDER_SIDE = LADDER_CODES + 2 * ATOM_BYTES,   /* and its scales in atoms */
    LADDER_STAGE = 2 * LADDER_SIDE,                /* weights, then tokens */
    LADDER_EIGHT = 8 * LADDER_COLUMNS * 2,         /* bytes of eight rows as halves */
    LADDER_OPERAND = LADDER_EIGHTS * LADDER_EIGHT, /* an operand as halves */
    LADDER_OUT = 512,                              /* where a warp turns its results */
    LADDER_MULTIPLY = 256,                         /* threads that multiply */
    LADDER_WITH_ROLES = 2 * LADDER_MULTIPLY,       /* and decode tokens; the last warp copies */
};

/* Every kernel: X(symbol, its step, threads, blocks on an SM, stages of codes, buffers of halves).
 */
#define LADDER_KINDS(X)                                                                            \
    X(grouped_ladder_plain, LADDER_PLAIN, LADDER_MULTIPLY, 2, 0, 1)                                \
    X(grouped_ladder_swizzle, LADDER_SWIZZLE, LADDER_MULTIPLY, 2, 1, 1)                            \
    X(grouped_ladder_stages, LADDER_STAGES, LADDER_MULTIPLY, 1, 4, 2)                              \
    X(grouped_ladder_roles, LADDER_ROLES, LADDER_WITH_ROLES, 1, 6, 3)                              \
    X(grouped_ladder_cluster, LADDER_CLUSTER, LADDER_WITH_ROLES, 1, 6, 3)

/* Widths of tiles. */
#define LADDER_WIDTHS(WIDTH) WIDTH(32) WIDTH(64) WIDTH(96) WIDTH(128)
enum { LADDER_WIDTH_UNIT = 32 };

/* Shared memory: stages of codes; buffers of halves, where weights become registers of tokens only;
 * results; barriers. */
#define LADDER_BUFFER(step)      ((step) < LADDER_ROLES ? 2 * LADDER_OPERAND : LADDER_OPERAND)
#define LADDER_HALVES_AT(stages) ((stages)*LADDER_STAGE)
#define LADDER_OUT_AT(step, stages, buffers)                                                       \
    (LADDER_HALVES_AT(stages) + (buffers)*LADDER_BUFFER(step))
#define LADDER_BARRIERS_AT(step, stages, buffers)                                                  \
    (LADDER_OUT_AT(step, stages, buffers) + LADDER_MULTIPLY / 32 * LADDER_OUT)
#define LADDER_SHARED_BYTES(step, stages, buffers)                                                 \
    (LADDER_BARRIERS_AT(step, stages, buffers) + 16 * ((stages) + (buffers)))

/* Tokens `token` to `token` + `parts` * 128 of a product, as far as it has them. */
struct ladder_group {
    struct tensor_map a, b; /* codes: boxes of a step by a block's tokens, by 128 features */
    struct grouped_tiles_group of;
    int32_t token, parts;
    uint32_t pad[4];
};
SOL_STATIC_ASSERT(sizeof(struct ladder_group) == 384, "no hidden padding");

enum { LADDER_GROUPS = 40 };

struct grouped_ladder_args {
    struct ladder_group groups[LADDER_GROUPS]; /* in the order of their tiles */
    int32_t n_groups;
    int32_t scales; /* enum scale_layout */
    int32_t c_type; /* enum dtype */
    uint32_t tiles; /* of all groups; of two blocks where they work together */
    uint32_t pad[12];
};
SOL_STATIC_ASSERT(sizeof(struct grouped_ladder_args) <= 32764, "what a launch takes");

#endif
