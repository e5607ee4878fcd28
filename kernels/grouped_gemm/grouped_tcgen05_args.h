/* Arguments and sizes of the grouped products on Blackwell's tensor cores, shared by host and
 * device. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_TCGEN05_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_TCGEN05_ARGS_H

#include "grouped_gemm/grouped_tiles_args.h"
#include "tensor_map_args.h"

/* A stage has 256 columns of k: rows of 128 bytes of codes, and four atoms of scales for each 128
 * rows. A product takes 64 of them, which is one atom. */
enum {
    TCGEN05_THREADS = 256,
    TCGEN05_FEATURES = 128, /* rows of b that a block multiplies */
    TCGEN05_K = 256,
    TCGEN05_ATOMS = 4,
    TCGEN05_ROW = 128, /* bytes */
    TCGEN05_SCALES = TCGEN05_ATOMS * ATOM_BYTES,
    TCGEN05_CODES = TCGEN05_FEATURES * TCGEN05_ROW,
};

/* X(function, matrices of weights, tokens of a tile, stages, tiles whose sums are kept, blocks that
 * work together on 128 features each) */
#define TCGEN05_KINDS(X)                                                                           \
    X(grouped_tcgen05_128, 1, 128, 6, 2, 1)                                                        \
    X(grouped_tcgen05_256, 1, 256, 4, 1, 1)                                                        \
    X(grouped_tcgen05_pair, 1, 256, 5, 1, 2)                                                       \
    X(grouped_tcgen05_gated, 2, 128, 4, 1, 1)

#define TCGEN05_STAGE_BYTES(matrices, tokens, blocks)                                              \
    ((matrices) * (TCGEN05_CODES + TCGEN05_SCALES) +                                               \
     (tokens) * (TCGEN05_ROW / (blocks) + TCGEN05_SCALES / ATOM_ROWS))
/* Barriers, and the address of tensor memory, behind the stages. */
#define TCGEN05_BARRIERS_AT(matrices, tokens, stages, blocks)                                      \
    ((stages)*TCGEN05_STAGE_BYTES(matrices, tokens, blocks))
#define TCGEN05_SHARED_BYTES(matrices, tokens, stages, blocks)                                     \
    (TCGEN05_BARRIERS_AT(matrices, tokens, stages, blocks) + 128)

struct tcgen05_group {
    struct tensor_map a, b,
        up; /* codes: boxes of 128 bytes by a block's part of `width`, by 128 rows */
    struct grouped_tiles_group of;
    uint32_t width; /* tokens of a tile: a multiple of 8, for two blocks of 16 */
    uint32_t pad[5];
};
SOL_STATIC_ASSERT(sizeof(struct tcgen05_group) == 512, "no hidden padding");

/* Of a launch. Its arguments may have 32764 bytes; the host makes them on its stack. */
enum { TCGEN05_GROUPS = 44 };

struct grouped_tcgen05_args {
    struct tcgen05_group groups[TCGEN05_GROUPS];
    int32_t n_groups;
    int32_t scales; /* enum scale_layout */
    int32_t c_type; /* enum dtype */
    uint32_t tiles;
    float alpha, limit; /* of swiglu */
    uint32_t pad[10];
};
SOL_STATIC_ASSERT(sizeof(struct grouped_tcgen05_args) <= 32764, "what a launch takes");

#endif
