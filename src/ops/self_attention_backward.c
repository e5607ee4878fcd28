/* self_attention_backward: gradients of queries, keys, values and sinks. */
#include <math.h>

#include "ops/ops.h"
#include "ops/self_attention.h"

#define OP_LIST "ops/self_attention_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct self_attention_backward_args *a = args;
    const double pairs = self_attention_pairs(a->sequences, a->length, a->window);
    double bytes = matrix_bytes(&a->q) + matrix_bytes(&a->k) + matrix_bytes(&a->v) +
                   matrix_bytes(&a->out) + matrix_bytes(&a->dout) + matrix_bytes(&a->dq) +
                   matrix_bytes(&a->dk) + matrix_bytes(&a->dv) +
                   4 * (double)(a->n_heads * a->sequences * a->length);
    return (struct op_cost){10 * pairs * (double)(a->n_heads * a->head_dim), bytes};
}

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Sums in double; each row of dk and dv gets terms of many queries. */
struct sums {
    double *dk, *dv;
};

/* ds = p (dp - delta), where p = exp(score - lse), dp = dout . v and delta = dout . out. */
static double one(const struct self_attention_backward_args *a, int64_t row0, int64_t t, int64_t h,
                  struct sums sums)
{
    const int64_t dim = a->head_dim, width = a->n_heads * dim, kv_width = a->n_kv_heads * dim;
    const int64_t at = (row0 + t) * width + h * dim;
    const int64_t kv_at = row0 * kv_width + h * a->n_kv_heads / a->n_heads * dim;
    const float *q = matrix_floats(&a->q) + at, *dout = matrix_floats(&a->dout) + at;
    const float *k = matrix_floats(&a->k) + kv_at, *v = matrix_floats(&a->v) + kv_at;
    const double scale = 1 / sqrt((double)dim);
    const double lse = (double)a->lse[h * a->sequences * a->length + row0 + t];
    const double delta = dot(dout, matrix_floats(&a->out) + at, dim);
    double dq[SELF_ATTENTION_DIM_MAX] = {0};
    for (int64_t s = a->window > 0 && t >= a->window ? t - a->window + 1 : 0; s <= t; s++) {
        const double p = exp(dot(q, k + s * kv_width, dim) * scale - lse);
        const double ds = p * (dot(dout, v + s * kv_width, dim) - delta) * scale;
        for (int64_t d = 0; d < dim; d++) {
            dq[d] += ds * (double)k[s * kv_width + d];
            sums.dk[kv_at + s * kv_width + d] += ds * (double)q[d];
            sums.dv[kv_at + s * kv_width + d] += p * (double)dout[d];
        }
    }
    for (int64_t d = 0; d < dim; d++) matrix_floats(&a->dq)[at + d] = (float)dq[d];
    return a->sinks ? -exp((double)a->sinks[h] - lse) * delta : 0;
}

static size_t kv_count(const struct self_attention_backward_args *a)
{
    return (size_t)(a->sequences * a->length * a->n_kv_heads * a->head_dim);
}

static size_t reference_workspace(const void *args, int workers)
{
    (void)workers;
    return 2 * kv_count(args) * sizeof(double);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct self_attention_backward_args *a = args;
    const size_t n = kv_count(a);
    const struct sums sums = {context->workspace, (double *)context->workspace + n};
    for (size_t i = 0; i < 2 * n; i++) sums.dk[i] = 0;
    for (int64_t h = 0; h < a->n_heads; h++) {
        double dsink = 0;
        for (int64_t b = 0; b < a->sequences; b++)
            for (int64_t t = 0; t < a->length; t++) dsink += one(a, b * a->length, t, h, sums);
        if (a->dsinks) a->dsinks[h] = (float)((double)a->dsinks[h] + dsink);
    }
    for (size_t i = 0; i < n; i++) {
        matrix_floats(&a->dk)[i] = (float)sums.dk[i];
        matrix_floats(&a->dv)[i] = (float)sums.dv[i];
    }
}

/* The forward op's results belong to the case: for timing any numbers do. */
static void make(struct case_maker *c, const struct op_problem *p, bool sinks,
                 struct self_attention_backward_args *a)
{
    struct self_attention_args f;
    self_attention_make(c, p, sinks, &f);
    const int64_t rows = f.sequences * f.length, dim = f.head_dim;
    if (f.lse && f.out.data && f.q.data && f.k.data && f.v.data && c->kind != CASE_TIMED)
        self_attention_reference(&f);
    *a = (struct self_attention_backward_args){
        .sequences = f.sequences,
        .length = f.length,
        .n_heads = f.n_heads,
        .n_kv_heads = f.n_kv_heads,
        .head_dim = dim,
        .window = f.window,
        .sinks = f.sinks,
        .lse = f.lse,
        .q = f.q,
        .k = f.k,
        .v = f.v,
        .out = f.out,
        .dout = case_rows(c, rows, f.n_heads * dim, 1.0f),
        .dq = case_output(c, rows, f.n_heads * dim),
        .dk = case_output(c, rows, f.n_kv_heads * dim),
        .dv = case_output(c, rows, f.n_kv_heads * dim),
        .dsinks = sinks ? case_vector(c, f.n_heads, 1.0f) : NULL,
    };
    for (int64_t i = 0; c->kind == CASE_TIMED && f.lse && i < f.n_heads * rows; i++) f.lse[i] = 8;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, false, args);
}

/* Large numbers would only show what exp makes of float32's last bit in scores that a row's own
 * denominator was not made of: of extreme cases dout alone is. Of nonfinite ones dout has a NaN, in
 * the last row of the first sequence, which sees all keys of it without a window. A row that sees
 * one key and no sink has no gradient but what rounding leaves, so that there are sinks. */
static bool make_case(struct case_maker *c, void *args)
{
    struct self_attention_backward_args *a = args;
    struct op_problem p = {0};
    const struct self_attention_case *shape = self_attention_draw(c, &p);
    if (!shape) return false;
    const enum op_case_kind kind = c->kind;
    if (kind == CASE_EXTREME || kind == CASE_NONFINITE) c->kind = CASE_RANDOM;
    if (kind == CASE_NONFINITE) p.window = 0;
    make(c, &p, shape->sinks || p.rows == 1 || p.window == 1, a);
    c->kind = kind;
    if (kind == CASE_EXTREME) a->dout = case_rows(c, a->dout.rows, a->dout.cols, 1.0f);
    float *last = a->dout.data;
    if (kind == CASE_NONFINITE && last)
        last[(p.rows - 1) * a->dout.cols + rng_range(c->rng, 0, a->dout.cols - 1)] = NAN;
    return true;
}

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct self_attention_backward_args *a = args;
    if (!a->dsinks) return 0;
    outputs[0] =
        (struct op_output){offsetof(struct self_attention_backward_args, dsinks),
                           (size_t)a->n_heads * sizeof(float), true, a->n_heads, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct self_attention_backward_args *a = args;
    *out = (struct op_problem){.rows = a->length,
                               .dtype = a->q.dtype,
                               .n = a->n_heads,
                               .k = a->n_kv_heads,
                               .head_dim = a->head_dim,
                               .window = a->window,
                               .sequences = a->sequences};
}

/* bf16: probabilities and their gradients are rounded before they are multiplied; what is left of a
 * difference (dp - delta) has lost more digits than the sums of the forward op. */
const struct op op_self_attention_backward = {
    .name = "self_attention_backward",
    .summary =
        "gradients of self_attention's queries, keys, values and sinks; a NaN of dout stays in "
        "its row of dq and its sequence of dk and dv",
    .args_size = sizeof(struct self_attention_backward_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 3e-5f, [NUMERICS_BF16] = 2e-2f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 10, .k = 10, .head_dim = 128, .sequences = 1},
    .matrices = {{OP_READS, offsetof(struct self_attention_backward_args, q)},
                 {OP_READS, offsetof(struct self_attention_backward_args, k)},
                 {OP_READS, offsetof(struct self_attention_backward_args, v)},
                 {OP_READS, offsetof(struct self_attention_backward_args, out)},
                 {OP_READS, offsetof(struct self_attention_backward_args, dout)},
                 {OP_WRITES, offsetof(struct self_attention_backward_args, dq)},
                 {OP_WRITES, offsetof(struct self_attention_backward_args, dk)},
                 {OP_WRITES, offsetof(struct self_attention_backward_args, dv)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
