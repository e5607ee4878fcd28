/* quantise to FP8, alone and behind relu2, and delayed_scale. */
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "ops/quantise.h"
#include "quantise/quantise_fp8_args.h"

#define IMAGE "quantise/quantise_fp8.cu"

_Static_assert(sizeof(struct fp8_kernel_scale) == sizeof(struct quantise_scale), "the same");

/* ---- quantise ---- */

static bool fits(int64_t m, int64_t n, char why[OP_REASON_MAX])
{
    if (typed_pieces(m, FP8_ROWS) * typed_pieces(n, FP8_COLUMNS) <= INT32_MAX) return true;
    return typed_refuse(why, "a matrix that is too large");
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct quantise_args *a = args;
    (void)device;
    if (a->format != DTYPE_FP8_E4M3 && a->format != DTYPE_FP8_E5M2)
        return typed_refuse(why, "of FP8 alone");
    if (a->to.data) return typed_refuse(why, "makes codes alone");
    return fits(a->m, a->n, why);
}

static void put(const struct op_context *context, const struct typed_names *names, bool eights,
                bool narrow, int64_t blocks, const struct quantise_fp8_args *k)
{
    gpu_put(
        context->stream, IMAGE, names->of[narrow][eights],
        &(struct gpu_launch){.grid = {(unsigned)blocks}, .block = {FP8_THREADS}, .overlaps = true},
        k);
}

/* First what finds amax where the scale is not known yet, then what makes codes. */
static void put_both(const struct op_context *context, const struct typed_names *amax,
                     const struct typed_names *codes, const struct matrix *from,
                     const struct quantise_fp8_args *k)
{
    enum { AMAX_BLOCKS = 264, EIGHT = 8 }; /* few: as a rule they have nothing to do */
    const bool eights = k->n % EIGHT == 0 && (k->m % EIGHT == 0 || !k->turned) &&
                        typed_aligned(k->from) && typed_aligned(k->y) && typed_aligned(k->out) &&
                        (uintptr_t)k->codes % EIGHT == 0 && (uintptr_t)k->turned % EIGHT == 0;
    const bool narrow = typed_narrow(from);
    const int64_t pieces = typed_pieces(k->m * k->n, (int64_t)FP8_THREADS * EIGHT);
    put(context, amax, eights, narrow, pieces < AMAX_BLOCKS ? pieces : AMAX_BLOCKS, k);
    put(context, codes, eights, narrow, typed_pieces(k->m, FP8_ROWS) * k->tiles, k);
}

static void run(const struct op_context *context, const void *args)
{
    static const struct typed_names amax = TYPED_NAMES("fp8_amax");
    static const struct typed_names to_e4m3 = TYPED_NAMES("quantise_e4m3");
    static const struct typed_names to_e5m2 = TYPED_NAMES("quantise_e5m2");
    const struct quantise_args *a = args;
    const struct quantise_fp8_args k = {.m = a->m,
                                        .n = a->n,
                                        .from = a->from.data,
                                        .codes = a->codes,
                                        .turned = a->codes_turned,
                                        .scale = (struct fp8_kernel_scale *)(void *)a->scale,
                                        .largest = fp8_largest(a->format),
                                        .tiles = (int32_t)typed_pieces(a->n, FP8_COLUMNS)};
    put_both(context, &amax, a->format == DTYPE_FP8_E4M3 ? &to_e4m3 : &to_e5m2, &a->from, &k);
}

static const unsigned typed[] = {1, 0};

const struct op_variant quantise_fp8_cuda = {
    .name = "quantise_fp8_cuda",
    .summary = "both layouts and the largest magnitude in one pass",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .typed = typed,
    .run = run,
    .images = {IMAGE},
};

/* ---- relu2_fp8 ---- */

static bool can_run_relu2(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct relu2_fp8_args *a = args;
    (void)device;
    if (a->format != (a->y.data ? DTYPE_FP8_E5M2 : DTYPE_FP8_E4M3))
        return typed_refuse(why, "activations in e4m3 and gradients in e5m2 alone");
    return fits(a->m, a->n, why);
}

static void run_relu2(const struct op_context *context, const void *args)
{
    static const struct typed_names amax = TYPED_NAMES("relu2_amax");
    static const struct typed_names codes = TYPED_NAMES("relu2_e4m3");
    static const struct typed_names amax_backward = TYPED_NAMES("relu2_backward_amax");
    static const struct typed_names codes_backward = TYPED_NAMES("relu2_backward_e5m2");
    const struct relu2_fp8_args *a = args;
    const bool backward = a->y.data != NULL;
    const struct quantise_fp8_args k = {.m = a->m,
                                        .n = a->n,
                                        .from = a->x.data,
                                        .y = a->y.data,
                                        .out = a->x.data,
                                        .codes = a->codes,
                                        .turned = a->codes_turned,
                                        .scale = (struct fp8_kernel_scale *)(void *)a->scale,
                                        .largest = fp8_largest(a->format),
                                        .tiles = (int32_t)typed_pieces(a->n, FP8_COLUMNS)};
    put_both(context, backward ? &amax_backward : &amax, backward ? &codes_backward : &codes, &a->x,
             &k);
}

static const unsigned typed_relu2[] = {3, 0}; /* both */

const struct op_variant relu2_fp8_cuda = {
    .name = "relu2_fp8_cuda",
    .summary = "one pass",
    .target = TARGET_CUDA,
    .can_run = can_run_relu2,
    .typed = typed_relu2,
    .run = run_relu2,
    .images = {IMAGE},
};

/* ---- delayed_scale ---- */

static void run_delayed(const struct op_context *context, const void *args)
{
    const struct delayed_scale_args *a = args;
    struct delayed_scale_kernel_args k = {.m = a->m, .n = a->n, .rows = a->rows.data};
    for (int i = 0; i < 3; i++) k.largest[i] = fp8_largest(a->formats[i]);
    gpu_put(context->stream, IMAGE, "delayed_scale",
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(a->m, FP8_THREADS)},
                                 .block = {FP8_THREADS},
                                 .overlaps = true},
            &k);
}

const struct op_variant delayed_scale_cuda = {
    .name = "delayed_scale_cuda",
    .summary = "a thread a row",
    .target = TARGET_CUDA,
    .run = run_delayed,
    .images = {IMAGE},
};
