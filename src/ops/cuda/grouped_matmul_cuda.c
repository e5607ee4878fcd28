/* grouped_matmul and grouped_wgrad: in float32 on any card (kernels/matmul/grouped_any.cu), and of
 * bf16 on the tensor cores that every card from sm_80 on has (grouped_mma.cu). */
#include "matmul/grouped_args.h"
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "train/map_args.h"

#define ANY_IMAGE "matmul/grouped_any.cu"
#define MMA_IMAGE "matmul/grouped_mma.cu"

enum {
    GRID_Y_MAX = 65535,
    /* What an H100 holds at once: fewer tiles than that are split along the rows. */
    BLOCKS_AT_ONCE = 132 * GROUPED_MMA_BLOCKS,
    SPLIT_ROWS_MIN = 256, /* of a group, on the average */
};

static uint32_t bf16_of(const struct matrix *a, const struct matrix *b, const struct matrix *out)
{
    return (typed_narrow(a) ? MATMUL_A : 0u) | (typed_narrow(b) ? MATMUL_B : 0u) |
           (typed_narrow(out) ? MATMUL_OUT : 0u);
}

static struct grouped_matmul_kernel_args matmul_args(const struct grouped_matmul_args *a, int tile)
{
    return (struct grouped_matmul_kernel_args){.n = a->n,
                                               .k = a->k,
                                               .group_offsets = a->group_offsets,
                                               .a = a->a.data,
                                               .b = a->w.data,
                                               .out = a->out.data,
                                               .groups = (int32_t)a->groups,
                                               .transpose = a->transpose,
                                               .add = a->add,
                                               .tiles = (int32_t)typed_pieces(a->n, tile),
                                               .bf16 = bf16_of(&a->a, &a->w, &a->out)};
}

static struct grouped_matmul_kernel_args wgrad_args(const struct grouped_wgrad_args *a, int tile)
{
    return (struct grouped_matmul_kernel_args){.n = a->n,
                                               .k = a->k,
                                               .group_offsets = a->group_offsets,
                                               .a = a->dy.data,
                                               .b = a->x.data,
                                               .out = a->dw.data,
                                               .groups = (int32_t)a->groups,
                                               .splits = 1,
                                               .tiles = (int32_t)typed_pieces(a->k, tile),
                                               .bf16 = bf16_of(&a->dy, &a->x, &a->dw)};
}

/* Every group may end with a tile of its own. */
static int64_t matmul_tiles(const struct grouped_matmul_args *a, int tile)
{
    return (typed_pieces(a->m, tile) + a->groups) * typed_pieces(a->n, tile);
}

static int64_t wgrad_tiles(const struct grouped_wgrad_args *a, int tile)
{
    return typed_pieces(a->n, tile) * typed_pieces(a->k, tile);
}

/* ---- any ---- */

static bool can_matmul_any(const void *args, const struct op_device *device,
                           char why[OP_REASON_MAX])
{
    (void)device;
    return matmul_tiles(args, MATMUL_ANY_TILE) <= INT32_MAX || typed_refuse(why, "too many tiles");
}

static void run_matmul_any(const struct op_context *context, const void *args)
{
    const struct grouped_matmul_args *a = args;
    const struct grouped_matmul_kernel_args k = matmul_args(a, MATMUL_ANY_TILE);
    gpu_put(context->stream, ANY_IMAGE, "grouped_matmul_any",
            &(struct gpu_launch){.grid = {(unsigned)matmul_tiles(a, MATMUL_ANY_TILE)},
                                 .block = {MATMUL_ANY_THREADS},
                                 .overlaps = true},
            &k);
}

static const unsigned any_types[] = {1, 2, 3, 4, 5, 6, 7, 0};

const struct op_variant grouped_matmul_any_cuda = {
    .name = "grouped_matmul_any_cuda",
    .summary = "64 x 64 results a block in float32, any types",
    .target = TARGET_CUDA,
    .typed = any_types,
    .can_run = can_matmul_any,
    .run = run_matmul_any,
    .images = {ANY_IMAGE},
};

static bool can_wgrad_any(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct grouped_wgrad_args *a = args;
    (void)device;
    const bool fits = a->groups <= GRID_Y_MAX && wgrad_tiles(args, MATMUL_ANY_TILE) <= INT32_MAX;
    return fits || typed_refuse(why, "too many groups or tiles");
}

static void run_wgrad_any(const struct op_context *context, const void *args)
{
    const struct grouped_wgrad_args *a = args;
    const struct grouped_matmul_kernel_args k = wgrad_args(a, MATMUL_ANY_TILE);
    gpu_put(context->stream, ANY_IMAGE, "grouped_wgrad_any",
            &(struct gpu_launch){
                .grid = {(unsigned)wgrad_tiles(a, MATMUL_ANY_TILE), (unsigned)a->groups},
                .block = {MATMUL_ANY_THREADS},
                .overlaps = true},
            &k);
}

/* Gradients stay float32. */
static const unsigned wgrad_types[] = {1, 2, 3, 0};

const struct op_variant grouped_wgrad_any_cuda = {
    .name = "grouped_wgrad_any_cuda",
    .summary = "64 x 64 results a block in float32, any types",
    .target = TARGET_CUDA,
    .typed = wgrad_types,
    .can_run = can_wgrad_any,
    .run = run_wgrad_any,
    .images = {ANY_IMAGE},
};

/* ---- mma ---- */

/* Rows of n and k numbers, in pieces of 16 bytes. */
static bool in_pieces(int64_t n, int64_t k, const struct matrix *a, const struct matrix *b,
                      const struct matrix *out, char why[OP_REASON_MAX])
{
    if (!typed_narrow(a) || !typed_narrow(b)) return typed_refuse(why, "operands in float32");
    if (n % 8 || k % 8) return typed_refuse(why, "rows that are no multiples of 8 numbers");
    const bool aligned =
        typed_aligned(a->data) && typed_aligned(b->data) && typed_aligned(out->data);
    return aligned || typed_refuse(why, "a matrix at an address that is no multiple of 16");
}

static bool can_matmul_mma(const void *args, const struct op_device *device,
                           char why[OP_REASON_MAX])
{
    const struct grouped_matmul_args *a = args;
    (void)device;
    if (matmul_tiles(a, GROUPED_MMA_TILE) > INT32_MAX) return typed_refuse(why, "too many tiles");
    return in_pieces(a->n, a->k, &a->a, &a->w, &a->out, why);
}

static void run_matmul_mma(const struct op_context *context, const void *args)
{
    const struct grouped_matmul_args *a = args;
    const struct grouped_matmul_kernel_args k = matmul_args(a, GROUPED_MMA_TILE);
    gpu_put(context->stream, MMA_IMAGE,
            a->transpose ? "grouped_matmul_mma_transposed" : "grouped_matmul_mma",
            &(struct gpu_launch){.grid = {(unsigned)matmul_tiles(a, GROUPED_MMA_TILE)},
                                 .block = {GROUPED_MMA_THREADS},
                                 .shared_bytes = GROUPED_MMA_SHARED,
                                 .overlaps = true},
            &k);
}

static const unsigned all_three[] = {7, 0}, first_two[] = {3, 0};

const struct op_variant grouped_matmul_mma_cuda = {
    .name = "grouped_matmul_mma_cuda",
    .summary = "128 x 128 results a block, of bf16",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .typed = all_three,
    .can_run = can_matmul_mma,
    .run = run_matmul_mma,
    .images = {MMA_IMAGE},
};

static int64_t wgrad_splits(const struct grouped_wgrad_args *a)
{
    const int64_t wanted = BLOCKS_AT_ONCE / (a->groups * wgrad_tiles(a, GROUPED_MMA_TILE));
    const int64_t most = a->m / a->groups / SPLIT_ROWS_MIN;
    const int64_t splits = wanted < most ? wanted : most;
    return splits > 1 ? splits : 1;
}

static bool can_wgrad_mma(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct grouped_wgrad_args *a = args;
    (void)device;
    if (a->groups * wgrad_splits(a) > GRID_Y_MAX || wgrad_tiles(a, GROUPED_MMA_TILE) > INT32_MAX)
        return typed_refuse(why, "too many groups or tiles");
    return in_pieces(a->n, a->k, &a->dy, &a->x, &a->dw, why);
}

static size_t wgrad_workspace(const void *args, int workers)
{
    const struct grouped_wgrad_args *a = args;
    (void)workers;
    const int64_t splits = wgrad_splits(a);
    return splits > 1 ? (size_t)(splits * a->groups * a->n * a->k) * sizeof(float) : 0;
}

static void run_wgrad_mma(const struct op_context *context, const void *args)
{
    const struct grouped_wgrad_args *a = args;
    struct grouped_matmul_kernel_args k = wgrad_args(a, GROUPED_MMA_TILE);
    k.splits = (int32_t)wgrad_splits(a);
    if (k.splits > 1) k.partials = context->workspace;
    gpu_put(context->stream, MMA_IMAGE, "grouped_wgrad_mma",
            &(struct gpu_launch){.grid = {(unsigned)wgrad_tiles(a, GROUPED_MMA_TILE),
                                          (unsigned)(a->groups * k.splits)},
                                 .block = {GROUPED_MMA_THREADS},
                                 .shared_bytes = GROUPED_MMA_SHARED,
                                 .overlaps = true},
            &k);
    if (k.splits == 1) return;
    typed_add_parts(context, &(struct parts_kernel_args){.count = a->groups * a->n * a->k,
                                                         .parts = k.splits,
                                                         .partials = k.partials,
                                                         .add = a->dw.data,
                                                         .out = a->dw.data,
                                                         .beta = 1});
}

const struct op_variant grouped_wgrad_mma_cuda = {
    .name = "grouped_wgrad_mma_cuda",
    .summary = "128 x 128 results a block, of bf16; rows split where tiles are few",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .typed = first_two,
    .can_run = can_wgrad_mma,
    .workspace = wgrad_workspace,
    .run = run_wgrad_mma,
    .images = {MMA_IMAGE, TYPED_FINISH_IMAGE},
};
