/* moe of few rows on Hopper: the products of kernels/moe/moe_few.cu. */
#include "gpu/kernel.h"
#include "moe/moe_few_args.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/join_rows.h"
#include "ops/cuda/thresholds.h"

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_args *a = args;
    (void)device;
    if (!few_rows_experts(&a->gate, a->gate_bias, why) ||
        !few_rows_experts(&a->up, a->up_bias, why) ||
        !few_rows_experts(&a->down, a->down_bias, why))
        return false;
    if (a->hidden % FEW_ROWS_FEATURES || a->intermediate % FEW_ROWS_FEATURES)
        return few_rows_refuse(why, "features that do not fill tiles of 16");
    if (a->hidden > MOE_FEW_K_MAX || a->intermediate > MOE_FEW_K_MAX)
        return few_rows_refuse(why, "rows of more than 3072");
    if (a->gate.groups > EXPERT_ROWS_GROUPS_MAX)
        return few_rows_refuse(why, "more than 128 experts");
    if (a->top_k > EXPERT_ROWS_TOP_K_MAX)
        return few_rows_refuse(why, "more than 8 experts at a time");
    if (a->m * a->top_k > EXPERT_ROWS_MAX)
        return few_rows_refuse(why, "more than 512 rows of experts; it is for few");
    if (!few_rows_aligned(a->normed.data) || !few_rows_aligned(a->x.data))
        return few_rows_refuse(why, "rows at addresses that are no multiple of 16");
    if (!a->gate_bias != !a->up_bias) return few_rows_refuse(why, "one bias of gate and up");
    return true;
}

static bool suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_args *a = args;
    (void)device;
    if (routing_rows(&a->routing, a->m * a->top_k, a->gate.groups) <=
        FEW_ROWS_AN_EXPERT * a->gate.groups)
        return true;
    snprintf(why, OP_REASON_MAX, "more than %d rows an expert on average", FEW_ROWS_AN_EXPERT);
    return false;
}

/* The columns of activations, then the slots' results. */
static size_t act_bytes(const struct moe_args *a)
{
    return (size_t)(a->m * a->top_k) * few_rows_column(a->intermediate, LAYOUT_TILES);
}

static size_t workspace(const void *args, int workers)
{
    const struct moe_args *a = args;
    (void)workers;
    return act_bytes(a) + (size_t)(a->m * a->top_k * a->hidden) * sizeof(float);
}

static void put(struct gpu_stream *stream, const char *name, int64_t columns,
                const struct moe_few_args *k)
{
    gpu_put(stream, "moe/moe_few.cu", name,
            &(struct gpu_launch){
                .grid = {(unsigned)gpu_stream_info(stream)->sm_count},
                .block = {MOE_FEW_THREADS},
                .shared_bytes = (unsigned)MOE_FEW_SHARED((size_t)columns),
                .overlaps = true,
            },
            k);
}

static void run(const struct op_context *context, const void *args)
{
    const struct moe_args *a = args;
    char *act = context->workspace;
    float *y = (float *)(act + act_bytes(a));
    const struct moe_few_args k = {
        .hidden = a->hidden,
        .intermediate = a->intermediate,
        .slots = a->m * a->top_k,
        .n_experts = a->gate.groups,
        .normed = a->normed.data,
        .group_offsets = a->routing.group_offsets,
        .token_of_row = a->routing.token_of_row,
        .gate = a->gate.data,
        .gate_scales = a->gate.scales,
        .up = a->up.data,
        .up_scales = a->up.scales,
        .down = a->down.data,
        .down_scales = a->down.scales,
        .gate_bias = a->gate_bias,
        .up_bias = a->up_bias,
        .down_bias = a->down_bias,
        .act = act,
        .y = y,
        .alpha = a->alpha,
        .limit = a->limit,
    };
    put(context->stream, "moe_up_few", a->hidden, &k);
    put(context->stream, "moe_down_few", a->intermediate, &k);
    join_rows_put(context->stream, &a->routing, a->m, a->hidden, a->top_k, y, a->x.data);
}

const struct op_variant moe_few_cuda = {
    .name = "moe_few_cuda",
    .summary = "few rows: their experts by blocks of an SM that pass over the weights once",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .suits = suits,
    .workspace = workspace,
    .run = run,
    .images = {"moe/moe_few.cu", JOIN_ROWS_IMAGE},
};
