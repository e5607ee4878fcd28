/* Variants of norms over rows and heads, of their gradients, and of smear. */
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "train/map_args.h"
#include "train/norms_args.h"

#define NORMS_IMAGE  "train/norms.cu"
#define ROTARY_IMAGE "train/rotary.cu"
#define SMEAR_IMAGE  "train/smear.cu"

/* Who has a row: a warp, a block, or a block that reads it twice. */
enum row_owner { OWNER_WARP, OWNER_BLOCK, OWNER_ANY };

static enum row_owner owner_of(int64_t n, bool aligned)
{
    if (n % 8 || !aligned || n > NORM_BLOCK_MAX) return OWNER_ANY;
    return n <= NORM_WARP_MAX ? OWNER_WARP : OWNER_BLOCK;
}

static void put_rows(const struct op_context *context, const char *const names[3],
                     enum row_owner owner, int64_t m, const void *k)
{
    const bool warps = owner == OWNER_WARP;
    gpu_put(context->stream, NORMS_IMAGE, names[owner],
            &(struct gpu_launch){.grid = {(unsigned)(warps ? typed_pieces(m, NORM_WARPS) : m)},
                                 .block = {warps ? NORM_WARPS * 32 : NORM_BLOCK_THREADS},
                                 .overlaps = true},
            k);
}

static void run_rmsnorm(const struct op_context *context, const void *args)
{
    static const char *const names[2][2][3] = {
        {{"rmsnorm_f32_warp", "rmsnorm_f32_block", "rmsnorm_f32_any"},
         {"rmsnorm_f32_bf16_warp", "rmsnorm_f32_bf16_block", "rmsnorm_f32_bf16_any"}},
        {{NULL}, {"rmsnorm_bf16_warp", "rmsnorm_bf16_block", "rmsnorm_bf16_any"}}};
    const struct rmsnorm_args *a = args;
    const struct norm_kernel_args k = {.m = a->m,
                                       .n = a->n,
                                       .x = a->x.data,
                                       .rows = a->rows,
                                       .gain = a->gain,
                                       .y = a->y.data,
                                       .eps = a->eps};
    const bool aligned = typed_aligned(k.x) && typed_aligned(k.gain) && typed_aligned(k.y);
    put_rows(context, names[typed_narrow(&a->x)][typed_narrow(&a->y)], owner_of(a->n, aligned),
             a->m, &k);
}

static const unsigned both[] = {3, 0}, all_three[] = {7, 0}, one[] = {1, 0};

const struct op_variant rmsnorm_cuda = {
    .name = "rmsnorm_cuda",
    .summary = "a row in the registers of a warp or a block",
    .target = TARGET_CUDA,
    .narrow = 1 << 1, /* y */
    .typed = both,
    .run = run_rmsnorm,
    .images = {NORMS_IMAGE},
};

static void run_add_rmsnorm(const struct op_context *context, const void *args)
{
    static const char *const names[2][2][3] = {
        {{"add_rmsnorm_f32_warp", "add_rmsnorm_f32_block", "add_rmsnorm_f32_any"},
         {"add_rmsnorm_f32_bf16_warp", "add_rmsnorm_f32_bf16_block", "add_rmsnorm_f32_bf16_any"}},
        {{NULL}, {"add_rmsnorm_bf16_warp", "add_rmsnorm_bf16_block", "add_rmsnorm_bf16_any"}}};
    const struct add_rmsnorm_args *a = args;
    const struct add_norm_kernel_args k = {.m = a->m,
                                           .n = a->n,
                                           .x = a->x.data,
                                           .add = a->add.data,
                                           .gain = a->gain,
                                           .sum = a->sum.data,
                                           .y = a->y.data,
                                           .copy = a->copy.data,
                                           .eps = a->eps};
    const bool aligned = typed_aligned(k.x) && typed_aligned(k.add) && typed_aligned(k.gain) &&
                         typed_aligned(k.sum) && typed_aligned(k.y) && typed_aligned(k.copy);
    put_rows(context, names[typed_narrow(&a->x)][typed_narrow(&a->y)], owner_of(a->n, aligned),
             a->m, &k);
}

static bool can_add_rmsnorm(const void *args, const struct op_device *device,
                            char why[OP_REASON_MAX])
{
    const struct add_rmsnorm_args *a = args;
    (void)device;
    const bool same = !a->copy.data || a->copy.dtype == a->y.dtype;
    return same || typed_refuse(why, "a copy of another type than y");
}

/* All in bf16, without a copy or with one; or x and sum alone in float32. */
static const unsigned add_rmsnorm_typed[] = {15, 31, 26, 10, 0};

const struct op_variant add_rmsnorm_cuda = {
    .name = "add_rmsnorm_cuda",
    .summary = "a row in the registers of a warp or a block",
    .target = TARGET_CUDA,
    .typed = add_rmsnorm_typed,
    .can_run = can_add_rmsnorm,
    .run = run_add_rmsnorm,
    .images = {NORMS_IMAGE},
};

static size_t rmsnorm_backward_workspace(const void *args, int workers)
{
    const struct rmsnorm_backward_args *a = args;
    (void)workers;
    return a->dgain ? (size_t)(a->m + a->n * GAIN_STRIPES) * sizeof(float) : 0;
}

static void run_rmsnorm_backward(const struct op_context *context, const void *args)
{
    static const char *const names[2][3] = {
        {"rmsnorm_backward_f32_warp", "rmsnorm_backward_f32_block", "rmsnorm_backward_f32_any"},
        {"rmsnorm_backward_bf16_warp", "rmsnorm_backward_bf16_block", "rmsnorm_backward_bf16_any"}};
    const struct rmsnorm_backward_args *a = args;
    float *workspace = context->workspace;
    const struct norm_backward_kernel_args k = {.m = a->m,
                                                .n = a->n,
                                                .x = a->x.data,
                                                .dy = a->dy.data,
                                                .gain = a->gain,
                                                .dx = a->dx.data,
                                                .rstd = a->dgain ? workspace : NULL,
                                                .partials = a->dgain ? workspace + a->m : NULL,
                                                .eps = a->eps};
    const bool narrow = typed_narrow(&a->dx);
    const bool aligned =
        typed_aligned(k.x) && typed_aligned(k.dy) && typed_aligned(k.gain) && typed_aligned(k.dx);
    put_rows(context, names[narrow], owner_of(a->n, aligned), a->m, &k);
    if (!a->dgain) return;
    gpu_put(context->stream, NORMS_IMAGE, narrow ? "gain_backward_bf16" : "gain_backward_f32",
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(a->n, GAIN_THREADS), GAIN_STRIPES},
                                 .block = {GAIN_THREADS},
                                 .overlaps = true},
            &k);
    typed_finish(context,
                 &(struct finish_kernel_args){.partials = k.partials,
                                              .parts = GAIN_STRIPES,
                                              .n_first = a->n,
                                              .first = a->dgain,
                                              .factor_first = 1},
                 a->n);
}

const struct op_variant rmsnorm_backward_cuda = {
    .name = "rmsnorm_backward_cuda",
    .summary = "a row in the registers of a warp or a block",
    .target = TARGET_CUDA,
    .typed = all_three,
    .workspace = rmsnorm_backward_workspace,
    .run = run_rmsnorm_backward,
    .images = {NORMS_IMAGE, TYPED_FINISH_IMAGE},
};

/* ---- rotary_norm ---- */

/* Threads that share a head: a power of two, at most a warp. 0: it is of another size. */
static int64_t lanes_of_head(int64_t head_dim)
{
    const int64_t lanes = head_dim / 2 / ROTARY_PIECE;
    const bool whole = head_dim % (2 * ROTARY_PIECE) == 0 && head_dim <= ROTARY_DIM_MAX;
    return whole && (lanes & (lanes - 1)) == 0 ? lanes : 0;
}

/* So many rows a block that most of its threads have something to do. */
static void put_rotary(const struct op_context *context, const char *held, const char *any,
                       bool aligned, struct rotary_kernel_args *k)
{
    const int64_t lanes = aligned ? lanes_of_head(k->head_dim) : 0, of_row = k->n_heads * lanes;
    if (!lanes) {
        gpu_put(context->stream, ROTARY_IMAGE, any,
                &(struct gpu_launch){
                    .grid = {(unsigned)typed_pieces(k->m * k->n_heads, ROTARY_ANY_THREADS / 32)},
                    .block = {ROTARY_ANY_THREADS},
                    .overlaps = true},
                k);
        return;
    }
    const int64_t rows = ROTARY_THREADS_MAX / of_row;
    k->rows = (int32_t)(rows < 1 ? 1 : rows > ROTARY_ROWS_MAX ? ROTARY_ROWS_MAX : rows);
    gpu_put(context->stream, ROTARY_IMAGE, held,
            &(struct gpu_launch){.grid = {(unsigned)typed_pieces(k->m, k->rows)},
                                 .block = {typed_threads(k->rows * of_row, ROTARY_THREADS_MAX)},
                                 .overlaps = true},
            k);
}

static void run_rotary_norm(const struct op_context *context, const void *args)
{
    static const char *const held[] = {"rotary_norm_f32_held", "rotary_norm_bf16_held"};
    static const char *const any[] = {"rotary_norm_f32_any", "rotary_norm_bf16_any"};
    const struct rotary_norm_args *a = args;
    struct rotary_kernel_args k = {.m = a->m,
                                   .n_heads = a->n_heads,
                                   .head_dim = a->head_dim,
                                   .position = a->batch->position,
                                   .inv_freq = a->inv_freq,
                                   .x = a->x.data,
                                   .rstd = a->rstd,
                                   .scale = a->scale,
                                   .eps = a->eps,
                                   .rounded = a->rounded};
    const bool narrow = typed_narrow(&a->x);
    put_rotary(context, held[narrow], any[narrow], typed_aligned(k.x), &k);
}

const struct op_variant rotary_norm_cuda = {
    .name = "rotary_norm_cuda",
    .summary = "heads in registers, rotations once a row",
    .target = TARGET_CUDA,
    .typed = one,
    .run = run_rotary_norm,
    .images = {ROTARY_IMAGE},
};

static void run_rotary_norm_backward(const struct op_context *context, const void *args)
{
    static const char *const held[] = {"rotary_norm_backward_f32_held",
                                       "rotary_norm_backward_bf16_held"};
    static const char *const any[] = {"rotary_norm_backward_f32_any",
                                      "rotary_norm_backward_bf16_any"};
    const struct rotary_norm_backward_args *a = args;
    struct rotary_kernel_args k = {.m = a->m,
                                   .n_heads = a->n_heads,
                                   .head_dim = a->head_dim,
                                   .position = a->batch->position,
                                   .inv_freq = a->inv_freq,
                                   .x = a->y.data,
                                   .d = a->d.data,
                                   .rstd = (float *)(uintptr_t)a->rstd,
                                   .scale = a->scale,
                                   .eps = a->eps,
                                   .rounded = a->rounded};
    const bool narrow = typed_narrow(&a->d);
    put_rotary(context, held[narrow], any[narrow], typed_aligned(k.x) && typed_aligned(k.d), &k);
}

const struct op_variant rotary_norm_backward_cuda = {
    .name = "rotary_norm_backward_cuda",
    .summary = "heads in registers, rotations once a row",
    .target = TARGET_CUDA,
    .typed = both,
    .run = run_rotary_norm_backward,
    .images = {ROTARY_IMAGE},
};

/* ---- smear ---- */

static void put_smear(const struct op_context *context, const struct typed_names *names,
                      bool narrow, unsigned blocks, const struct smear_kernel_args *k)
{
    const bool eights =
        k->n % 8 == 0 && typed_aligned(k->x) && typed_aligned(k->dy) && typed_aligned(k->out);
    gpu_put(context->stream, SMEAR_IMAGE, names->of[narrow][eights],
            &(struct gpu_launch){.grid = {blocks}, .block = {SMEAR_WARPS * 32}, .overlaps = true},
            k);
}

static void run_smear(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("smear");
    const struct smear_args *a = args;
    const struct smear_kernel_args k = {.sequences = a->sequences,
                                        .length = a->length,
                                        .n = a->n,
                                        .channels = a->channels,
                                        .lambda = a->lambda,
                                        .gate = a->gate,
                                        .x = a->x.data,
                                        .out = a->y.data};
    put_smear(context, &names, typed_narrow(&a->y),
              (unsigned)typed_pieces(a->sequences * a->length, SMEAR_WARPS), &k);
}

const struct op_variant smear_cuda = {
    .name = "smear_cuda",
    .summary = "a warp a row",
    .target = TARGET_CUDA,
    .typed = both,
    .run = run_smear,
    .images = {SMEAR_IMAGE},
};

static bool can_smear_backward(const void *args, const struct op_device *device,
                               char why[OP_REASON_MAX])
{
    const struct smear_backward_args *a = args;
    (void)device;
    return a->channels <= SMEAR_CHANNELS_MAX || typed_refuse(why, "too many channels");
}

static unsigned smear_blocks(const struct smear_backward_args *a)
{
    const int64_t blocks = typed_pieces(a->sequences * a->length, SMEAR_WARPS);
    return (unsigned)(blocks < SMEAR_BLOCKS ? blocks : SMEAR_BLOCKS);
}

static size_t smear_backward_workspace(const void *args, int workers)
{
    const struct smear_backward_args *a = args;
    (void)workers;
    return (size_t)(1 + a->channels) * smear_blocks(a) * sizeof(float);
}

static void run_smear_backward(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("smear_backward");
    const struct smear_backward_args *a = args;
    const unsigned blocks = smear_blocks(a);
    const struct smear_kernel_args k = {.sequences = a->sequences,
                                        .length = a->length,
                                        .n = a->n,
                                        .channels = a->channels,
                                        .lambda = a->lambda,
                                        .gate = a->gate,
                                        .x = a->x.data,
                                        .dy = a->dy.data,
                                        .out = a->dx.data,
                                        .partials = context->workspace};
    put_smear(context, &names, typed_narrow(&a->dx), blocks, &k);
    typed_finish(context,
                 &(struct finish_kernel_args){.partials = k.partials,
                                              .parts = blocks,
                                              .n_first = 1,
                                              .first = a->dlambda,
                                              .second = a->dgate,
                                              .factor_first = 1,
                                              .factor_second = 1},
                 1 + a->channels);
}

const struct op_variant smear_backward_cuda = {
    .name = "smear_backward_cuda",
    .summary = "a warp a row, partial sums of each block",
    .target = TARGET_CUDA,
    .typed = all_three,
    .can_run = can_smear_backward,
    .workspace = smear_backward_workspace,
    .run = run_smear_backward,
    .images = {SMEAR_IMAGE, TYPED_FINISH_IMAGE},
};
