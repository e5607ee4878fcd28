/* Variants of the loss and of what the optimizers do. */
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "train/loss_args.h"
#include "train/optimizer_args.h"

#define LOSS_IMAGE  "train/loss.cu"
#define ADAMW_IMAGE "train/optimizer.cu"
#define MUON_IMAGE  "train/muon.cu"

static const unsigned one[] = {1, 0}, all_four[] = {15, 0};

/* ---- cross_entropy ---- */

/* The kernel for rows of this length, and its threads. */
static const char *loss_kernel(const struct cross_entropy_args *a, unsigned *threads)
{
    const bool narrow = typed_narrow(&a->logits), capped = a->cap > 0;
    const int64_t cols = a->logits.cols;
    const bool bounded = !capped || a->cap <= LOSS_CAP_MAX;
    const bool held = cols % 8 == 0 && typed_aligned(a->logits.data) && bounded;
    *threads = LOSS_THREADS;
    if (held && cols <= LOSS_MAX && narrow) return capped ? "loss_bf16_capped" : "loss_bf16_free";
    if (held && cols <= LOSS_MAX) return capped ? "loss_f32_capped" : "loss_f32_free";
    if (!held || cols > LOSS_MAX_LONG || !narrow) return narrow ? "loss_bf16_any" : "loss_f32_any";
    *threads = LOSS_THREADS_LONG;
    return capped ? "loss_bf16_capped_long" : "loss_bf16_free_long";
}

static void run_cross_entropy(const struct op_context *context, const void *args)
{
    const struct cross_entropy_args *a = args;
    const struct loss_kernel_args k = {.vocab = a->vocab,
                                       .cols = a->logits.cols,
                                       .target = a->target,
                                       .scale = a->scale,
                                       .logits = a->logits.data,
                                       .nll = a->nll,
                                       .cap = a->cap,
                                       .gradient = a->gradient};
    unsigned threads;
    const char *function = loss_kernel(a, &threads);
    gpu_put(context->stream, LOSS_IMAGE, function,
            &(struct gpu_launch){.grid = {(unsigned)a->m}, .block = {threads}, .overlaps = true},
            &k);
}

const struct op_variant cross_entropy_cuda = {
    .name = "cross_entropy_cuda",
    .summary = "a block a row, which it keeps in registers",
    .target = TARGET_CUDA,
    .typed = one,
    .run = run_cross_entropy,
    .images = {LOSS_IMAGE},
};

/* ---- adamw ---- */

static void run_adamw(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("adamw");
    const struct adamw_args *a = args;
    const struct adamw_kernel_args k = {.count = a->m * a->n,
                                        .step = (const struct adamw_kernel_step *)a->step,
                                        .clip = a->clip,
                                        .p = a->p.data,
                                        .g = a->g.data,
                                        .mean = a->mean.data,
                                        .square = a->square.data};
    _Static_assert(sizeof(struct adamw_kernel_step) == sizeof(struct adamw_step), "the same");
    const bool eights = k.count % 8 == 0 && typed_aligned(k.p) && typed_aligned(k.g) &&
                        typed_aligned(k.mean) && typed_aligned(k.square);
    const int64_t of_block = (int64_t)OPTIMIZER_THREADS * (eights ? 8 : 1);
    gpu_put(context->stream, ADAMW_IMAGE, names.of[typed_narrow(&a->p)][eights],
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(k.count, of_block)},
                                 .block = {OPTIMIZER_THREADS},
                                 .overlaps = true},
            &k);
}

const struct op_variant adamw_cuda = {
    .name = "adamw_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = all_four,
    .run = run_adamw,
    .images = {ADAMW_IMAGE},
};

/* ---- muon ---- */

/* A block a row of all matrices. */
static void put_muon(const struct op_context *context, const char *function, int64_t rows,
                     int64_t cols, bool eights, const void *k)
{
    gpu_put(context->stream, MUON_IMAGE, function,
            &(struct gpu_launch){
                .grid = {(unsigned)rows},
                .block = {typed_threads(typed_pieces(cols, eights ? 8 : 1), OPTIMIZER_THREADS)},
                .overlaps = true},
            k);
}

static void put_lines(const struct op_context *context, const char *function, int64_t count,
                      const void *k)
{
    gpu_put(context->stream, MUON_IMAGE, function,
            &(struct gpu_launch){
                .grid = {(unsigned)count}, .block = {MUON_LINES_THREADS}, .overlaps = true},
            k);
}

static size_t muon_prepare_workspace(const void *args, int workers)
{
    const struct muon_prepare_args *a = args;
    (void)workers;
    return (size_t)(a->count * a->rows) * sizeof(float);
}

static void run_muon_prepare(const struct op_context *context, const void *args)
{
    static const struct typed_names direction = TYPED_NAMES("muon_direction");
    const struct muon_prepare_args *a = args;
    const struct muon_prepare_kernel_args k = {.rows = a->rows,
                                               .cols = a->cols,
                                               .step = (const struct muon_kernel_step *)a->step,
                                               .clip = a->clip,
                                               .g = a->g.data,
                                               .momentum = a->momentum.data,
                                               .x = a->x.data,
                                               .factors = context->workspace,
                                               .equilibrate = (a->features & MUON_EQUILIBRATE) != 0,
                                               .margin = a->margin,
                                               .tiny = a->tiny};
    _Static_assert(sizeof(struct muon_kernel_step) == sizeof(struct muon_step), "the same");
    const bool eights =
        a->cols % 8 == 0 && typed_aligned(k.g) && typed_aligned(k.momentum) && typed_aligned(k.x);
    const int64_t rows = a->count * a->rows;
    put_muon(context, eights ? "muon_momentum_x8" : "muon_momentum_x1", rows, a->cols, eights, &k);
    put_lines(context, "muon_row_factors", a->count, &k);
    put_muon(context, direction.of[typed_narrow(&a->x)][eights], rows, a->cols, eights, &k);
}

static const unsigned muon_prepare_typed[] = {4, 0};

const struct op_variant muon_prepare_cuda = {
    .name = "muon_prepare_cuda",
    .summary = "a block a row, twice",
    .target = TARGET_CUDA,
    .typed = muon_prepare_typed,
    .workspace = muon_prepare_workspace,
    .run = run_muon_prepare,
    .images = {MUON_IMAGE},
};

/* Factors of lines, and where these are columns their partial sums, which 16-byte pieces reach. */
static size_t muon_apply_workspace(const void *args, int workers)
{
    const struct muon_apply_args *a = args;
    const int64_t lines = a->rows >= a->cols ? a->rows : MUON_STRIPES * a->cols + a->cols;
    (void)workers;
    return (size_t)(a->count * lines) * sizeof(float);
}

static void put_line_factors(const struct op_context *context, const struct muon_apply_args *a,
                             bool eights, const struct muon_apply_kernel_args *k)
{
    static const struct typed_names rows = TYPED_NAMES("muon_row_squares");
    static const struct typed_names columns = TYPED_NAMES("muon_column_squares");
    const bool narrow = typed_narrow(&a->x);
    const int64_t pieces = typed_pieces(a->cols, eights ? 8 : 1);
    const unsigned threads = typed_threads(pieces, OPTIMIZER_THREADS);
    if (a->rows >= a->cols)
        put_muon(context, rows.of[narrow][eights], a->count * a->rows, a->cols, eights, k);
    else
        gpu_put(context->stream, MUON_IMAGE, columns.of[narrow][eights],
                &(struct gpu_launch){.grid = {(unsigned)typed_pieces(pieces, threads),
                                              MUON_STRIPES * (unsigned)a->count},
                                     .block = {threads},
                                     .overlaps = true},
                k);
    put_lines(context, "muon_line_factors", a->count, k);
}

static void run_muon_apply(const struct op_context *context, const void *args)
{
    static const struct typed_names step = TYPED_NAMES("muon_step_row");
    const struct muon_apply_args *a = args;
    const bool wide = a->rows < a->cols, scaled = a->features & (MUON_SNAP | MUON_SECOND);
    float *partials = context->workspace;
    const struct muon_apply_kernel_args k = {
        .rows = a->rows,
        .cols = a->cols,
        .step = (const struct muon_kernel_step *)a->step,
        .x = a->x.data,
        .second = a->features & MUON_SECOND ? a->second : NULL,
        .p = a->p.data,
        .partials = partials,
        .factors = !scaled ? NULL : partials + (wide ? a->count * MUON_STRIPES * a->cols : 0),
        .snap = (a->features & MUON_SNAP) != 0};
    const bool eights = a->cols % 8 == 0 && typed_aligned(k.x) && typed_aligned(k.p);
    if (scaled) put_line_factors(context, a, eights, &k);
    put_muon(context, step.of[typed_narrow(&a->x)][eights], a->count * a->rows, a->cols, eights,
             &k);
}

const struct op_variant muon_apply_cuda = {
    .name = "muon_apply_cuda",
    .summary = "sums of rows or columns, then a block a row",
    .target = TARGET_CUDA,
    .typed = one,
    .workspace = muon_apply_workspace,
    .run = run_muon_apply,
    .images = {MUON_IMAGE},
};
