/* One row or two from attention to the next layer in four kernels: the projection, norm and router,
 * gate and up, down. The router leaves its logits, and each block that needs an expert chooses:
 * that takes less time than one that chooses for all. */
#include "gpu/kernel.h"
#include "ops/attn_moe.h"
#include "ops/cuda/attn_out_cuda.h"
#include "ops/cuda/moe_row_cuda.h"

enum { ALIGN = 256 };

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_moe_args *a = args;
    const struct moe_args experts = attn_moe_second(a);
    (void)device;
    return attn_out_row_serves(&a->out, why) && moe_row_chooses(&experts, why);
}

static size_t act_bytes(const struct attn_moe_args *a)
{
    const struct moe_args experts = attn_moe_second(a);
    return (moe_row_act(&experts) + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t workspace(const void *args, int workers)
{
    const struct attn_moe_args *a = args;
    (void)workers;
    return act_bytes(a) + (size_t)(2 * a->out.m * a->out.n_experts) * sizeof(float);
}

static void run(const struct op_context *context, const void *args)
{
    const struct attn_moe_args *a = args;
    const struct moe_args experts = attn_moe_second(a);
    char *act = context->workspace;
    float *halves = (float *)(void *)(act + act_bytes(a));
    attn_out_project(context, &a->out);
    attn_out_logits(context, &a->out, halves);
    moe_row_choose(context->stream, &experts, halves, act);
}

const struct op_variant attn_moe_row_cuda = {
    .name = "attn_moe_row_cuda",
    .summary = "one row or two, exact: each block chooses the experts by the router's logits",
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .can_run = can_run,
    .workspace = workspace,
    .run = run,
    .images = {"attn_out/attn_out.cu", "moe/moe_row.cu"},
};
