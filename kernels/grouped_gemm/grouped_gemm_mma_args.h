/* Arguments of the grouped products of block-scaled matrices on mma.sync, shared by host and
 * device. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_GEMM_MMA_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_GEMM_MMA_ARGS_H

#include "format_args.h"
#include "grouped_gemm/grouped_gemm_args.h"

/* A block computes a tile of C with 2 x 2 warps. Columns of k that are in shared memory at a time.
 */
enum { GROUPED_THREADS = 128, GROUPED_ROWS = 64, GROUPED_COLUMNS = 64, GROUPED_CHUNK = 64 };
/* Of a launch: its arguments may have 4 KB. */
enum { GROUPED_GROUPS = 36 };

struct grouped_gemm_mma_group {
    const uint8_t *a, *b, *up;                        /* codes */
    const uint8_t *a_scales, *b_scales, *up_scales;   /* of fp8 NULL */
    const float *bias, *up_bias, *factor, *up_factor; /* or NULL */
    void *c;
    int32_t m, n, k;
    uint32_t first_tile; /* of the launch */
};

struct grouped_gemm_mma_args {
    struct grouped_gemm_mma_group groups[GROUPED_GROUPS]; /* none without tiles */
    int32_t n_groups;
    int32_t scales; /* enum scale_layout */
    int32_t c_type; /* enum dtype */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct grouped_gemm_mma_group) == 104, "host and device agree");
SOL_STATIC_ASSERT(sizeof(struct grouped_gemm_mma_args) <= 4096, "as much as a launch takes");

#endif
