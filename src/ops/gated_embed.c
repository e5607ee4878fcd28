/* gated_embed: embeddings by which a GPT smears tokens and adds to values. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/gated_embed.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct gated_embed_args *a = args;
    double rows = (double)a->m, n = (double)a->n, gates = (double)(a->gate.rows * a->gate.cols);
    double row = (double)dtype_row_bytes(a->table.dtype, a->n);
    return (struct op_cost){rows * (2 * gates + 2 * n + (a->normed ? 3 * n : 0)),
                            rows * row + 2 * matrix_bytes(&a->y) + (double)tensor_bytes(&a->gate)};
}

static size_t reference_workspace(const void *args, int workers)
{
    const struct gated_embed_args *a = args;
    (void)workers;
    return (size_t)(a->n + a->gate.cols + a->gate.rows) * sizeof(float);
}

/* scale * lambda * sigmoid(gate . x) of each head; `weights` has room for a row of the gate. */
static void gates_of(const struct gated_embed_args *a, int64_t i, float *weights, float *gates)
{
    const float *x = matrix_floats(&a->x) + i * a->x.cols;
    for (int64_t h = 0; h < a->gate.rows; h++) {
        double sum = 0;
        tensor_decode_row(&a->gate, 0, h, weights);
        for (int64_t j = 0; j < a->gate.cols; j++) sum += (double)weights[j] * x[j];
        gates[h] = (float)(a->scale * (a->lambda ? *a->lambda : 1) / (1 + exp(-sum)));
    }
}

static float norm_of(const struct gated_embed_args *a, const float *row)
{
    double sum = 0;
    for (int64_t j = 0; j < a->n; j++) sum += (double)row[j] * row[j];
    return a->normed ? (float)(1 / sqrt(sum / (double)a->n + a->eps)) : 1;
}

static void reference(const struct op_context *context, const void *args)
{
    const struct gated_embed_args *a = args;
    const int32_t *ids = a->previous ? a->batch->previous : a->batch->token;
    float *row = context->workspace, *weights = row + a->n, *gates = weights + a->gate.cols;
    for (int64_t i = 0; i < a->m; i++) {
        float *y = matrix_floats(&a->y) + i * a->n;
        if (ids[i] < 0) continue;
        gates_of(a, i, weights, gates);
        tensor_decode_row(&a->table, 0, ids[i], row);
        float norm = norm_of(a, row);
        for (int64_t j = 0; j < a->n; j++) y[j] += gates[j * a->gate.rows / a->n] * (norm * row[j]);
    }
}

static void make(struct case_maker *c, const struct op_problem *p, int64_t vocab,
                 struct gated_embed_args *a)
{
    *a = (struct gated_embed_args){
        .m = p->rows,
        .n = p->n,
        .scale = 3,
        .eps = 1e-6f,
        .batch = case_batch(c, p->rows, 2, 1, vocab),
        .table = case_tensor(c, p->dtype, 1, vocab, p->n, 1.0f),
        .gate = case_tensor(c, DTYPE_F32, 1, p->groups, p->k, 0.5f),
        .x = case_rows(c, p->rows, p->k, 1.0f),
        .y = case_rows(c, p->rows, p->n, 1.0f),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    enum { TIMED_VOCAB = 3000 };
    make(c, p, TIMED_VOCAB, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    struct gated_embed_args *a = args;
    if (c->index >= 8) return false;
    const struct op_problem p = {.rows = case_size(c, 1, 20),
                                 .dtype = case_weight_dtype(c),
                                 .n = 32 * rng_range(c->rng, 1, 4),
                                 .k = case_size(c, 1, 30),
                                 .groups = (int64_t)1 << c->index % 4};
    make(c, &p, case_size(c, 1, 100), a);
    if (c->index & 1) a->lambda = case_vector(c, 1, 1.0f);
    a->previous = a->normed = c->index & 2;
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct gated_embed_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->table.dtype,
                               .n = a->n,
                               .k = a->gate.cols,
                               .groups = a->gate.rows};
}

const struct op op_gated_embed = {
    .name = "gated_embed",
    .summary = "y += scale * lambda * sigmoid(gate . x) * table[token, or the one before it], for "
               "each head; "
               "an infinity of x saturates the gate",
    .args_size = sizeof(struct gated_embed_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .weights = {offsetof(struct gated_embed_args, table)},
    .n_weights = 1,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 1280, .k = 12, .groups = 10},
    .matrices = {{OP_READS, offsetof(struct gated_embed_args, x)},
                 {OP_UPDATES, offsetof(struct gated_embed_args, y)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
