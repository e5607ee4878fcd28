/* The experts of one row or two in two kernels, exact (kernels/moe/moe_row.cu). */
#include "gpu/kernel.h"
#include "moe/moe_row_args.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_args *a = args;
    const struct tensor *const weights[] = {&a->gate, &a->up, &a->down};
    (void)device;
    if (a->m < 1 || a->m > 2) return few_rows_refuse(why, "it is for one row or two");
    if (a->routing.some_of) return few_rows_refuse(why, "some experts are other ranks'");
    for (int i = 0; i < 3; i++)
        if (!few_rows_mxfp4(weights[i]))
            return few_rows_refuse(why, "it reads weights in packed mxfp4");
    if (a->top_k > MOE_DOWN_SLOTS) return few_rows_refuse(why, "more than 4 experts at a time");
    if (a->hidden > MOE_UP_HIDDEN_MAX) return few_rows_refuse(why, "a row of more than 3072");
    if (!few_rows_aligned(a->normed.data))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return true;
}

/* How many blocks share a tile of down; a pair is a cluster. */
enum { PAIR, SINGLE };
static const char *const block_names[] = {[PAIR] = "pair", [SINGLE] = "single"};

static bool serves_blocks(const void *args, const struct op_device *device, int choice)
{
    const struct op_arch clusters = {.major = 9};
    (void)args;
    return choice == SINGLE || op_arch_fits(&clusters, device->gpu);
}

static const struct op_choices block_choices = {block_names, 2, serves_blocks, NULL};

static size_t workspace(const void *args, int workers)
{
    const struct moe_args *a = args;
    (void)workers;
    return (size_t)(a->m * a->top_k) * FEW_ROWS_PARTS *
           few_rows_column(a->intermediate, LAYOUT_TILES);
}

static void run(const struct op_context *context, const void *args)
{
    const struct moe_args *a = args;
    const struct moe_row_args k = {
        .hidden = a->hidden,
        .intermediate = a->intermediate,
        .top_k = a->top_k,
        .normed = a->normed.data,
        .gate = a->gate.data,
        .gate_scales = a->gate.scales,
        .up = a->up.data,
        .up_scales = a->up.scales,
        .down = a->down.data,
        .down_scales = a->down.scales,
        .gate_bias = a->gate_bias,
        .up_bias = a->up_bias,
        .down_bias = a->down_bias,
        .weight = a->routing.weight,
        .expert = a->routing.expert,
        .act = context->workspace,
        .x = a->x.data,
        .alpha = a->alpha,
        .limit = a->limit,
    };
    const unsigned up = MOE_UP_PAIRS * FEW_ROWS_FEATURES, tile = FEW_ROWS_FEATURES;
    const bool pair = context->choice == PAIR;
    const unsigned blocks = pair ? FEW_ROWS_PAIR : 1;
    const size_t columns = (size_t)a->m * FEW_ROWS_PARTS * few_rows_column(a->hidden, LAYOUT_TILES);
    static const char *const ups[] = {"moe_up_row", "moe_up_two"};
    static const char *const downs[][2] = {
        {[PAIR] = "moe_down_row_pair", [SINGLE] = "moe_down_row"},
        {[PAIR] = "moe_down_two_pair", [SINGLE] = "moe_down_two"}};
    gpu_put(context->stream, "moe/moe_row.cu", ups[a->m - 1],
            &(struct gpu_launch){
                .grid = {((unsigned)a->intermediate + up - 1) / up, (unsigned)a->top_k},
                .block = {MOE_UP_THREADS},
                .shared_bytes = (unsigned)columns,
                .overlaps = true,
            },
            &k);
    gpu_put(context->stream, "moe/moe_row.cu", downs[a->m - 1][context->choice],
            &(struct gpu_launch){
                .grid = {blocks * (((unsigned)a->hidden + tile - 1) / tile)},
                .block = {FEW_ROWS_THREADS},
                .cluster = pair ? FEW_ROWS_PAIR : 0,
                .overlaps = true,
            },
            &k);
}

const struct op_variant moe_row_cuda = {
    .name = "moe_row_cuda",
    .summary =
        "one row or two: gate, up and swiglu in one kernel, down, weighted sum and residual in one",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .choices = &block_choices,
    .workspace = workspace,
    .run = run,
    .images = {"moe/moe_row.cu"},
};
