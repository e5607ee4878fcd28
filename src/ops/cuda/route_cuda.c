#include <stdio.h>

#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/route_cuda.h"
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

static struct route_kernel_args for_kernel(int64_t m, int64_t n_experts, int64_t top_k,
                                           const struct routing *r)
{
    return (struct route_kernel_args){.m = m,
                                      .n_experts = n_experts,
                                      .top_k = top_k,
                                      .weight = r->weight,
                                      .expert = r->expert,
                                      .group_offsets = r->group_offsets,
                                      .token_of_row = r->token_of_row,
                                      .row_of_slot = r->row_of_slot};
}

void route_sort(struct gpu_stream *stream, int64_t m, int64_t n_experts, int64_t top_k,
                const struct routing *r)
{
    const struct route_kernel_args k = for_kernel(m, n_experts, top_k, r);
    int64_t blocks = (m * top_k + ROUTE_COUNT_THREADS - 1) / ROUTE_COUNT_THREADS;
    gpu_put(stream, "route/route.cu", "route_count",
            &(struct gpu_launch){.grid = {blocks ? (unsigned)blocks : 1},
                                 .block = {ROUTE_COUNT_THREADS},
                                 .overlaps = true},
            &k);
}

static void choose(const struct op_context *context, const struct route_args *a)
{
    enum { TOKENS = ROUTE_THREADS / 32 }; /* of a block */
    struct route_kernel_args k = for_kernel(a->m, a->n_experts, a->top_k, &a->routing);
    k.logits = a->logits.data;
    unsigned blocks = (unsigned)((a->m + TOKENS - 1) / TOKENS);
    gpu_put(context->stream, "route/route.cu", "route_choose",
            &(struct gpu_launch){.grid = {blocks}, .block = {ROUTE_THREADS}, .overlaps = true}, &k);
}

static void run(const struct op_context *context, const void *args)
{
    const struct route_args *a = args;
    const struct route_kernel_args k = for_kernel(a->m, a->n_experts, a->top_k, &a->routing);
    choose(context, a);
    gpu_put(context->stream, "route/route.cu", "route_group",
            &(struct gpu_launch){.block = {ROUTE_THREADS}, .overlaps = true}, &k);
}

static void run_count(const struct op_context *context, const void *args)
{
    const struct route_args *a = args;
    choose(context, a);
    route_sort(context->stream, a->m, a->n_experts, a->top_k, &a->routing);
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
    .summary = "the same, sorted by counting, a thread a slot",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run_count,
    .images = {"route/route.cu"},
};
