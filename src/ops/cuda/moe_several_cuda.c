/* moe of several rows an expert on Hopper: the products of kernels/moe/moe_several.cu. */
#include "gpu/kernel.h"
#include "moe/moe_several_args.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/grouped_rows.h"
#include "ops/cuda/many_rows_operands.h"

static bool fits(int64_t k, char why[OP_REASON_MAX])
{
    if (k % MOE_SEVERAL_K) return few_rows_refuse(why, "rows that are no multiple of 192");
    return k <= MOE_SEVERAL_K_MAX || few_rows_refuse(why, "rows of more than 2880");
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_args *a = args;
    (void)device;
    if (!few_rows_experts(&a->gate, a->gate_bias, why) ||
        !few_rows_experts(&a->up, a->up_bias, why) ||
        !few_rows_experts(&a->down, a->down_bias, why))
        return false;
    if (!fits(a->hidden, why) || !fits(a->intermediate, why)) return false;
    if (a->gate.groups > MOE_SEVERAL_GROUPS_MAX)
        return few_rows_refuse(why, "more than 128 experts");
    if (a->m * a->top_k > MOE_SEVERAL_SLOTS_MAX)
        return few_rows_refuse(why, "more than 4096 rows of experts");
    if (!few_rows_aligned(a->x.data))
        return few_rows_refuse(why, "rows at an address that is no multiple of 16");
    return true;
}

static bool suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_args *a = args;
    const int64_t rows = routing_rows(&a->routing, a->m * a->top_k, a->gate.groups);
    (void)device;
    if (!many_rows_enough(rows, SEVERAL_ROWS_MORE_THAN * a->gate.groups + 1, why)) return false;
    if (rows <= SEVERAL_ROWS_AN_EXPERT * a->gate.groups) return true;
    snprintf(why, OP_REASON_MAX, "more than %d rows an expert on average", SEVERAL_ROWS_AN_EXPERT);
    return false;
}

static void put(struct gpu_stream *stream, const char *name, int64_t rows,
                struct moe_several_args *k)
{
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = k->plain_x,
                                     .element = GPU_BF16,
                                     .rank = 2,
                                     .sizes = {(uint64_t)k->k, (uint64_t)rows},
                                     .strides = {2 * (uint64_t)k->k},
                                     .box = {UNIT_COLUMNS, MOE_SEVERAL_BOX},
                                     .swizzled = true},
                &k->x);
    gpu_put(stream, "moe/moe_several.cu", name,
            &(struct gpu_launch){
                .grid = {(unsigned)gpu_stream_info(stream)->sm_count},
                .block = {MOE_SEVERAL_THREADS},
                .shared_bytes = (unsigned)MOE_SEVERAL_SHARED(k->k),
                .overlaps = true,
            },
            k);
}

static void run(const struct op_context *context, const void *args)
{
    const struct moe_args *a = args;
    const struct grouped_space s = grouped_place(a);
    const int64_t rows = a->m * a->top_k;
    char *hidden = (char *)context->workspace + s.hidden, *act = (char *)context->workspace + s.act;
    struct moe_several_args k = {
        .group_offsets = a->routing.group_offsets,
        .w = {a->gate.data, a->up.data},
        .scales = {a->gate.scales, a->up.scales},
        .bias = {a->gate_bias, a->up_bias},
        .plain_x = hidden,
        .out = act,
        .k = (int32_t)a->hidden,
        .n = (int32_t)a->intermediate,
        .groups = (int32_t)a->gate.groups,
        .alpha = a->alpha,
        .limit = a->limit,
    };
    many_rows_operand(context->stream, rows, &a->normed, a->routing.token_of_row, hidden);
    put(context->stream, "moe_up_several", rows, &k);
    k.w[0] = a->down.data;
    k.scales[0] = a->down.scales;
    k.bias[0] = a->down_bias;
    k.plain_x = act;
    k.out = hidden;
    k.k = (int32_t)a->intermediate;
    k.n = (int32_t)a->hidden;
    put(context->stream, "moe_down_several", rows, &k);
    add_up(context, a, hidden);
}

const struct op_variant moe_several_cuda = {
    .name = "moe_several_cuda",
    .summary =
        "several rows an expert: activations stay on an SM, weights pass by; results in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .suits = suits,
    .narrow = 1 << 0, /* normed */
    .workspace = grouped_workspace,
    .run = run,
    .images = {"gemm/round_rows.cu", "moe/moe_several.cu", ADD_UP_IMAGE},
};
