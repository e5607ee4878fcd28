/* quantise to FP8, and delayed_scale. */
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "ops/quantise.h"
#include "quantise/quantise_fp8_args.h"

#define IMAGE "quantise/quantise_fp8.cu"

_Static_assert(sizeof(struct fp8_kernel_scale) == sizeof(struct quantise_scale), "the same");

/* ---- quantise ---- */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct quantise_args *a = args;
    (void)device;
    if (a->format != DTYPE_FP8_E4M3 && a->format != DTYPE_FP8_E5M2)
        return typed_refuse(why, "of FP8 alone");
    if (a->to.data) return typed_refuse(why, "makes codes alone");
    const int64_t tiles = typed_pieces(a->m, FP8_TILE) * typed_pieces(a->n, FP8_TILE);
    if (tiles > INT32_MAX) return typed_refuse(why, "a matrix that is too large");
    return true;
}

static void put(const struct op_context *context, const struct typed_names *names, bool eights,
                bool narrow, int64_t blocks, const struct quantise_fp8_args *k)
{
    gpu_put(
        context->stream, IMAGE, names->of[narrow][eights],
        &(struct gpu_launch){.grid = {(unsigned)blocks}, .block = {FP8_THREADS}, .overlaps = true},
        k);
}

static void run(const struct op_context *context, const void *args)
{
    enum { AMAX_BLOCKS = 1024 }; /* several for each multiprocessor */
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
                                        .tiles = (int32_t)typed_pieces(a->n, FP8_TILE)};
    const bool eights = a->n % 8 == 0 && (a->m % 8 == 0 || !a->codes_turned) &&
                        typed_aligned(k.from) && (uintptr_t)k.codes % 8 == 0 &&
                        (uintptr_t)k.turned % 8 == 0;
    const bool narrow = typed_narrow(&a->from);
    const int64_t pieces = typed_pieces(a->m * a->n, (int64_t)FP8_THREADS * (eights ? 8 : 1));
    put(context, &amax, eights, narrow, pieces < AMAX_BLOCKS ? pieces : AMAX_BLOCKS, &k);
    put(context, a->format == DTYPE_FP8_E4M3 ? &to_e4m3 : &to_e5m2, eights, narrow,
        typed_pieces(a->m, FP8_TILE) * k.tiles, &k);
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
