#include <stdio.h>

#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "route/route_args.h"

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct route_args *a = args;
    (void)device;
    bool fits = a->n_experts <= ROUTE_EXPERTS_MAX && a->top_k <= ROUTE_TOP_K_MAX;
    if (!fits)
        snprintf(why, OP_REASON_MAX, "more than %d experts or %d of them a token",
                 ROUTE_EXPERTS_MAX, ROUTE_TOP_K_MAX);
    return fits;
}

static void put(const struct op_context *context, const void *args, const char *sort,
                unsigned threads)
{
    const struct route_args *a = args;
    const struct routing *r = &a->routing;
    const struct route_kernel_args k = {.m = a->m,
                                        .n_experts = a->n_experts,
                                        .top_k = a->top_k,
                                        .logits = a->logits.data,
                                        .weight = r->weight,
                                        .expert = r->expert,
                                        .group_offsets = r->group_offsets,
                                        .token_of_row = r->token_of_row,
                                        .row_of_slot = r->row_of_slot};
    enum { TOKENS = ROUTE_THREADS / 32 }; /* of a block */
    unsigned blocks = (unsigned)((a->m + TOKENS - 1) / TOKENS);
    gpu_put(context->stream, "route/route.cu", "route_choose",
            &(struct gpu_launch){.grid = {blocks}, .block = {ROUTE_THREADS}, .overlaps = true}, &k);
    gpu_put(context->stream, "route/route.cu", sort,
            &(struct gpu_launch){.block = {threads}, .overlaps = true}, &k);
}

static void run(const struct op_context *context, const void *args)
{
    put(context, args, "route_group", ROUTE_THREADS);
}

static void run_count(const struct op_context *context, const void *args)
{
    put(context, args, "route_count", ROUTE_COUNT_THREADS);
}

const struct op_variant route_f32_cuda = {
    .name = "route_f32_cuda",
    .summary = "a warp a token, then a stable sort by one block",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
    .images = {"route/route.cu"},
};

const struct op_variant route_count_cuda = {
    .name = "route_count_cuda",
    .summary = "the same, sorted by counting in 32 warps",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run_count,
    .images = {"route/route.cu"},
};
