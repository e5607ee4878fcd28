#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "own_experts/own_experts_args.h"

#define IMAGE "own_experts/own_experts.cu"

static void run(const struct op_context *context, const void *args)
{
    const struct own_experts_args *a = args;
    const struct own_experts_kernel_args k = {.slots = a->m * a->top_k,
                                              .first = (int32_t)a->first,
                                              .count = (int32_t)a->count,
                                              .expert = a->all.expert,
                                              .group_offsets = a->all.group_offsets,
                                              .token_of_row = a->all.token_of_row,
                                              .row_of_slot = a->all.row_of_slot,
                                              .own_expert = a->own.expert,
                                              .own_offsets = a->own.group_offsets,
                                              .own_token = a->own.token_of_row,
                                              .own_row = a->own.row_of_slot};
    const int64_t blocks = (k.slots + OWN_EXPERTS_THREADS - 1) / OWN_EXPERTS_THREADS;
    gpu_put(context->stream, IMAGE, "own_experts",
            &(struct gpu_launch){.grid = {(unsigned)(blocks ? blocks : 1)},
                                 .block = {OWN_EXPERTS_THREADS},
                                 .overlaps = true},
            &k);
}

const struct op_variant own_experts_cuda = {
    .name = "own_experts_cuda",
    .summary = "a thread a slot",
    .target = TARGET_CUDA,
    .run = run,
    .images = {IMAGE},
};
