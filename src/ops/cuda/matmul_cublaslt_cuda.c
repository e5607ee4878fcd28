/* matmul by NVIDIA's library: bf16 operands with float32 or bf16 results, and float32 throughout.
 * What is symmetric is multiplied in stretches of rows, each up to where it passes the diagonal,
 * and a kernel writes the rest. */
#include "matmul/mirror_args.h"
#include "ops/args.h"
#include "ops/cuda/cublaslt_cuda.h"
#include "ops/cuda/typed_cuda.h"

#define MIRROR_IMAGE "matmul/mirror.cu"

static bool aligned(const struct matrix *m)
{
    return (uintptr_t)m->data % 16 == 0;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct matmul_args *a = args;
    const int64_t unit = a->a.dtype == DTYPE_BF16 ? 8 : 4; /* rows begin at multiples of 16 bytes */
    (void)device;
    if (a->a.cols % unit || a->b.cols % unit || a->n % unit)
        snprintf(why, OP_REASON_MAX, "rows that are no multiples of %lld numbers", (long long)unit);
    else if (!aligned(&a->a) || !aligned(&a->b) || !aligned(&a->out) || !aligned(&a->add))
        snprintf(why, OP_REASON_MAX, "a matrix at an address that is no multiple of 16");
    else if (a->factor_a || a->factor_b)
        snprintf(why, OP_REASON_MAX, "operands with factors");
    else
        return true;
    return false;
}

static struct gpu_matmul product_of(const struct op_context *context, const struct matmul_args *a)
{
    return (struct gpu_matmul){.m = a->m,
                               .n = a->n,
                               .k = a->k,
                               .x_stride = a->a.cols,
                               .x = a->a.data,
                               .w = a->b.data,
                               .c = a->out.data,
                               .f32 = a->a.dtype == DTYPE_F32,
                               .narrow = a->out.dtype == DTYPE_BF16,
                               .x_transposed = a->transpose_a,
                               .w_transposed = !a->transpose_b,
                               .batch = a->batch,
                               .alpha = a->alpha,
                               .beta = a->beta,
                               .add = a->add.data,
                               .choice = context->choice,
                               .workspace = context->workspace};
}

static size_t workspace(const void *args, int workers)
{
    const struct matmul_args *a = args;
    (void)workers;
    return gpu_matmul_workspace(a->batch, a->m, a->n);
}

static void run(const struct op_context *context, const void *args)
{
    const struct gpu_matmul product = product_of(context, args);
    gpu_put_matmul(context->stream, &product);
}

/* a and b; with results too. */
static const unsigned typed[] = {1 << 0 | 1 << 1, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3, 0};

const struct op_variant matmul_cublaslt_cuda = {
    .name = "matmul_cublaslt_cuda",
    .summary =
        "NVIDIA's cuBLASLt, where it is installed; the choices are what it offers, best first",
    .numerics = NUMERICS_EXACT,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .usable = cublaslt_usable,
    .can_run = can_run,
    .choices = &cublaslt_choices,
    .typed = typed,
    .workspace = workspace,
    .run = run,
};

/* ---- symmetric results ---- */

/* Rows of a stretch: short ones multiply little above the diagonal, long ones fill a GPU. */
static const int64_t stretches[] = {256, 512, 640, 128};
static const char *const stretch_names[] = {"256", "512", "640", "128"};

/* What it serves; and from where on it was faster: on an H200 768 rows take 1.2 times as long as
 * whole products, 1280 less. */
enum { SYMMETRIC_MIN = 512, SYMMETRIC_SUITS = 1024 };

static bool can_run_symmetric(const void *args, const struct op_device *device,
                              char why[OP_REASON_MAX])
{
    const struct matmul_args *a = args;
    if (!a->symmetric || a->m < SYMMETRIC_MIN)
        snprintf(why, OP_REASON_MAX, "no symmetric products of %d rows and more", SYMMETRIC_MIN);
    else if (a->batch > MIRROR_PRODUCTS_MAX)
        snprintf(why, OP_REASON_MAX, "more than %d products", MIRROR_PRODUCTS_MAX);
    else
        return can_run(args, device, why);
    return false;
}

static bool suits_symmetric(const void *args, const struct op_device *device,
                            char why[OP_REASON_MAX])
{
    (void)device;
    if (((const struct matmul_args *)args)->m >= SYMMETRIC_SUITS) return true;
    snprintf(why, OP_REASON_MAX, "fewer than %d rows, where whole products are faster",
             SYMMETRIC_SUITS);
    return false;
}

static bool serves_stretch(const void *args, const struct op_device *device, int choice)
{
    (void)device;
    return stretches[choice] < ((const struct matmul_args *)args)->m;
}

static const struct op_choices stretch_choices = {
    stretch_names, sizeof stretches / sizeof *stretches, serves_stretch, NULL};

static const void *element(const struct matrix *m, int64_t at)
{
    return (const char *)m->data + at * (m->dtype == DTYPE_BF16 ? 2 : 4);
}

/* Rows `first` and up to `count` behind it, from the left to the diagonal of the last one. */
static void put_stretch(const struct op_context *context, const struct matmul_args *a,
                        int64_t first, int64_t count)
{
    struct gpu_matmul product = product_of(context, a);
    const int64_t rows = a->m - first < count ? a->m - first : count;
    product.m = rows;
    product.n = first + rows;
    product.x = element(&a->a, a->transpose_a ? first : first * a->k);
    product.c = (void *)element(&a->out, first * a->n);
    product.add = a->beta != 0 ? element(&a->add, first * a->n) : NULL;
    product.w_stride = a->b.cols;
    product.c_stride = a->n;
    product.x_apart = product.w_apart = a->m * a->k;
    product.c_apart = a->m * a->n;
    product.choice = 0;
    gpu_put_matmul(context->stream, &product);
}

/* Of stretches: each has fewer tiles. */
static size_t workspace_symmetric(const void *args, int workers)
{
    (void)args, (void)workers;
    return GPU_MATMUL_WORKSPACE;
}

static void run_symmetric(const struct op_context *context, const void *args)
{
    const struct matmul_args *a = args;
    const int64_t rows = stretches[context->choice];
    const unsigned tiles = (unsigned)typed_pieces(a->m, MIRROR_TILE);
    const bool narrow = a->out.dtype == DTYPE_BF16;
    const struct mirror_kernel_args k = {.n = a->m, .stretch = rows, .data = a->out.data};
    for (int64_t first = 0; first < a->m; first += rows) put_stretch(context, a, first, rows);
    gpu_put(context->stream, MIRROR_IMAGE, narrow ? "mirror_bf16" : "mirror_f32",
            &(struct gpu_launch){.grid = {tiles * tiles, (unsigned)a->batch},
                                 .block = {MIRROR_THREADS},
                                 .overlaps = true},
            &k);
}

const struct op_variant matmul_symmetric_cuda = {
    .name = "matmul_symmetric_cuda",
    .summary = "what is symmetric, by cuBLASLt in stretches of rows up to the diagonal, mirrored; "
               "the choices are rows of a stretch",
    .numerics = NUMERICS_EXACT,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .usable = cublaslt_usable,
    .can_run = can_run_symmetric,
    .suits = suits_symmetric,
    .choices = &stretch_choices,
    .typed = typed,
    .workspace = workspace_symmetric,
    .run = run_symmetric,
    .images = {MIRROR_IMAGE},
};
