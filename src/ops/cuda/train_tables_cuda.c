/* Variants of ops on rows of tables that tokens choose, and of their gradients. */
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/cuda/typed_cuda.h"
#include "train/map_args.h"
#include "train/tables_args.h"

#define TABLES_IMAGE  "train/tables.cu"
#define SCATTER_IMAGE "train/scatter.cu"

/* Rows of float32 or bf16. */
static bool has_numbers(const struct tensor *table)
{
    return table->layout == LAYOUT_ROWS &&
           (table->dtype == DTYPE_F32 || table->dtype == DTYPE_BF16);
}

static unsigned row_threads(int64_t n, bool eights)
{
    return typed_threads(typed_pieces(n, eights ? 8 : 1), TABLE_THREADS_MAX);
}

/* ---- embed ---- */

static bool can_embed(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return has_numbers(&((const struct embed_args *)args)->table) ||
           typed_refuse(why, "a table that is neither float32 nor bf16");
}

static void run_embed(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("look_up");
    const struct embed_args *a = args;
    const int64_t n = a->table.cols;
    const struct lookup_kernel_args k = {.m = a->m,
                                         .n = n,
                                         .token = a->batch->token,
                                         .table = a->table.data,
                                         .x = a->x.data,
                                         .narrow = a->table.dtype == DTYPE_BF16};
    const bool eights = n % 8 == 0 && typed_aligned(k.table) && typed_aligned(k.x);
    gpu_put(context->stream, TABLES_IMAGE, names.of[typed_narrow(&a->x)][eights],
            &(struct gpu_launch){
                .grid = {(unsigned)a->m}, .block = {row_threads(n, eights)}, .overlaps = true},
            &k);
}

static const unsigned one[] = {1, 0}, both[] = {3, 0}, four[] = {15, 0};

const struct op_variant embed_cuda = {
    .name = "embed_cuda",
    .summary = "pieces of 16 bytes",
    .target = TARGET_CUDA,
    .typed = one,
    .can_run = can_embed,
    .run = run_embed,
    .images = {TABLES_IMAGE},
};

/* ---- gated_embed ---- */

static bool can_gated_embed(const void *args, const struct op_device *device,
                            char why[OP_REASON_MAX])
{
    const struct gated_embed_args *a = args;
    (void)device;
    if (a->gate.rows > GATED_HEADS_MAX) return typed_refuse(why, "too many heads");
    if (a->gate.layout != LAYOUT_ROWS) return typed_refuse(why, "gates in tiles");
    return few_rows_any(&a->table, why) && few_rows_any(&a->gate, why);
}

static void run_gated_embed(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("add_gated");
    const struct gated_embed_args *a = args;
    const struct gated_kernel_args k = {.m = a->m,
                                        .n = a->n,
                                        .heads = a->gate.rows,
                                        .channels = a->gate.cols,
                                        .x_cols = a->x.cols,
                                        .token = a->previous ? a->batch->previous : a->batch->token,
                                        .lambda = a->lambda,
                                        .table = a->table.data,
                                        .table_scales = a->table.scales,
                                        .gate = a->gate.data,
                                        .x = a->x.data,
                                        .y = a->y.data,
                                        .table_type = tensor_kernel_type(&a->table),
                                        .gate_type = tensor_kernel_type(&a->gate),
                                        .scale = a->scale,
                                        .eps = a->eps,
                                        .normed = a->normed};
    const bool eights = has_numbers(&a->table) && a->n / a->gate.rows % 8 == 0 &&
                        typed_aligned(k.table) && typed_aligned(k.y);
    gpu_put(context->stream, TABLES_IMAGE, names.of[typed_narrow(&a->y)][eights],
            &(struct gpu_launch){
                .grid = {(unsigned)a->m}, .block = {row_threads(a->n, eights)}, .overlaps = true},
            &k);
}

const struct op_variant gated_embed_cuda = {
    .name = "gated_embed_cuda",
    .summary = "a block a row, any table",
    .target = TARGET_CUDA,
    .typed = both,
    .can_run = can_gated_embed,
    .run = run_gated_embed,
    .images = {TABLES_IMAGE},
};

/* ---- rows added up by token ---- */

static size_t scatter_workspace(int64_t m, int64_t n)
{
    return (size_t)(typed_pieces(m, STRETCH) * 2 * n) * sizeof(float);
}

static void put_scatter(const struct op_context *context, bool narrow, bool eights,
                        const struct scatter_kernel_args *k)
{
    static const struct typed_names names = TYPED_NAMES("scatter");
    static const struct typed_names partial = TYPED_NAMES("scatter_partial");
    const unsigned threads = row_threads(k->n, eights);
    const struct gpu_launch launch = {
        .grid = {(unsigned)typed_pieces(k->m, STRETCH),
                 (unsigned)typed_pieces(k->n, (eights ? 8 : 1) * (int64_t)threads)},
        .block = {threads},
        .overlaps = true};
    gpu_put(context->stream, SCATTER_IMAGE, names.of[narrow][eights], &launch, k);
    if (launch.grid[0] > 1)
        gpu_put(context->stream, SCATTER_IMAGE, partial.of[narrow][eights], &launch, k);
}

static size_t embed_backward_workspace(const void *args, int workers)
{
    const struct embed_backward_args *a = args;
    (void)workers;
    return scatter_workspace(a->m, a->n);
}

static void run_embed_backward(const struct op_context *context, const void *args)
{
    const struct embed_backward_args *a = args;
    const struct scatter_kernel_args k = {.m = a->m,
                                          .n = a->n,
                                          .token = a->batch->token,
                                          .order = a->order,
                                          .d = a->d.data,
                                          .dtable = a->dtable.data,
                                          .partials = context->workspace};
    const bool eights = a->n % 8 == 0 && typed_aligned(k.d) && typed_aligned(k.dtable);
    put_scatter(context, typed_narrow(&a->d), eights, &k);
}

const struct op_variant embed_backward_cuda = {
    .name = "embed_backward_cuda",
    .summary = "a block a stretch of rows by token; partial sums where a token goes on",
    .target = TARGET_CUDA,
    .typed = both,
    .workspace = embed_backward_workspace,
    .run = run_embed_backward,
    .images = {SCATTER_IMAGE},
};

/* ---- gated_embed_backward ---- */

static bool gated_eights(const struct gated_embed_backward_args *a)
{
    return a->n / a->gate.rows % 8 == 0 && typed_aligned(a->table.data) &&
           typed_aligned(a->dy.data) && typed_aligned(a->dtable.data);
}

static bool can_gated_embed_backward(const void *args, const struct op_device *device,
                                     char why[OP_REASON_MAX])
{
    const struct gated_embed_backward_args *a = args;
    (void)device;
    if (!has_numbers(&a->table))
        return typed_refuse(why, "a table that is neither float32 nor bf16");
    if (a->gate.rows > GATED_SLOPES_MAX) return typed_refuse(why, "too many heads");
    if (a->gate.rows * a->gate.cols > GATED_HELD_MANY * 32)
        return typed_refuse(why, "too many weights of gates");
    return a->n <= GATED_PIECES_MAX * (gated_eights(a) ? 8 : 1) ||
           typed_refuse(why, "rows too long");
}

static unsigned gated_blocks(const struct gated_embed_backward_args *a)
{
    const int64_t blocks = typed_pieces(a->m, GATED_WARPS);
    return (unsigned)(blocks < GATED_BLOCKS ? blocks : GATED_BLOCKS);
}

/* The weights of rows, the partial sums of dgate, those of the table. */
static size_t gated_embed_backward_workspace(const void *args, int workers)
{
    const struct gated_embed_backward_args *a = args;
    const int64_t gates = a->gate.rows * a->gate.cols;
    (void)workers;
    return scatter_workspace(a->m, a->n) +
           (size_t)(a->m * a->gate.rows + gates * gated_blocks(a)) * sizeof(float);
}

static void put_gates(const struct op_context *context, const struct gated_embed_backward_args *a,
                      float *weights, float *partials)
{
    static const struct typed_names few = TYPED_NAMES("gates_backward");
    static const struct typed_names many = TYPED_NAMES("gates_backward_many");
    const int64_t gates = a->gate.rows * a->gate.cols;
    const bool eights = gated_eights(a);
    const struct gated_backward_kernel_args k = {.m = a->m,
                                                 .n = a->n,
                                                 .heads = a->gate.rows,
                                                 .channels = a->gate.cols,
                                                 .x_cols = a->x.cols,
                                                 .token = a->batch->token,
                                                 .table = a->table.data,
                                                 .gate = a->gate.data,
                                                 .x = a->x.data,
                                                 .dy = a->dy.data,
                                                 .dx = a->dx.data,
                                                 .weights = weights,
                                                 .partials = partials,
                                                 .scale = a->scale,
                                                 .narrow = a->table.dtype == DTYPE_BF16};
    const struct typed_names *names = gates <= GATED_HELD_FEW * 32 ? &few : &many;
    gpu_put(context->stream, SCATTER_IMAGE, names->of[typed_narrow(&a->dy)][eights],
            &(struct gpu_launch){
                .grid = {gated_blocks(a)}, .block = {GATED_WARPS * 32}, .overlaps = true},
            &k);
    typed_finish(context,
                 &(struct finish_kernel_args){.partials = partials,
                                              .parts = gated_blocks(a),
                                              .n_first = gates,
                                              .first = a->dgate,
                                              .factor_first = 1},
                 gates);
}

static void run_gated_embed_backward(const struct op_context *context, const void *args)
{
    const struct gated_embed_backward_args *a = args;
    float *partials = context->workspace; /* of the table, aligned */
    float *weights = partials + scatter_workspace(a->m, a->n) / sizeof(float);
    put_gates(context, a, weights, weights + a->m * a->gate.rows);
    put_scatter(context, typed_narrow(&a->dy), gated_eights(a),
                &(struct scatter_kernel_args){.m = a->m,
                                              .n = a->n,
                                              .heads = a->gate.rows,
                                              .token = a->batch->token,
                                              .order = a->order,
                                              .d = a->dy.data,
                                              .weights = weights,
                                              .dtable = a->dtable.data,
                                              .partials = partials});
}

const struct op_variant gated_embed_backward_cuda = {
    .name = "gated_embed_backward_cuda",
    .summary = "gates a block a row; then a block a stretch of rows by token",
    .target = TARGET_CUDA,
    .typed = four,
    .can_run = can_gated_embed_backward,
    .workspace = gated_embed_backward_workspace,
    .run = run_gated_embed_backward,
    .images = {SCATTER_IMAGE, TYPED_FINISH_IMAGE},
};
