/* matmul on any card, in float32 (kernels/matmul/matmul_any.cu). */
#include "matmul/matmul_args.h"
#include "ops/cuda/typed_cuda.h"
#include "ops/train_args.h"
#include "train/map_args.h"

#define IMAGE "matmul/matmul_any.cu"

enum {
    PRODUCTS_MAX = 65535, /* of a grid's second dimension */
    /* Of a product in parts: twice the SMs of an H100; what a part is worth its launch for. */
    BLOCKS_AT_ONCE = 264,
    PART_MIN = 64,
};

static int64_t tiles_of(int64_t n)
{
    return (n + MATMUL_ANY_TILE - 1) / MATMUL_ANY_TILE;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct matmul_args *a = args;
    (void)device;
    if (a->batch <= PRODUCTS_MAX && tiles_of(a->m) * tiles_of(a->n) <= INT32_MAX) return true;
    snprintf(why, OP_REASON_MAX, "%lld products of %lld x %lld, which are too many",
             (long long)a->batch, (long long)a->m, (long long)a->n);
    return false;
}

static unsigned bf16_of(const struct matmul_args *a)
{
    return (a->a.dtype == DTYPE_BF16 ? MATMUL_A : 0u) | (a->b.dtype == DTYPE_BF16 ? MATMUL_B : 0u) |
           (a->add.dtype == DTYPE_BF16 ? MATMUL_ADD : 0u) |
           (a->out.dtype == DTYPE_BF16 ? MATMUL_OUT : 0u);
}

/* `batch` products into `out`. */
static void put_any(const struct op_context *context, const struct matmul_args *a,
                    const struct matmul_any_args *k, int64_t batch)
{
    gpu_put(
        context->stream, IMAGE, "matmul_any",
        &(struct gpu_launch){.grid = {(unsigned)(tiles_of(a->m) * tiles_of(a->n)), (unsigned)batch},
                             .block = {MATMUL_ANY_THREADS},
                             .overlaps = true},
        k);
}

static struct matmul_any_args any_args(const struct matmul_args *a)
{
    return (struct matmul_any_args){.m = a->m,
                                    .n = a->n,
                                    .k = a->k,
                                    .a = a->a.data,
                                    .b = a->b.data,
                                    .add = a->add.data,
                                    .out = a->out.data,
                                    .factor_a = a->factor_a,
                                    .factor_b = a->factor_b,
                                    .alpha = a->alpha,
                                    .beta = a->beta,
                                    .transpose_a = a->transpose_a,
                                    .transpose_b = a->transpose_b,
                                    .bf16 = bf16_of(a),
                                    .tiles = (int32_t)tiles_of(a->n)};
}

static void run(const struct op_context *context, const void *args)
{
    const struct matmul_args *a = args;
    if (a->batch * a->m * a->n == 0) return;
    const struct matmul_any_args k = any_args(a);
    put_any(context, a, &k, a->batch);
}

/* Any of the four. */
static const unsigned typed[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0};

const struct op_variant matmul_f32_any_cuda = {
    .name = "matmul_f32_any_cuda",
    .summary = "64 x 64 results a block in float32, any types",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .typed = typed,
    .run = run,
    .images = {IMAGE},
};

/* ---- few results, each a long sum: gradients of a router's weights ---- */

/* Parts of k of equal length, a power of two of them; 1: none that are worth it. With k first in
 * memory in both operands, the products of the parts lie one behind the other. */
static int64_t parts_of(const struct matmul_args *a)
{
    const int64_t tiles = tiles_of(a->m) * tiles_of(a->n);
    int64_t parts = 1;
    while (2 * parts * tiles <= BLOCKS_AT_ONCE && a->k % (2 * parts) == 0 &&
           a->k / (2 * parts) >= PART_MIN)
        parts *= 2;
    return parts;
}

static bool can_split(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct matmul_args *a = args;
    (void)device;
    if (!a->transpose_a || a->transpose_b || a->batch != 1)
        return typed_refuse(why, "not one product along the rows of both matrices");
    if (a->m * a->n % 8 || !typed_aligned(a->out.data) || !typed_aligned(a->add.data))
        return typed_refuse(why, "results that are no pieces of 8 numbers");
    return parts_of(a) > 1 || typed_refuse(why, "a sum too short to be split, or many results");
}

static size_t split_workspace(const void *args, int workers)
{
    const struct matmul_args *a = args;
    (void)workers;
    return (size_t)(parts_of(a) * a->m * a->n) * sizeof(float);
}

static void run_split(const struct op_context *context, const void *args)
{
    const struct matmul_args *a = args;
    const int64_t parts = parts_of(a);
    struct matmul_any_args k = any_args(a);
    k.k = a->k / parts;
    k.out = context->workspace;
    k.beta = 0;
    put_any(context, a, &k, parts);
    typed_add_parts(context, &(struct parts_kernel_args){.count = a->m * a->n,
                                                         .parts = parts,
                                                         .partials = context->workspace,
                                                         .add = a->add.data,
                                                         .out = a->out.data,
                                                         .beta = a->beta});
}

/* a and b. */
static const unsigned split_typed[] = {1, 2, 3, 0};

const struct op_variant matmul_f32_split_cuda = {
    .name = "matmul_f32_split_cuda",
    .summary = "the same in parts along k, which are added up in order",
    .target = TARGET_CUDA,
    .can_run = can_split,
    .typed = split_typed,
    .workspace = split_workspace,
    .run = run_split,
    .images = {IMAGE, TYPED_FINISH_IMAGE},
};
