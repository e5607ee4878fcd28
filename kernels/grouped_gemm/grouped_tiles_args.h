/* Arguments of kernels that compute grouped products tile by tile, a block each, shared by host and
 * device. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_TILES_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_TILES_ARGS_H

#include "format_args.h"
#include "grouped_gemm/grouped_gemm_args.h"

/* Of a launch: its arguments may have 4 KB. */
enum { GROUPED_GROUPS = 36 };

struct grouped_tiles_group {
    const uint8_t *a, *b, *up;                        /* codes */
    const uint8_t *a_scales, *b_scales, *up_scales;   /* of fp8 NULL */
    const float *bias, *up_bias, *factor, *up_factor; /* or NULL */
    void *c;
    int32_t m, n, k;
    uint32_t first_tile; /* of the launch */
};

struct grouped_tiles_args {
    struct grouped_tiles_group groups[GROUPED_GROUPS]; /* none without tiles */
    int32_t n_groups;
    int32_t scales; /* enum scale_layout */
    int32_t c_type; /* enum dtype */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct grouped_tiles_group) == 104, "host and device agree");
SOL_STATIC_ASSERT(sizeof(struct grouped_tiles_args) <= 4096, "as much as a launch takes");

#endif
