/* The experts of many rows on Hopper: what passes between their products is in bf16, or goes into
 * them in int8 with a scale a row (kernels/gemm/gemm_wgmma.cuh). */
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/grouped_rows.h"
#include "ops/cuda/i8_rows_operands.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/cuda/wgmma_product.h"

/* ---- what both have ---- */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_args *a = args;
    const struct tensor *const weights[] = {&a->gate, &a->up, &a->down};
    (void)device;
    for (int i = 0; i < 3; i++) {
        if (!wgmma_serves(weights[i], why)) return false;
        if (weights[i]->dtype != DTYPE_MXFP4) return few_rows_refuse(why, "it reads packed mxfp4");
    }
    if (a->hidden % WGMMA_K || a->intermediate % WGMMA_K)
        return few_rows_refuse(why, "rows that are no multiple of 64");
    if (!few_rows_aligned(a->x.data))
        return few_rows_refuse(why, "rows at an address that is no multiple of 16");
    return true;
}

static bool suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_args *a = args;
    (void)device;
    return many_rows_enough(routing_rows(&a->routing, a->m * a->top_k, a->gate.groups),
                            FEW_ROWS_AN_EXPERT * a->gate.groups + 1, why);
}

/* The gated product, or that behind it, of the grouped rows. */
static struct wgmma_product product(const struct op_context *context, const struct moe_args *a,
                                    bool up)
{
    struct wgmma_product p = {.result = WGMMA_BF16,
                              .m = a->m * a->top_k,
                              .w = up ? a->gate : a->down,
                              .bias = up ? a->gate_bias : a->down_bias,
                              .group_offsets = a->routing.group_offsets,
                              .choice = context->choice};
    if (!up) return p;
    p.up = a->up;
    p.up_bias = a->up_bias;
    p.alpha = a->alpha;
    p.limit = a->limit;
    return p;
}

/* ---- rows in bf16 ---- */

static void run_bf16(const struct op_context *context, const void *args)
{
    const struct moe_args *a = args;
    const struct grouped_space s = grouped_place(a);
    char *hidden = (char *)context->workspace + s.hidden, *act = (char *)context->workspace + s.act;
    struct wgmma_product up = product(context, a, true), down = product(context, a, false);
    many_rows_operand(context->stream, up.m, &a->normed, a->routing.token_of_row, hidden);
    up.x = hidden;
    up.c = act;
    wgmma_multiply(context->stream, &up);
    down.x = act;
    down.c = hidden;
    wgmma_multiply(context->stream, &down);
    add_up(context, a, hidden);
}

const struct op_variant moe_many_cuda = {
    .name = "moe_many_cuda",
    .summary = "packed mxfp4; activations and the experts' results in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .suits = suits,
    .choices = &wgmma_moe_choices,
    .narrow = 1 << 0, /* normed */
    .workspace = grouped_workspace,
    .run = run_bf16,
    .images = {"gemm/round_rows.cu", "moe/moe_wgmma.cu", ADD_UP_IMAGE},
};

/* ---- rows in int8 ---- */

struct i8_space {   /* grouped rows */
    size_t x, rows; /* in int8: normed ones, then activations */
    size_t act;     /* activations in bf16, then the experts' results */
    size_t end;
};

static int64_t wider(const struct moe_args *a)
{
    return a->hidden > a->intermediate ? a->hidden : a->intermediate;
}

static struct i8_space i8_place(const struct moe_args *a)
{
    struct i8_space s = {0};
    int64_t rows = a->m * a->top_k;
    s.x = many_rows_piece(&s.end, i8_rows_bytes(rows, wider(a)));
    s.rows = many_rows_piece(&s.end, i8_rows_scales_bytes(rows));
    s.act = many_rows_piece(&s.end, many_rows_bytes(rows, wider(a)));
    return s;
}

static size_t i8_workspace(const void *args, int workers)
{
    (void)workers;
    return i8_place(args).end;
}

static bool suits_i8(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_args *a = args;
    (void)device;
    return many_rows_enough(routing_rows(&a->routing, a->m * a->top_k, a->gate.groups),
                            I8_ROWS_AN_EXPERT * a->gate.groups, why);
}

static void run_i8(const struct op_context *context, const void *args)
{
    const struct moe_args *a = args;
    const struct i8_space s = i8_place(a);
    char *space = context->workspace, *x = space + s.x, *results = space + s.act;
    struct i8_row *rows = (struct i8_row *)(space + s.rows);
    struct wgmma_product up = product(context, a, true), down = product(context, a, false);
    const struct matrix act = matrix_of(DTYPE_BF16, results, up.m, a->intermediate);
    i8_rows_put(context->stream, up.m, &a->normed, a->routing.token_of_row, x, rows);
    up.x = x;
    up.x_rows = rows;
    up.c = results;
    wgmma_multiply(context->stream, &up);
    i8_rows_put(context->stream, up.m, &act, NULL, x, rows);
    down.x = x;
    down.x_rows = rows;
    down.c = results;
    wgmma_multiply(context->stream, &down);
    add_up(context, a, results);
}

const struct op_variant moe_i8_cuda = {
    .name = "moe_i8_cuda",
    .summary = "packed mxfp4 and activations as whole numbers; the experts' results in bf16",
    .numerics = NUMERICS_I8_ROW,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .suits = suits_i8,
    .choices = &wgmma_i8_choices,
    .narrow = 1 << 0, /* normed, which is rounded to bf16 first */
    .workspace = i8_workspace,
    .run = run_i8,
    .images = {"moe/i8_rows.cu", "moe/moe_i8_wgmma.cu", ADD_UP_IMAGE},
};
