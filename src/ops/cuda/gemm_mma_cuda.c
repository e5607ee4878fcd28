/* gemm of many rows on the tensor cores that every card from sm_80 on has, and moe_up with its two
 * products as one: kernels/gemm/gemm_mma.cuh. */
#include "gemm/gemm_mma_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/many_rows_operands.h"

/* ---- kernels, and the widths of their tiles ---- */

struct kind {
    const char *image, *name;
    int features; /* of a tile */
    unsigned shared;
};
#define GEMM(name, type, gated, columns, stages)                                                   \
    {"gemm/gemm_mma.cu", #name, MMA_ROWS, MMA_SHARED_BYTES(type, columns, stages)},
#define MOE_UP(name, type, gated, columns, stages)                                                 \
    {"moe_up/moe_up_mma.cu", #name, MMA_ROWS / 2, MMA_SHARED_BYTES(type, columns, stages)},
enum { DENSE, NARROW, MXFP4, GEMM_KINDS };
static const struct kind gemm_kinds[] = {MMA_DENSE_KINDS(GEMM) MMA_NARROW_KINDS(GEMM)
                                             MMA_MXFP4_KINDS(GEMM)};
static const struct kind up_kinds[] = {MMA_MOE_UP_KINDS(MOE_UP)};
_Static_assert(sizeof gemm_kinds / sizeof *gemm_kinds == GEMM_KINDS, "as numbered");
#undef GEMM
#undef MOE_UP

/* A choice is a kernel and the most tokens of a tile, smallest first. */
enum { WIDTHS = MMA_TOKENS / MMA_WIDTH, WIDEST = WIDTHS - 1 };
#define NAMES(kernel) kernel "_32", kernel "_64", kernel "_96", kernel "_128"
static const char *const gemm_names[] = {NAMES("bf16"), NAMES("bf16_narrow"), NAMES("mxfp4")};
static const char *const up_names[] = {NAMES("mxfp4")};
#undef NAMES
_Static_assert(sizeof gemm_names / sizeof *gemm_names == GEMM_KINDS * WIDTHS, "all named");

static int tokens_of(int choice)
{
    return (choice % WIDTHS + 1) * MMA_WIDTH;
}

/* Two blocks on an SM are worth more than long stages. */
static int usual_dense(const struct gpu_info *gpu)
{
    enum { RESERVED = 1024 }; /* of shared memory, by the driver for each block */
    unsigned half = (unsigned)gpu->shared_per_sm / MMA_BLOCKS;
    bool narrow_fits = gemm_kinds[NARROW].shared + RESERVED <= half;
    return narrow_fits && gemm_kinds[DENSE].shared + RESERVED > half ? NARROW : DENSE;
}

/* The width whose tiles take the least where all blocks run at once in turns: a tile costs its
 * tokens and a little more. With groups, whose sizes the host does not know, the widest. */
static int usual_gemm(const void *args, const struct op_device *device)
{
    const struct gemm_args *a = args;
    const struct gpu_info *gpu = gpu_info(device->gpu);
    int kind = few_rows_mxfp4(&a->w) ? MXFP4 : usual_dense(gpu), best = WIDEST;
    int64_t least = INT64_MAX;
    enum { TILE_EXTRA = 16 };
    for (int i = WIDEST; i >= 0 && !a->group_offsets; i--) {
        int64_t tiles =
            many_rows_over(a->n, gemm_kinds[kind].features) * many_rows_over(a->m, tokens_of(i));
        int64_t cost = many_rows_over(tiles, (int64_t)gpu->sm_count * MMA_BLOCKS) *
                       (tokens_of(i) + TILE_EXTRA);
        if (cost >= least) continue;
        best = i;
        least = cost;
    }
    return kind * WIDTHS + best;
}

static bool serves_gemm(const void *args, const struct op_device *device, int choice)
{
    const struct gemm_args *a = args;
    (void)device;
    return few_rows_mxfp4(&a->w) == (choice / WIDTHS == MXFP4);
}

static int usual_up(const void *args, const struct op_device *device)
{
    (void)args;
    (void)device;
    return WIDEST;
}

static const struct op_choices gemm_choices = {gemm_names, GEMM_KINDS *WIDTHS, serves_gemm,
                                               usual_gemm};
static const struct op_choices up_choices = {up_names, WIDTHS, NULL, usual_up};

/* One product: C = X W^T + bias, or with `up` the gated one of w = gate and up. */
struct product {
    int64_t m;
    const struct tensor *w, *up; /* up NULL: plain */
    const float *bias, *up_bias;
    const int32_t *group_offsets; /* or NULL */
    float *c;
    float alpha, limit;
    int choice;
};

/* Tiles at most: with groups each may end with a tile of its own. */
static int64_t tile_limit(const struct product *p, const struct kind *kind, int64_t tokens)
{
    int64_t groups = p->w->groups < p->m ? p->w->groups : p->m;
    return many_rows_over(p->w->rows, kind->features) *
           (many_rows_over(p->m, tokens) + (p->group_offsets ? groups : 0));
}

static size_t rows_bytes(int64_t m, int64_t k)
{
    return many_rows_bytes(m + MMA_TOKENS, k); /* a tile reads beyond the last row */
}

/* `x` has the rows, from many_rows_operand, with space behind them. */
static void multiply(struct gpu_stream *stream, const struct product *p, const void *x)
{
    const struct kind *kind = p->up ? &up_kinds[0] : &gemm_kinds[p->choice / WIDTHS];
    int tokens = tokens_of(p->choice);
    const struct gemm_mma_args args = {
        .w = {p->w->data, p->up ? p->up->data : NULL},
        .scales = {p->w->scales, p->up ? p->up->scales : NULL},
        .bias = {p->bias, p->up_bias},
        .group_offsets = p->group_offsets,
        .x = x,
        .c = p->c,
        .m = (int32_t)p->m,
        .n = (int32_t)p->w->rows,
        .k = (int32_t)p->w->cols,
        .k_padded = (int32_t)many_rows_columns(p->w->cols),
        .groups = (int32_t)p->w->groups,
        .tokens = tokens,
        .alpha = p->alpha,
        .limit = p->limit,
    };
    gpu_put(stream, kind->image, kind->name,
            &(struct gpu_launch){.grid = {(unsigned)tile_limit(p, kind, tokens)},
                                 .block = {MMA_THREADS},
                                 .shared_bytes = kind->shared,
                                 .overlaps = true},
            &args);
}

/* ---- gemm ---- */

static bool can_run_gemm(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return many_rows_read(&((const struct gemm_args *)args)->w, false, why);
}

static bool suits_gemm(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    return many_rows_gemm(args, MANY_ROWS_MIN, device, why);
}

static size_t gemm_workspace(const void *args, int workers)
{
    const struct gemm_args *a = args;
    (void)workers;
    return rows_bytes(a->m, a->k);
}

static void run_gemm(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    many_rows_operand(context->stream, a->m, &a->a, a->a_rows, context->workspace);
    multiply(context->stream,
             &(struct product){.m = a->m,
                               .w = &a->w,
                               .bias = a->bias,
                               .group_offsets = a->group_offsets,
                               .c = a->c.data,
                               .choice = context->choice},
             context->workspace);
}

const struct op_variant gemm_mma_cuda = {
    .name = "gemm_mma_cuda",
    .summary = "bf16 or packed mxfp4 weights, 128 features by up to 128 rows in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_gemm,
    .suits = suits_gemm,
    .choices = &gemm_choices,
    .workspace = gemm_workspace,
    .run = run_gemm,
    .images = {"gemm/round_rows.cu", "gemm/gemm_mma.cu"},
};

/* ---- moe_up ---- */

static bool can_run_up(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_up_args *a = args;
    (void)device;
    return many_rows_read(&a->gate, false, why) && many_rows_read(&a->up, false, why) &&
           many_rows_gated(a, why);
}

static size_t up_workspace(const void *args, int workers)
{
    const struct moe_up_args *a = args;
    (void)workers;
    return rows_bytes(a->m * a->top_k, a->hidden);
}

static void run_up(const struct op_context *context, const void *args)
{
    const struct moe_up_args *a = args;
    int64_t rows = a->m * a->top_k;
    many_rows_operand(context->stream, rows, &a->normed, a->routing.token_of_row,
                      context->workspace);
    multiply(context->stream,
             &(struct product){.m = rows,
                               .w = &a->gate,
                               .up = &a->up,
                               .bias = a->gate_bias,
                               .up_bias = a->up_bias,
                               .group_offsets = a->routing.group_offsets,
                               .c = a->act.data,
                               .alpha = a->alpha,
                               .limit = a->limit,
                               .choice = context->choice},
             context->workspace);
}

const struct op_variant moe_up_mma_cuda = {
    .name = "moe_up_mma_cuda",
    .summary = "gate, up and swiglu in one product of packed mxfp4 weights",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_up,
    .suits = many_rows_suits_moe_up,
    .choices = &up_choices,
    .workspace = up_workspace,
    .run = run_up,
    .images = {"gemm/round_rows.cu", "moe_up/moe_up_mma.cu"},
};
