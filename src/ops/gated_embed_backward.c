/* gated_embed_backward: gradients of value embeddings, of their gates, and of what opens those. */
#include <math.h>

#include "ops/ops.h"
#include "ops/token_order.h"

#define OP_LIST "ops/gated_embed_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct gated_embed_backward_args *a = args;
    const double row = (double)dtype_row_bytes(a->table.dtype, a->n);
    return (struct op_cost){5 * (double)(a->m * a->n),
                            (double)a->m * row + 3 * matrix_bytes(&a->dy) + 8 * (double)a->m};
}

/* sigmoid of a row's gate, and what its slope makes of `along` = dy . table row. */
struct gate {
    double open, slope;
};

static struct gate gate_of(const struct gated_embed_backward_args *a, int64_t i, int64_t h)
{
    const float *x = matrix_floats(&a->x) + i * a->x.cols;
    const float *weights = (const float *)a->gate.data + h * a->gate.cols;
    double sum = 0;
    for (int64_t j = 0; j < a->gate.cols; j++) sum += (double)weights[j] * (double)x[j];
    const double open = 1 / (1 + exp(-sum));
    return (struct gate){open, open * (1 - open)};
}

static double value_at(const struct gated_embed_backward_args *a, int32_t token, int64_t j)
{
    const struct dtype_info *info = dtype_info(a->table.dtype);
    float value;
    info->decode((const char *)a->table.data + (size_t)(token * a->n + j) * info->block_bytes,
                 &value, 1);
    return (double)value;
}

static void gate_gradients(const struct gated_embed_backward_args *a, int64_t h, double *dgate)
{
    const int64_t width = a->n / a->gate.rows, channels = a->gate.cols;
    for (int64_t j = 0; j < channels; j++) dgate[j] = 0;
    for (int64_t i = 0; i < a->m; i++) {
        const float *x = matrix_floats(&a->x) + i * a->x.cols;
        const float *dy = matrix_floats(&a->dy) + i * a->n + h * width;
        float *dx = matrix_floats(&a->dx) + i * a->dx.cols;
        double along = 0;
        for (int64_t j = 0; j < width; j++)
            along += (double)dy[j] * value_at(a, a->batch->token[i], h * width + j);
        const double d = (double)a->scale * gate_of(a, i, h).slope * along;
        for (int64_t j = 0; j < channels; j++) {
            dgate[j] += d * (double)x[j];
            dx[j] = (float)((double)dx[j] +
                            d * (double)((const float *)a->gate.data)[h * channels + j]);
        }
    }
    for (int64_t j = 0; j < channels; j++)
        a->dgate[h * channels + j] = (float)((double)a->dgate[h * channels + j] + dgate[j]);
}

static size_t reference_workspace(const void *args, int workers)
{
    const struct gated_embed_backward_args *a = args;
    (void)workers;
    return (size_t)(a->n + a->gate.cols) * sizeof(double);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct gated_embed_backward_args *a = args;
    const int64_t width = a->n / a->gate.rows;
    double *sum = context->workspace;
    for (int64_t i = 0, next; i < a->m; i = next) {
        const int32_t token = a->batch->token[a->order[i]];
        float *row = matrix_floats(&a->dtable) + token * a->n;
        for (int64_t j = 0; j < a->n; j++) sum[j] = (double)row[j];
        for (next = i; next < a->m && a->batch->token[a->order[next]] == token; next++) {
            const int64_t r = a->order[next];
            const float *dy = matrix_floats(&a->dy) + r * a->n;
            for (int64_t h = 0; h < a->gate.rows; h++) {
                const double weight = (double)a->scale * gate_of(a, r, h).open;
                for (int64_t j = h * width; j < (h + 1) * width; j++)
                    sum[j] += weight * (double)dy[j];
            }
        }
        for (int64_t j = 0; j < a->n; j++) row[j] = (float)sum[j];
    }
    for (int64_t h = 0; h < a->gate.rows; h++) gate_gradients(a, h, sum + a->n);
}

static void make(struct case_maker *c, const struct op_problem *p, int64_t vocab,
                 struct gated_embed_backward_args *a)
{
    struct batch *batch = case_batch(c, p->rows, 2, 1, vocab);
    *a = (struct gated_embed_backward_args){
        .m = p->rows,
        .n = p->n,
        .scale = 3,
        .batch = batch,
        .order = case_tokens(c, batch, p->rows, vocab),
        .table =
            case_tensor(c, p->dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32, 1, vocab, p->n, 1.0f),
        .gate = case_tensor(c, DTYPE_F32, 1, p->groups, p->k, 0.5f),
        .x = case_rows(c, p->rows, p->k + p->top_k, 1.0f),
        .dy = case_rows(c, p->rows, p->n, 1.0f),
        .dx = case_rows(c, p->rows, p->k + p->top_k, 1.0f),
        .dgate = case_vector(c, p->groups * p->k, 1.0f),
        .dtable = case_rows(c, vocab, p->n, 1.0f),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    enum { TIMED_VOCAB = 32768 };
    struct op_problem wide = *p;
    wide.top_k = p->n - p->k; /* x is the whole row */
    make(c, &wide, TIMED_VOCAB, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 9) return false;
    const int64_t many = c->index == 8 ? 1100 : c->index >= 6 ? 200 : 0;
    const struct op_problem p = {.rows = many ? rng_range(c->rng, many, many + 100)
                                              : case_size(c, 1, 20),
                                 .dtype = c->index % 2 ? DTYPE_BF16 : DTYPE_F32,
                                 .n = 32 * rng_range(c->rng, 1, 4),
                                 .k = case_size(c, 1, 30),
                                 .groups = (int64_t)1 << c->index % 4,
                                 .top_k = rng_range(c->rng, 0, 20)};
    make(c, &p, case_size(c, 1, 60), args);
    return true;
}

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct gated_embed_backward_args *a = args;
    outputs[0] = (struct op_output){offsetof(struct gated_embed_backward_args, dgate),
                                    (size_t)(a->gate.rows * a->gate.cols) * sizeof(float), true,
                                    a->gate.cols, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct gated_embed_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->table.dtype,
                               .n = a->n,
                               .k = a->gate.cols,
                               .groups = a->gate.rows};
}

const struct op op_gated_embed_backward = {
    .name = "gated_embed_backward",
    .summary = "gradients of gated_embed's table, gates and what opens them",
    .args_size = sizeof(struct gated_embed_backward_args),
    .problem = problem,
    .tolerance = {{2e-5f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 1280, .k = 12, .groups = 10},
    .matrices = {{OP_READS, offsetof(struct gated_embed_backward_args, x)},
                 {OP_READS, offsetof(struct gated_embed_backward_args, dy)},
                 {OP_UPDATES, offsetof(struct gated_embed_backward_args, dx)},
                 {OP_UPDATES, offsetof(struct gated_embed_backward_args, dtable)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
