/* What follows the experts' products in bf16, of rows in the order of experts. */
#ifndef OPS_CUDA_ADD_UP_H
#define OPS_CUDA_ADD_UP_H

#include "combine/combine_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"

#define ADD_UP_IMAGE "combine/combine.cu"

/* Adds the weighted results to the rows of the step. */
static inline void add_up(const struct op_context *context, const struct moe_args *a,
                          const void *results)
{
    const struct combine_kernel_args sum = {.n = a->hidden,
                                            .top_k = a->top_k,
                                            .y = results,
                                            .weight = a->routing.weight,
                                            .row_of_slot = a->routing.row_of_slot,
                                            .x = a->x.data};
    gpu_put(context->stream, ADD_UP_IMAGE, a->routing.some_of ? "combine_bf16_own" : "combine_bf16",
            &(struct gpu_launch){
                .grid = {(unsigned)a->m}, .block = {COMBINE_BF16_THREADS}, .overlaps = true},
            &sum);
}

#endif
