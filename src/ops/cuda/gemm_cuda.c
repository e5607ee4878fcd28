/* The products on a GPU: for few rows, where reading the weights counts, and for everything else.
 */
#include <stdio.h>

#include "gemm/gemm_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/cuda/thresholds.h"

static struct gemm_kernel_args for_kernel(const struct gemm_args *a)
{
    return (struct gemm_kernel_args){
        .m = a->m,
        .n = a->n,
        .k = a->k,
        .groups = a->w.groups,
        .a = a->a.data,
        .a_rows = a->a_rows,
        .w = a->w.data,
        .bias = a->bias,
        .group_offsets = a->group_offsets,
        .c = a->c.data,
        .scales = a->w.scales,
        .type = tensor_kernel_type(&a->w),
    };
}

/* As many tiles of `size` rows as there can be when every group begins its own. */
static unsigned row_tiles(const struct gemm_args *a, int64_t size)
{
    int64_t extra = a->group_offsets && size > 1 ? (a->w.groups < a->m ? a->w.groups : a->m) : 0;
    return (unsigned)((a->m + size - 1) / size + extra);
}

static unsigned blocks_of(int64_t count, int64_t size)
{
    return (unsigned)((count + size - 1) / size);
}

/* ---- everything: a warp a feature ---- */

enum { GRID_Y_MAX = 65535 };
enum { SMALL_ROWS = 16, SMALL_FEATURES = 256 }; /* a router's: all threads along k */

static bool can_run_any(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return few_rows_any(&((const struct gemm_args *)args)->w, why);
}

enum any_choice { ANY_TILE, ANY_ROW };
static const char *const any_names[] = {[ANY_TILE] = "tile", [ANY_ROW] = "row"};

static bool any_serves(const void *args, const struct op_device *device, int choice)
{
    const struct gemm_args *a = args;
    (void)device;
    return choice == ANY_TILE || (a->w.layout == LAYOUT_ROWS && row_tiles(a, 1) <= GRID_Y_MAX);
}

static int usual_any(const void *args, const struct op_device *device)
{
    const struct gemm_args *a = args;
    (void)device;
    return a->m <= SMALL_ROWS && a->n <= SMALL_FEATURES && a->w.layout == LAYOUT_ROWS ? ANY_ROW
                                                                                      : ANY_TILE;
}

static const struct op_choices any_choices = {any_names, 2, any_serves, usual_any};

static void run_any(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    const struct gemm_kernel_args k = for_kernel(a);
    if (context->choice == ANY_ROW) {
        gpu_put(context->stream, "gemm/gemm_f32.cu", "gemv_f32_any",
                &(struct gpu_launch){.grid = {(unsigned)a->n, row_tiles(a, 1)},
                                     .block = {GEMM_ANY_THREADS},
                                     .overlaps = true},
                &k);
        return;
    }
    gpu_put(context->stream, "gemm/gemm_f32.cu", "gemm_f32_any",
            &(struct gpu_launch){
                .grid = {blocks_of(a->n, GEMM_ANY_FEATURES), row_tiles(a, GEMM_ANY_ROWS)},
                .block = {GEMM_ANY_THREADS},
                .overlaps = true},
            &k);
}

const struct op_variant gemm_f32_any_cuda = {
    .name = "gemm_f32_any_cuda",
    .summary = "a warp a feature, eight rows, any weights, float32",
    .target = TARGET_CUDA,
    .can_run = can_run_any,
    .choices = &any_choices,
    .run = run_any,
    .images = {"gemm/gemm_f32.cu"},
};

/* ---- few rows: gemv.cu ---- */

/* One kernel of the file: R rows as P parts. */
struct gemv_kind {
    int rows, parts;
    const char *names[DTYPE_COUNT]; /* by weights */
};
#define GEMV(act, rows)                                                                            \
    {                                                                                              \
        [DTYPE_BF16] = "gemv_" act "_bf16_" rows, [DTYPE_MXFP4] = "gemv_" act "_mxfp4_" rows,      \
        [DTYPE_Q8_0] = "gemv_" act "_q8_0_" rows                                                   \
    }
static const struct gemv_kind exact_kinds[] = {
    {1, FEW_ROWS_PARTS, GEMV("f32", "1")},
    {EXACT_ROWS, FEW_ROWS_PARTS, GEMV("f32", "2")},
};
static const struct gemv_kind rounded_kind = {ROUNDED_ROWS, 1, GEMV("bf16", "8")};
#undef GEMV

/* Shared memory that gemv.cu itself declares, and what the system takes of each block's, at most.
 */
enum { GEMV_STATIC = 5 << 10, GEMV_SYSTEM = 1 << 10 };

static size_t gemv_shared(const struct gemm_args *a, const struct gemv_kind *kind)
{
    return (size_t)(kind->rows * kind->parts) * few_rows_column(a->k, a->w.layout);
}

static bool gemv_serves(const struct gemm_args *a, const struct gemv_kind *kind,
                        const struct op_device *device, char why[OP_REASON_MAX])
{
    if (!few_rows_mxfp4(&a->w) && !few_rows_q8_0(&a->w) && !few_rows_bf16(&a->w))
        snprintf(why, OP_REASON_MAX, "%s with rows of %lld; it reads bf16, packed mxfp4 and q8_0",
                 dtype_info(a->w.dtype)->name, (long long)a->k);
    else if (!few_rows_aligned(a->a.data))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    else if (row_tiles(a, kind->rows) > GRID_Y_MAX)
        snprintf(why, OP_REASON_MAX, "%lld rows, which are too many", (long long)a->m);
    else if (gemv_shared(a, kind) + GEMV_STATIC > (size_t)gpu_info(device->gpu)->shared_per_block)
        snprintf(why, OP_REASON_MAX, "rows of %lld do not fit shared memory", (long long)a->k);
    else
        return true;
    return false;
}

static void run_gemv(const struct op_context *context, const struct gemm_args *a,
                     const struct gemv_kind *kind)
{
    const struct gemm_kernel_args k = for_kernel(a);
    /* A block spreads the activations once, then takes tile after tile: no more blocks than run at
     * a time, each with the same number of tiles. */
    const size_t each_block = gemv_shared(a, kind) + GEMV_STATIC + GEMV_SYSTEM;
    const struct gpu_info *gpu = gpu_stream_info(context->stream);
    const bool fit = FEW_ROWS_BLOCKS * each_block <= (size_t)gpu->shared_per_sm;
    unsigned tiles = blocks_of(a->n, FEW_ROWS_FEATURES), rows = row_tiles(a, kind->rows);
    unsigned most = (fit ? FEW_ROWS_BLOCKS : 1) * (unsigned)gpu->sm_count / rows;
    unsigned each = most ? blocks_of(tiles, most) : tiles;
    gpu_put(context->stream, "gemm/gemv.cu", kind->names[a->w.dtype],
            &(struct gpu_launch){.grid = {blocks_of(tiles, each), rows},
                                 .block = {FEW_ROWS_THREADS},
                                 .shared_bytes = (unsigned)gemv_shared(a, kind),
                                 .overlaps = true},
            &k);
}

/* Rows that share their weights' reading: all of a dense product; of a grouped one, what a group
 * gets when they spread. */
static int64_t rows_together(const struct gemm_args *a)
{
    return a->group_offsets ? (a->m + a->w.groups - 1) / a->w.groups : a->m;
}

static const char *const exact_names[] = {"1", "2"}; /* of exact_kinds: rows together */

static bool can_run_exact(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    return gemv_serves(args, &exact_kinds[0], device, why);
}

/* One or two rows; more of a product so small that each two can have their own blocks. */
static bool suits_exact(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    bool small = !a->group_offsets && few_rows_bf16(&a->w) &&
                 few_rows_at_once(a->m, a->n, EXACT_ROWS, device);
    if (small || rows_together(a) <= EXACT_ROWS)
        return gemv_serves(a, &exact_kinds[0], device, why);
    snprintf(why, OP_REASON_MAX, "%lld rows; it is for 1 or 2", (long long)rows_together(a));
    return false;
}

static bool exact_serves(const void *args, const struct op_device *device, int choice)
{
    char why[OP_REASON_MAX];
    return gemv_serves(args, &exact_kinds[choice], device, why);
}

/* Two rows together, unless there are two SMs for each row and tile (H100, k 2880, 2 rows of 512
 * features: 4.1 us instead of 4.4; 4 rows are faster in pairs). */
static int usual_exact(const void *args, const struct op_device *device)
{
    const struct gemm_args *a = args;
    int64_t blocks = (int64_t)blocks_of(a->n, FEW_ROWS_FEATURES) * a->m;
    bool alone =
        !a->group_offsets && few_rows_bf16(&a->w) && 2 * blocks <= gpu_info(device->gpu)->sm_count;
    return rows_together(a) > 1 && !alone && exact_serves(args, device, 1);
}

static const struct op_choices exact_choices = {exact_names, 2, exact_serves, usual_exact};

static void run_exact(const struct op_context *context, const void *args)
{
    run_gemv(context, args, &exact_kinds[context->choice]);
}

const struct op_variant gemv_f32_cuda = {
    .name = "gemv_f32_cuda",
    .summary =
        "bf16, packed mxfp4 or q8_0 weights straight to tensor cores, activations in three parts",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_exact,
    .suits = suits_exact,
    .choices = &exact_choices,
    .run = run_exact,
    .images = {"gemm/gemv.cu"},
};

static bool can_run_rounded(const void *args, const struct op_device *device,
                            char why[OP_REASON_MAX])
{
    return gemv_serves(args, &rounded_kind, device, why);
}

static void run_rounded(const struct op_context *context, const void *args)
{
    run_gemv(context, args, &rounded_kind);
}

const struct op_variant gemv_bf16_cuda = {
    .name = "gemv_bf16_cuda",
    .summary = "the same with eight rows in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_rounded,
    .run = run_rounded,
    .images = {"gemm/gemv.cu"},
};
