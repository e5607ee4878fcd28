/* moe_up and moe_down of few rows: the products of kernels/gemm/expert_rows.cuh. */
#include "gemm/expert_rows_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/join_rows.h"
#include "ops/cuda/thresholds.h"

/* A kernel: what it holds of an expert's rows, in columns. */
struct kind {
    int columns;
    const char *up, *down;
};
static const struct kind exact_kind = {EXACT_ROWS * FEW_ROWS_PARTS, "moe_up_f32_2",
                                       "moe_down_f32_2"};
static const struct kind rounded_kinds[] = {
    {8, "moe_up_bf16_8", "moe_down_bf16_8"},
    {16, "moe_up_bf16_16", "moe_down_bf16_16"},
};
/* How many rows an expert has is known on the GPU alone. One with more than there are columns is
 * read again, which costs less than columns for all that few need: the first is the usual one
 * (H200, a mean of 8 rows: 179 us, with 16 columns 215). */
static const char *const kind_names[] = {"8_columns", "16_columns"};

/* Bytes of shared memory of a block that multiplies `matrices`, and whether the device has so many:
 * 16 columns of 2880 take 110 KB, which Hopper has and consumer cards lack. */
static size_t rows_bytes(const struct kind *kind, int64_t k)
{
    return (size_t)kind->columns * few_rows_column(k, LAYOUT_TILES);
}

static bool has_room(int kind, int64_t k, int matrices, const struct op_device *device)
{
    enum { TABLES = (EXPERT_ROWS_GROUPS_MAX + 1 + EXPERT_ROWS_MAX) * 4 };
    const struct kind *columns = &rounded_kinds[kind];
    size_t sums = (size_t)(matrices * (EXPERT_ROWS_THREADS / 32) * FEW_ROWS_FEATURES *
                           (columns->columns + 1)) *
                  sizeof(float);
    return rows_bytes(columns, k) + sums + TABLES <=
           (size_t)gpu_info(device->gpu)->shared_per_block;
}

static bool suits(int64_t rows, const struct tensor *w, const struct op_device *device,
                  char why[OP_REASON_MAX])
{
    int most = op_arch_fits(&moe_many_cuda.arch, device->gpu) ? FEW_ROWS_AN_EXPERT
                                                              : FEW_ROWS_AN_EXPERT_ELSE;
    if (rows <= most * w->groups) return true;
    snprintf(why, OP_REASON_MAX, "more than %d rows an expert on average", most);
    return false;
}

/* Exact kernels can take more rows, but read an expert again for every two. */
static bool two_rows(int64_t m, char why[OP_REASON_MAX])
{
    if (m <= EXACT_ROWS) return true;
    return few_rows_refuse(why, "more than 2 rows");
}

static bool fits(int64_t m, int64_t top_k, const struct tensor *w, const struct op_device *device,
                 char why[OP_REASON_MAX])
{
    if (!few_rows_mxfp4(w)) return few_rows_refuse(why, "it reads weights in packed mxfp4");
    if (!has_room(0, w->cols, 2, device))
        return few_rows_refuse(why, "rows that wide do not fit shared memory");
    if (w->cols > EXPERT_ROWS_K_MAX) return few_rows_refuse(why, "rows of more than 3072");
    if (w->groups > EXPERT_ROWS_GROUPS_MAX) return few_rows_refuse(why, "more than 128 experts");
    if (top_k > EXPERT_ROWS_TOP_K_MAX) return few_rows_refuse(why, "more than 8 experts at a time");
    if (m * top_k > EXPERT_ROWS_MAX)
        return few_rows_refuse(why, "more than 512 rows of experts; it is for few");
    return true;
}

static void put(const struct op_context *context, const char *image, const char *function,
                const struct kind *kind, const struct expert_rows_args *k)
{
    int64_t tiles = (k->n + FEW_ROWS_FEATURES - 1) / FEW_ROWS_FEATURES * k->rows;
    int64_t most = (int64_t)EXPERT_ROWS_BLOCKS * gpu_stream_info(context->stream)->sm_count;
    gpu_put(context->stream, image, function,
            &(struct gpu_launch){
                .grid = {(unsigned)(tiles < most ? tiles : most)},
                .block = {EXPERT_ROWS_THREADS},
                .shared_bytes = (unsigned)rows_bytes(kind, k->k),
                .overlaps = true,
            },
            k);
}

/* ---- gate and up ---- */

static bool can_run_up(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_up_args *a = args;
    if (!fits(a->m, a->top_k, &a->gate, device, why)) return false;
    if (!few_rows_mxfp4(&a->up)) return few_rows_refuse(why, "it reads weights in packed mxfp4");
    return few_rows_aligned(a->normed.data)
               ? true
               : few_rows_refuse(why, "an operand at an address that is no multiple of 16");
}

static void run_up(const struct op_context *context, const struct moe_up_args *a,
                   const struct kind *kind)
{
    const struct expert_rows_args k = {
        .rows = a->m * a->top_k,
        .n = a->intermediate,
        .k = a->hidden,
        .groups = a->gate.groups,
        .x = a->normed.data,
        .x_rows = a->routing.token_of_row,
        .w = {a->gate.data, a->up.data},
        .scales = {a->gate.scales, a->up.scales},
        .bias = {a->gate_bias, a->up_bias},
        .group_offsets = a->routing.group_offsets,
        .out = a->act.data,
        .alpha = a->alpha,
        .limit = a->limit,
    };
    put(context, "moe_up/moe_up_rows.cu", kind->up, kind, &k);
}

static bool suits_up_exact(const void *args, const struct op_device *device,
                           char why[OP_REASON_MAX])
{
    (void)device;
    return two_rows(((const struct moe_up_args *)args)->m, why);
}

static void run_up_exact(const struct op_context *context, const void *args)
{
    run_up(context, args, &exact_kind);
}

static bool suits_up(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_up_args *a = args;
    return suits(routing_rows(&a->routing, a->m * a->top_k, a->gate.groups), &a->gate, device, why);
}

static bool serves_up(const void *args, const struct op_device *device, int choice)
{
    return has_room(choice, ((const struct moe_up_args *)args)->gate.cols, 2, device);
}

static const struct op_choices up_choices = {kind_names, 2, serves_up, NULL};

static void run_up_rounded(const struct op_context *context, const void *args)
{
    run_up(context, args, &rounded_kinds[context->choice]);
}

const struct op_variant moe_up_two_cuda = {
    .name = "moe_up_two_cuda",
    .summary = "two rows, in three parts: their experts' gate and up and swiglu in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_up,
    .suits = suits_up_exact,
    .run = run_up_exact,
    .images = {"moe_up/moe_up_rows.cu"},
};

const struct op_variant moe_up_rows_cuda = {
    .name = "moe_up_rows_cuda",
    .summary = "few rows: their experts' gate and up and swiglu in one kernel",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_up,
    .suits = suits_up,
    .choices = &up_choices,
    .run = run_up_rounded,
    .images = {"moe_up/moe_up_rows.cu"},
};

/* ---- down ---- */

static bool can_run_down(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_down_args *a = args;
    if (!fits(a->m, a->top_k, &a->down, device, why)) return false;
    if (!few_rows_aligned(a->act.data) || !few_rows_aligned(a->x.data) || a->hidden % 4)
        return few_rows_refuse(why, "rows at addresses that are no multiple of 16");
    return true;
}

static size_t down_workspace(const void *args, int workers)
{
    const struct moe_down_args *a = args;
    (void)workers;
    return (size_t)(a->m * a->top_k * a->hidden) * sizeof(float);
}

void join_rows_put(struct gpu_stream *stream, const struct routing *routing, int64_t m, int64_t n,
                   int64_t top_k, const float *y, float *x)
{
    enum { EACH = 4 * EXPERT_ROWS_THREADS }; /* features of a block */
    const struct join_rows_args join = {
        .n = n,
        .top_k = top_k,
        .y = y,
        .weight = routing->weight,
        .row_of_slot = routing->row_of_slot,
        .x = x,
    };
    gpu_put(stream, JOIN_ROWS_IMAGE, routing->some_of ? "moe_down_join_own" : "moe_down_join",
            &(struct gpu_launch){.grid = {(unsigned)((n + EACH - 1) / EACH), (unsigned)m},
                                 .block = {EXPERT_ROWS_THREADS},
                                 .overlaps = true},
            &join);
}

static void run_down(const struct op_context *context, const struct moe_down_args *a,
                     const struct kind *kind)
{
    const struct expert_rows_args k = {
        .rows = a->m * a->top_k,
        .n = a->hidden,
        .k = a->intermediate,
        .groups = a->down.groups,
        .x = a->act.data,
        .w = {a->down.data},
        .scales = {a->down.scales},
        .bias = {a->down_bias},
        .group_offsets = a->routing.group_offsets,
        .out = context->workspace,
    };
    put(context, "moe_down/moe_down_rows.cu", kind->down, kind, &k);
    join_rows_put(context->stream, &a->routing, a->m, a->hidden, a->top_k, context->workspace,
                  a->x.data);
}

static bool suits_down_exact(const void *args, const struct op_device *device,
                             char why[OP_REASON_MAX])
{
    (void)device;
    return two_rows(((const struct moe_down_args *)args)->m, why);
}

static void run_down_exact(const struct op_context *context, const void *args)
{
    run_down(context, args, &exact_kind);
}

static bool suits_down(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_down_args *a = args;
    return suits(routing_rows(&a->routing, a->m * a->top_k, a->down.groups), &a->down, device, why);
}

static bool serves_down(const void *args, const struct op_device *device, int choice)
{
    return has_room(choice, ((const struct moe_down_args *)args)->down.cols, 1, device);
}

static const struct op_choices down_choices = {kind_names, 2, serves_down, NULL};

static void run_down_rounded(const struct op_context *context, const void *args)
{
    run_down(context, args, &rounded_kinds[context->choice]);
}

const struct op_variant moe_down_two_cuda = {
    .name = "moe_down_two_cuda",
    .summary = "two rows, in three parts: their experts' products, then weighted sums and residual",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_down,
    .suits = suits_down_exact,
    .workspace = down_workspace,
    .run = run_down_exact,
    .images = {"moe_down/moe_down_rows.cu"},
};

const struct op_variant moe_down_rows_cuda = {
    .name = "moe_down_rows_cuda",
    .summary = "few rows: their experts' products, then weighted sums and residual",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_down,
    .suits = suits_down,
    .choices = &down_choices,
    .workspace = down_workspace,
    .run = run_down_rounded,
    .images = {"moe_down/moe_down_rows.cu"},
};
