#include "gpu/kernel.h"
#include "moe_up/moe_up_args.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

enum { FEATURES = MOE_UP_PAIRS * FEW_ROWS_FEATURES }; /* of a block */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_up_args *a = args;
    (void)device;
    if (!few_rows_one(a->m, why)) return false;
    if (a->routing.some_of) return few_rows_refuse(why, "some experts are other ranks'");
    if (!few_rows_mxfp4(&a->gate) || !few_rows_mxfp4(&a->up))
        return few_rows_refuse(why, "it reads weights in packed mxfp4");
    if (a->hidden > MOE_UP_HIDDEN_MAX) return few_rows_refuse(why, "a row of more than 3072");
    if (!few_rows_aligned(a->normed.data))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return true;
}

static void run(const struct op_context *context, const void *args)
{
    const struct moe_up_args *a = args;
    const struct moe_up_kernel_args k = {
        .hidden = a->hidden,
        .intermediate = a->intermediate,
        .normed = a->normed.data,
        .gate = a->gate.data,
        .gate_scales = a->gate.scales,
        .up = a->up.data,
        .up_scales = a->up.scales,
        .gate_bias = a->gate_bias,
        .up_bias = a->up_bias,
        .expert = a->routing.expert,
        .row_of_slot = a->routing.row_of_slot,
        .act = a->act.data,
        .alpha = a->alpha,
        .limit = a->limit,
    };
    gpu_put(
        context->stream, "moe_up/moe_up.cu", "moe_up_row",
        &(struct gpu_launch){
            .grid = {(unsigned)((a->intermediate + FEATURES - 1) / FEATURES), (unsigned)a->top_k},
            .block = {MOE_UP_THREADS},
            .shared_bytes = (unsigned)(FEW_ROWS_PARTS * few_rows_column(a->hidden, LAYOUT_TILES)),
            .overlaps = true,
        },
        &k);
}

const struct op_variant moe_up_row_cuda = {
    .name = "moe_up_row_cuda",
    .summary = "one row: gate and up of its experts and swiglu in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .run = run,
    .images = {"moe_up/moe_up.cu"},
};
