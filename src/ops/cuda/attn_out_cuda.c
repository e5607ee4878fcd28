#include "ops/cuda/attn_out_cuda.h"
#include "attn_out/attn_out_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/thresholds.h"
#include "route/route_args.h"

static const char image[] = "attn_out/attn_out.cu";

bool attn_out_adds(const struct attn_out_args *a, char why[OP_REASON_MAX])
{
    if (few_rows_aligned(a->attn.data) && few_rows_aligned(a->x.data)) return true;
    return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
}

bool attn_out_routes(const struct attn_out_args *a, char why[OP_REASON_MAX])
{
    if (a->router.dtype != DTYPE_F32 && a->router.dtype != DTYPE_BF16)
        return few_rows_refuse(why, "it reads a router in f32 or bf16");
    if (a->hidden % 8 || a->hidden > ATTN_OUT_HIDDEN_MAX)
        return few_rows_refuse(why, "a row of more than 3072, or no multiple of 8");
    if (a->n_experts > ATTN_OUT_EXPERTS_MAX || a->top_k > ROUTE_TOP_K_MAX)
        return few_rows_refuse(why, "more than 128 experts, or 8 of them at a time");
    if (a->m * a->top_k > ATTN_OUT_SLOTS_MAX) return few_rows_refuse(why, "more than 256 choices");
    if (!few_rows_aligned(a->x.data) || !few_rows_aligned(a->norm) ||
        !few_rows_aligned(a->router.data) || !few_rows_aligned(a->normed.data))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return true;
}

/* Columns of the first block of a pair. */
static int64_t half_of(const struct attn_out_args *a)
{
    int64_t step = a->wo.layout == LAYOUT_TILES ? FEW_ROWS_STEP_TILES : FEW_ROWS_STEP_ROWS,
            steps = (a->width + step - 1) / step;
    return (steps + 1) / 2 * step;
}

static bool adds(const struct attn_out_args *a, int64_t rows, char why[OP_REASON_MAX])
{
    if (!few_rows_just(a->m, rows, why)) return false;
    if (!few_rows_dense(&a->wo, why)) return false;
    if (half_of(a) > FEW_ROWS_HELD_MAX / FEW_ROWS_PAIR)
        return few_rows_refuse(why, "a row of more than 4096");
    if (a->hidden % FEW_ROWS_FEATURES)
        return few_rows_refuse(why, "features that are no multiple of 16");
    return attn_out_adds(a, why);
}

static bool can_add_row(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return adds(args, 1, why);
}

static bool can_add_two(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return adds(args, 2, why);
}

bool attn_out_row_serves(const struct attn_out_args *a, char why[OP_REASON_MAX])
{
    return adds(a, a->m == 2 ? 2 : 1, why) && attn_out_routes(a, why);
}

static bool can_run_row(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return adds(args, 1, why) && attn_out_routes(args, why);
}

static bool can_run_two(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return adds(args, 2, why) && attn_out_routes(args, why);
}

void attn_out_project(const struct op_context *context, const void *args)
{
    const struct attn_out_args *a = args;
    const struct attn_out_add_args k = {
        .n = a->hidden,
        .k = a->width,
        .attn = a->attn.data,
        .w = a->wo.data,
        .scales = a->wo.scales,
        .bias = a->bo,
        .x = a->x.data,
    };
    static const char *const name[][DTYPE_COUNT] = {
        {[DTYPE_BF16] = "attn_out_add_bf16", [DTYPE_Q8_0] = "attn_out_add_q8_0"},
        {[DTYPE_BF16] = "attn_out_add_bf16_two", [DTYPE_Q8_0] = "attn_out_add_q8_0_two"}};
    size_t shared = (size_t)a->m * FEW_ROWS_PARTS * few_rows_column(half_of(a), a->wo.layout);
    gpu_put(context->stream, image, name[a->m - 1][a->wo.dtype],
            &(struct gpu_launch){
                .grid = {FEW_ROWS_PAIR * (unsigned)(a->hidden / FEW_ROWS_FEATURES)},
                .block = {FEW_ROWS_THREADS},
                .cluster = FEW_ROWS_PAIR,
                .shared_bytes = (unsigned)shared,
                .overlaps = true,
            },
            &k);
}

static struct attn_out_kernel_args for_kernel(const struct op_context *context,
                                              const struct attn_out_args *a)
{
    const struct routing *r = &a->routing;
    return (struct attn_out_kernel_args){
        .hidden = a->hidden,
        .n_experts = a->n_experts,
        .top_k = a->top_k,
        .x = a->x.data,
        .norm = a->norm,
        .router = a->router.data,
        .router_bias = a->router_bias,
        .normed = a->normed.data,
        .weight = r->weight,
        .expert = r->expert,
        .group_offsets = r->group_offsets,
        .token_of_row = r->token_of_row,
        .row_of_slot = r->row_of_slot,
        .counters = gpu_stream_counters(context->stream),
        .eps = a->eps,
        .m = (int32_t)a->m,
    };
}

void attn_out_route(const struct op_context *context, const struct attn_out_args *a)
{
    static const char *const name[2][2] = {{"attn_out_route_bf16", "attn_out_route_bf16_many"},
                                           {"attn_out_route_f32", "attn_out_route_f32_many"}};
    const struct attn_out_kernel_args k = for_kernel(context, a);
    bool many = a->n_experts > ATTN_OUT_EXPERTS_FEW; /* for fewer, half of its warps had no work */
    gpu_put(context->stream, image, name[a->router.dtype == DTYPE_F32][many],
            &(struct gpu_launch){.grid = {ATTN_OUT_CLUSTER, (unsigned)a->m},
                                 .block = {many ? ATTN_OUT_THREADS_MANY : ATTN_OUT_THREADS},
                                 .cluster = ATTN_OUT_CLUSTER,
                                 .overlaps = true},
            &k);
}

/* Blocks of a cluster are on as many SMs, else they may share one (H200: 790.9 t/s without
 * clusters, 796.2 with). */
void attn_out_logits(const struct op_context *context, const struct attn_out_args *a, float *halves)
{
    enum { EACH = ATTN_OUT_CLUSTER * ATTN_OUT_THREADS / 32 /* half experts of a cluster */ };
    struct attn_out_kernel_args k = for_kernel(context, a);
    const unsigned clusters = (unsigned)((2 * a->n_experts + EACH - 1) / EACH);
    k.halves = halves;
    gpu_put(context->stream, image,
            a->router.dtype == DTYPE_F32 ? "attn_out_logits_f32" : "attn_out_logits_bf16",
            &(struct gpu_launch){.grid = {clusters * ATTN_OUT_CLUSTER, (unsigned)a->m},
                                 .block = {ATTN_OUT_THREADS},
                                 .cluster = ATTN_OUT_CLUSTER,
                                 .overlaps = true},
            &k);
}

static void run(const struct op_context *context, const void *args)
{
    attn_out_project(context, args);
    attn_out_route(context, args);
}

const struct op_variant attn_out_row_cuda = {
    .name = "attn_out_row_cuda",
    .summary = "one row: projection with residual, then norm, router and choice by a cluster",
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .can_run = can_run_row,
    .run = run,
    .images = {image},
};

const struct op_variant attn_out_two_cuda = {
    .name = "attn_out_two_cuda",
    .summary = "two rows: projection with residual in three parts, then a cluster a row routes",
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .can_run = can_run_two,
    .run = run,
    .images = {image},
};

const struct op_variant attn_add_row_cuda = {
    .name = "attn_add_row_cuda",
    .summary = "one row: projection with residual by pairs of blocks",
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .can_run = can_add_row,
    .run = attn_out_project,
    .images = {image},
};

const struct op_variant attn_add_two_cuda = {
    .name = "attn_add_two_cuda",
    .summary = "two rows: projection with residual in three parts, by pairs of blocks",
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .can_run = can_add_two,
    .run = attn_out_project,
    .images = {image},
};

static bool can_route(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return attn_out_routes(args, why);
}

static bool suits_route(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_out_args *a = args;
    if (a->m > FEW_ROWS_BEST && op_arch_fits(&attn_out_many_cuda.arch, device->gpu))
        return few_rows_refuse(why, "more than 16 rows; those of many take less");
    return true;
}

static void run_route(const struct op_context *context, const void *args)
{
    attn_out_route(context, args);
}

const struct op_variant attn_route_few_cuda = {
    .name = "attn_route_few_cuda",
    .summary = "few rows: norm, router and choice by a cluster a row",
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .can_run = can_route,
    .suits = suits_route,
    .run = run_route,
    .images = {image},
};
