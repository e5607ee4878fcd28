#include "gpu/kernel.h"
#include "moe_down/moe_down_args.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_down_args *a = args;
    (void)device;
    if (!few_rows_one(a->m, why)) return false;
    if (a->routing.some_of) return few_rows_refuse(why, "some experts are other ranks'");
    if (!few_rows_mxfp4(&a->down)) return few_rows_refuse(why, "it reads weights in packed mxfp4");
    if (a->top_k > MOE_DOWN_SLOTS) return few_rows_refuse(why, "more than 4 experts at a time");
    if (a->intermediate > MOE_DOWN_INNER_MAX) return few_rows_refuse(why, "rows of more than 3072");
    if (!few_rows_aligned(a->act.data) || a->intermediate % 4)
        return few_rows_refuse(why, "rows at addresses that are no multiple of 16");
    return true;
}

/* How many blocks share a tile; a pair is a cluster. */
enum { PAIR, SINGLE };
static const char *const block_names[] = {[PAIR] = "pair", [SINGLE] = "single"};

static bool serves_blocks(const void *args, const struct op_device *device, int choice)
{
    const struct op_arch clusters = {.major = 9};
    (void)args;
    return choice == SINGLE || op_arch_fits(&clusters, device->gpu);
}

static const struct op_choices block_choices = {block_names, 2, serves_blocks, NULL};

static void run(const struct op_context *context, const void *args)
{
    const struct moe_down_args *a = args;
    const struct moe_down_kernel_args k = {
        .hidden = a->hidden,
        .intermediate = a->intermediate,
        .top_k = a->top_k,
        .act = a->act.data,
        .down = a->down.data,
        .down_scales = a->down.scales,
        .down_bias = a->down_bias,
        .weight = a->routing.weight,
        .expert = a->routing.expert,
        .row_of_slot = a->routing.row_of_slot,
        .x = a->x.data,
    };
    unsigned tiles = (unsigned)((a->hidden + FEW_ROWS_FEATURES - 1) / FEW_ROWS_FEATURES);
    bool pair = context->choice == PAIR;
    unsigned blocks = pair ? FEW_ROWS_PAIR : 1;
    size_t shared =
        MOE_DOWN_SLOTS / blocks * FEW_ROWS_PARTS * few_rows_column(a->intermediate, LAYOUT_TILES);
    gpu_put(context->stream, "moe_down/moe_down.cu", pair ? "moe_down_row_pair" : "moe_down_row",
            &(struct gpu_launch){
                .grid = {blocks * tiles},
                .block = {FEW_ROWS_THREADS},
                .cluster = pair ? FEW_ROWS_PAIR : 0,
                .shared_bytes = (unsigned)shared,
                .overlaps = true,
            },
            &k);
}

const struct op_variant moe_down_row_cuda = {
    .name = "moe_down_row_cuda",
    .summary = "one row: its experts' products, weighted sum and residual in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .choices = &block_choices,
    .run = run,
    .images = {"moe_down/moe_down.cu"},
};
