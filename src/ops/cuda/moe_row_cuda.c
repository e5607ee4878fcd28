#include "ops/cuda/moe_row_cuda.h"
#include "gpu/kernel.h"
#include "moe/moe_row_args.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

bool moe_row_serves(const struct moe_args *a, char why[OP_REASON_MAX])
{
    const struct tensor *const weights[] = {&a->gate, &a->up, &a->down};
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

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return moe_row_serves(args, why);
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

size_t moe_row_act(const struct moe_args *a)
{
    return (size_t)(a->m * a->top_k) * FEW_ROWS_PARTS *
           few_rows_column(a->intermediate, LAYOUT_TILES);
}

static size_t workspace(const void *args, int workers)
{
    (void)workers;
    return moe_row_act(args);
}

static struct moe_row_args for_kernel(const struct moe_args *a, void *act, const float *halves)
{
    const struct routing *r = &a->routing;
    return (struct moe_row_args){
        .hidden = a->hidden,
        .intermediate = a->intermediate,
        .top_k = a->top_k,
        .n_experts = a->gate.groups,
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
        .halves = halves,
        .weight = r->weight,
        .expert = r->expert,
        .group_offsets = r->group_offsets,
        .token_of_row = r->token_of_row,
        .row_of_slot = r->row_of_slot,
        .act = act,
        .x = a->x.data,
        .alpha = a->alpha,
        .limit = a->limit,
    };
}

static const char image[] = "moe/moe_row.cu";

static void put_up(struct gpu_stream *stream, const char *name, const struct moe_args *a,
                   const struct moe_row_args *k)
{
    const unsigned features = MOE_UP_PAIRS * FEW_ROWS_FEATURES;
    const size_t columns = (size_t)a->m * FEW_ROWS_PARTS * few_rows_column(a->hidden, LAYOUT_TILES);
    gpu_put(stream, image, name,
            &(struct gpu_launch){
                .grid = {((unsigned)a->intermediate + features - 1) / features, (unsigned)a->top_k},
                .block = {MOE_UP_THREADS},
                .shared_bytes = (unsigned)columns,
                .overlaps = true,
            },
            k);
}

static unsigned down_tiles(const struct moe_args *a)
{
    return ((unsigned)a->hidden + FEW_ROWS_FEATURES - 1) / FEW_ROWS_FEATURES;
}

static void put_down(struct gpu_stream *stream, const char *name, bool pair, unsigned tiles,
                     const struct moe_row_args *k)
{
    gpu_put(stream, image, name,
            &(struct gpu_launch){
                .grid = {pair ? FEW_ROWS_PAIR * tiles : tiles},
                .block = {FEW_ROWS_THREADS},
                .cluster = pair ? FEW_ROWS_PAIR : 0,
                .overlaps = true,
            },
            k);
}

static void run(const struct op_context *context, const void *args)
{
    static const char *const ups[] = {"moe_up_row", "moe_up_two"};
    static const char *const downs[][2] = {
        {[PAIR] = "moe_down_row_pair", [SINGLE] = "moe_down_row"},
        {[PAIR] = "moe_down_two_pair", [SINGLE] = "moe_down_two"}};
    const struct moe_args *a = args;
    const struct moe_row_args k = for_kernel(a, context->workspace, NULL);
    put_up(context->stream, ups[a->m - 1], a, &k);
    put_down(context->stream, downs[a->m - 1][context->choice], context->choice == PAIR,
             down_tiles(a), &k);
}

bool moe_row_chooses(const struct moe_args *a, char why[OP_REASON_MAX])
{
    if (a->gate.groups > MOE_ROW_EXPERTS_MAX) return few_rows_refuse(why, "more than 128 experts");
    return moe_row_serves(a, why);
}

void moe_row_choose(struct gpu_stream *stream, const struct moe_args *a, const float *halves,
                    void *act)
{
    static const char *const ups[][2] = {{"moe_up_row_chosen", "moe_up_row_chosen_many"},
                                         {"moe_up_two_chosen", "moe_up_two_chosen_many"}};
    static const char *const downs[][2] = {{"moe_down_row_chosen", "moe_down_row_chosen_many"},
                                           {"moe_down_two_chosen", "moe_down_two_chosen_many"}};
    const bool many = a->gate.groups > MOE_ROW_EXPERTS_FEW;
    const struct moe_row_args k = for_kernel(a, act, halves);
    put_up(stream, ups[a->m - 1][many], a, &k);
    put_down(stream, downs[a->m - 1][many], true, down_tiles(a) + 1,
             &k); /* and one for the tables */
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
    .images = {image},
};
