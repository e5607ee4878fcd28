/* attn_in and attn_out of few rows: the products of kernels/gemm/stream_rows.cuh. */
#include "attn_in/attn_in_rows_args.h"
#include "attn_out/attn_out_rows_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/attn_in_cuda.h"
#include "ops/cuda/attn_out_cuda.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/thresholds.h"

struct kind {
    const char *name;
    int rows, tiles;
    unsigned shared;
};
/* By weights, the choices by how many rows they hold. */
enum { CHOICES = 3 };
static const char *const rows_names[CHOICES] = {"8_rows", "16_rows", "32_rows"};
#define KIND(name, type, rows, tiles, groups, weights, activations, blocks)                        \
    {#name, rows, tiles, STREAM_SHARED(tiles, groups)},
static const struct kind in_kinds[DTYPE_COUNT][CHOICES] = {
    [DTYPE_BF16] = {ATTN_IN_ROWS_BF16(KIND)}, [DTYPE_Q8_0] = {ATTN_IN_ROWS_Q8_0(KIND)}};
static const struct kind out_kinds[DTYPE_COUNT][CHOICES] = {
    [DTYPE_BF16] = {ATTN_OUT_ROWS_BF16(KIND)}, [DTYPE_Q8_0] = {ATTN_OUT_ROWS_Q8_0(KIND)}};
#undef KIND

static unsigned blocks_of(int64_t tiles, const struct kind *kind)
{
    return (unsigned)((tiles + kind->tiles - 1) / kind->tiles);
}

static bool few(int64_t m, char why[OP_REASON_MAX])
{
    if (m <= STREAM_ROWS_MAX) return true;
    snprintf(why, OP_REASON_MAX, "%lld rows; it is for up to %d", (long long)m, STREAM_ROWS_MAX);
    return false;
}

/* `many`: the composite of many rows. */
static bool wanted(int64_t m, const struct op_variant *many, const struct op_device *device,
                   char why[OP_REASON_MAX])
{
    if (m > FEW_ROWS_BEST && op_arch_fits(&many->arch, device->gpu))
        return few_rows_refuse(why, "more than 16 rows; those of many take less");
    return true;
}

static bool suits_in(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_in_args *a = args;
    return wanted(a->m, &attn_in_many_cuda, device, why);
}

static bool suits_out(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_out_args *a = args;
    return wanted(a->m, &attn_out_many_cuda, device, why);
}

/* ---- attn_in ---- */

static void run_in(const struct op_context *context, const struct attn_in_args *a,
                   const struct kind *kind)
{
    const struct attn_in_rows_args k = {.all = attn_in_for_kernel(a), .m = a->m};
    gpu_put(context->stream, "attn_in/attn_in_rows.cu", kind->name,
            &(struct gpu_launch){
                .grid = {blocks_of(attn_in_tiles(a), kind)},
                .block = {STREAM_THREADS},
                .shared_bytes = kind->shared,
                .overlaps = true,
            },
            &k);
}

static bool can_run_in(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_in_args *a = args;
    (void)device;
    return few(a->m, why) && attn_in_reads(a, why);
}

static bool serves_in(const void *args, const struct op_device *device, int choice)
{
    const struct attn_in_args *a = args;
    (void)device;
    return a->m <= in_kinds[a->wq.dtype][choice].rows;
}

static const struct op_choices in_choices = {rows_names, CHOICES, serves_in, NULL};

static void run_in_rounded(const struct op_context *context, const void *args)
{
    const struct attn_in_args *a = args;
    run_in(context, a, &in_kinds[a->wq.dtype][context->choice]);
}

const struct op_variant attn_in_rows_cuda = {
    .name = "attn_in_rows_cuda",
    .summary = "up to 32 rows: norm, products, rotation and the cache in one kernel",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_in,
    .suits = suits_in,
    .choices = &in_choices,
    .run = run_in_rounded,
    .images = {"attn_in/attn_in_rows.cu"},
};

/* ---- attn_out ---- */

/* A pair of blocks shares its tiles. */
static void run_add(const struct op_context *context, const struct attn_out_args *a,
                    const struct kind *kind)
{
    const struct stream_added_args k = {
        .m = a->m,
        .n = a->hidden,
        .k = a->width,
        .x = a->attn.data,
        .w = a->wo.data,
        .scales = a->wo.scales,
        .bias = a->bo,
        .out = a->x.data,
    };
    int64_t tiles = (a->hidden + FEW_ROWS_FEATURES - 1) / FEW_ROWS_FEATURES;
    gpu_put(context->stream, "attn_out/attn_out_rows.cu", kind->name,
            &(struct gpu_launch){
                .grid = {FEW_ROWS_PAIR * blocks_of(tiles, kind)},
                .block = {STREAM_THREADS},
                .cluster = FEW_ROWS_PAIR,
                .shared_bytes = kind->shared,
                .overlaps = true,
            },
            &k);
}

static bool can_add(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_out_args *a = args;
    (void)device;
    return few(a->m, why) && few_rows_dense(&a->wo, why) && attn_out_adds(a, why);
}

static bool can_run_out(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    return can_add(args, device, why) && attn_out_routes(args, why);
}

static bool serves_out(const void *args, const struct op_device *device, int choice)
{
    const struct attn_out_args *a = args;
    (void)device;
    return a->m <= out_kinds[a->wo.dtype][choice].rows;
}

static const struct op_choices out_choices = {rows_names, CHOICES, serves_out, NULL};

static void run_add_rounded(const struct op_context *context, const void *args)
{
    const struct attn_out_args *a = args;
    run_add(context, a, &out_kinds[a->wo.dtype][context->choice]);
}

static void run_out_rounded(const struct op_context *context, const void *args)
{
    run_add_rounded(context, args);
    attn_out_route(context, args);
}

const struct op_variant attn_out_rows_cuda = {
    .name = "attn_out_rows_cuda",
    .summary = "up to 32 rows: projection with residual, then a cluster a row routes",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .can_run = can_run_out,
    .suits = suits_out,
    .choices = &out_choices,
    .run = run_out_rounded,
    .images = {"attn_out/attn_out_rows.cu", "attn_out/attn_out.cu"},
};

/* ---- attn_add: the same without what routes ---- */

const struct op_variant attn_add_rows_cuda = {
    .name = "attn_add_rows_cuda",
    .summary = "up to 32 rows: projection with residual by pairs of blocks",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .can_run = can_add,
    .suits = suits_out,
    .choices = &out_choices,
    .run = run_add_rounded,
    .images = {"attn_out/attn_out_rows.cu"},
};
