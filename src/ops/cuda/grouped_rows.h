/* What the experts' products in bf16 share on the host: rows in the order of experts, and what
 * follows. */
#ifndef OPS_CUDA_GROUPED_ROWS_H
#define OPS_CUDA_GROUPED_ROWS_H

#include "combine/combine_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/op.h"

#define ADD_UP_IMAGE "combine/combine.cu"

/* Where they lie in a workspace. */
struct grouped_space {
    size_t hidden; /* normed ones, then the experts' results */
    size_t act, end;
};

static inline struct grouped_space grouped_place(const struct moe_args *a)
{
    struct grouped_space s = {0};
    int64_t rows = a->m * a->top_k;
    s.hidden = many_rows_piece(&s.end, many_rows_bytes(rows, a->hidden));
    s.act = many_rows_piece(&s.end, many_rows_bytes(rows, a->intermediate));
    return s;
}

static inline size_t grouped_workspace(const void *args, int workers)
{
    (void)workers;
    return grouped_place(args).end;
}

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
