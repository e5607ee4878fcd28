/* Launches of grouped products whose kernels compute a tile a block
 * (kernels/grouped_gemm/grouped_tiles_args.h). */
#ifndef OPS_CUDA_GROUPED_TILES_H
#define OPS_CUDA_GROUPED_TILES_H

#include "grouped_gemm/grouped_tiles_args.h"
#include "ops/args.h"
#include "ops/op.h"

struct grouped_tiles {
    const char *image, *kernel;
    int rows, columns; /* of a tile of C */
    unsigned threads, shared_bytes;
};

/* Whether all tiles of a launch can be counted. */
bool grouped_tiles_can_run(const struct grouped_gemm_args *args, const struct grouped_tiles *tiles,
                           char why[OP_REASON_MAX]);
/* A group as kernels take it. */
struct grouped_tiles_group grouped_tiles_group(const struct grouped_gemm_args *args,
                                               const struct gemm_group *group, uint64_t first_tile);
/* A launch for as many groups as its arguments hold. */
void grouped_tiles_run(const struct op_context *context, const struct grouped_gemm_args *args,
                       const struct grouped_tiles *tiles);

#endif
