/* embed_backward: rows added up by token. */
#include "ops/ops.h"
#include "ops/token_order.h"

#define OP_LIST "ops/embed_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct embed_backward_args *a = args;
    return (struct op_cost){(double)(a->m * a->n), 3 * matrix_bytes(&a->d) + 8 * (double)a->m};
}

static size_t reference_workspace(const void *args, int workers)
{
    (void)workers;
    return (size_t)((const struct embed_backward_args *)args)->n * sizeof(double);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct embed_backward_args *a = args;
    double *sum = context->workspace;
    for (int64_t i = 0, next; i < a->m; i = next) {
        const int32_t token = a->batch->token[a->order[i]];
        float *row = matrix_floats(&a->dtable) + token * a->n;
        for (int64_t j = 0; j < a->n; j++) sum[j] = (double)row[j];
        for (next = i; next < a->m && a->batch->token[a->order[next]] == token; next++) {
            const float *d = matrix_floats(&a->d) + a->order[next] * a->n;
            for (int64_t j = 0; j < a->n; j++) sum[j] += (double)d[j];
        }
        for (int64_t j = 0; j < a->n; j++) row[j] = (float)sum[j];
    }
}

static void make(struct case_maker *c, const struct op_problem *p, int64_t vocab,
                 struct embed_backward_args *a)
{
    struct batch *batch = case_batch(c, p->rows, 2, 1, vocab);
    *a = (struct embed_backward_args){.m = p->rows,
                                      .n = p->n,
                                      .batch = batch,
                                      .order = case_tokens(c, batch, p->rows, vocab),
                                      .d = case_rows(c, p->rows, p->n, 1.0f),
                                      .dtable = case_rows(c, vocab, p->n, 1.0f)};
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    enum { TIMED_VOCAB = 32768 };
    make(c, p, TIMED_VOCAB, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 8) return false;
    const bool many = c->index == 5 || c->index == 6, wide = c->index == 7;
    make(c,
         &(struct op_problem){.rows = many ? rng_range(c->rng, 200, 400) : case_size(c, 1, 40),
                              .n = wide   ? 8 * rng_range(c->rng, 257, 300)
                                   : many ? 16 * rng_range(c->rng, 1, 8)
                                          : case_size(c, 1, 200)},
         case_size(c, 1, 60), args);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct embed_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->d.dtype, .n = a->n};
}

const struct op op_embed_backward = {
    .name = "embed_backward",
    .summary = "dtable[token] += the rows of d with that token",
    .args_size = sizeof(struct embed_backward_args),
    .problem = problem,
    .tolerance = {{5e-6f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 1280},
    .matrices = {{OP_READS, offsetof(struct embed_backward_args, d)},
                 {OP_UPDATES, offsetof(struct embed_backward_args, dtable)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
