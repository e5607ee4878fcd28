/* self_attention_backward: gradients of self_attention, from what it left.
 *
 * With p the weights, dp = dout . v and delta = dout . out of a row: ds = p (dp - delta), dq and dk
 * are its products with k and q, dv that of p with dout; a sink has weight and no value, so that
 * its gradient is - p delta. */
#include <math.h>

#include "ops/ops.h"
#include "ops/self_attention.h"

#define OP_LIST "ops/self_attention_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct self_attention_backward_args *a = args;
    double heads = (double)(a->sequences * a->n_heads);
    double pairs = heads * self_attention_pairs(a->window, a->length);
    return (struct op_cost){10 * pairs * (double)a->head_dim,
                            2 * (matrix_bytes(&a->q) + matrix_bytes(&a->k) + matrix_bytes(&a->v)) +
                                matrix_bytes(&a->out) + matrix_bytes(&a->dout) +
                                4 * heads * (double)a->length};
}

struct sums {
    double *dq;      /* [head_dim] of a row and head */
    double *dk, *dv; /* [length][head_dim] of a sequence and key head */
};

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* Token t of the sequence that begins at row `from`. */
static void reference_row(const struct self_attention_backward_args *a, int64_t from, int64_t t,
                          int64_t h, const struct sums *sums)
{
    int64_t dim = a->head_dim, at = ((from + t) * a->n_heads + h) * dim;
    int64_t kv_head = h * a->n_kv_heads / a->n_heads;
    const float *q = matrix_floats(&a->q) + at, *dout = matrix_floats(&a->dout) + at;
    double lse = a->lse[h * a->sequences * a->length + from + t], scale = 1 / sqrt((double)dim);
    double delta = dot(matrix_floats(&a->out) + at, dout, dim);
    for (int64_t d = 0; d < dim; d++) sums->dq[d] = 0;
    for (int64_t j = self_attention_first(a->window, t); j <= t; j++) {
        int64_t kv = ((from + j) * a->n_kv_heads + kv_head) * dim;
        const float *k = matrix_floats(&a->k) + kv, *v = matrix_floats(&a->v) + kv;
        double p = exp(dot(q, k, dim) * scale - lse), ds = p * (dot(dout, v, dim) - delta) * scale;
        for (int64_t d = 0; d < dim; d++) {
            sums->dq[d] += ds * k[d];
            sums->dk[j * dim + d] += ds * q[d];
            sums->dv[j * dim + d] += p * dout[d];
        }
    }
    float *dq = matrix_floats(&a->dq) + at;
    for (int64_t d = 0; d < dim; d++) dq[d] = (float)sums->dq[d];
}

static void reference_kv_head(const struct self_attention_backward_args *a, int64_t from,
                              int64_t kv_head, const struct sums *sums)
{
    int64_t dim = a->head_dim, group = a->n_heads / a->n_kv_heads;
    for (int64_t i = 0; i < a->length * dim; i++) sums->dk[i] = sums->dv[i] = 0;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; h++)
        for (int64_t t = 0; t < a->length; t++) reference_row(a, from, t, h, sums);
    for (int64_t t = 0; t < a->length; t++) {
        int64_t at = ((from + t) * a->n_kv_heads + kv_head) * dim;
        for (int64_t d = 0; d < dim; d++) {
            matrix_floats(&a->dk)[at + d] = (float)sums->dk[t * dim + d];
            matrix_floats(&a->dv)[at + d] = (float)sums->dv[t * dim + d];
        }
    }
}

static void reference_sink(const struct self_attention_backward_args *a, int64_t h)
{
    int64_t rows = a->sequences * a->length, dim = a->head_dim;
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = (i * a->n_heads + h) * dim;
        double p = exp((double)a->sinks[h] - a->lse[h * rows + i]);
        sum -= p * dot(matrix_floats(&a->out) + at, matrix_floats(&a->dout) + at, dim);
    }
    a->dsinks[h] = (float)(a->dsinks[h] + sum);
}

static size_t reference_workspace(const void *args, int workers)
{
    const struct self_attention_backward_args *a = args;
    (void)workers;
    return (size_t)((2 * a->length + 1) * a->head_dim) * sizeof(double);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct self_attention_backward_args *a = args;
    double *memory = context->workspace;
    const struct sums sums = {memory, memory + a->head_dim, memory + (a->length + 1) * a->head_dim};
    for (int64_t s = 0; s < a->sequences; s++)
        for (int64_t h = 0; h < a->n_kv_heads; h++) reference_kv_head(a, s * a->length, h, &sums);
    for (int64_t h = 0; a->sinks && a->dsinks && h < a->n_heads; h++) reference_sink(a, h);
}

/* What the forward op leaves; of timed ones what is like it, since the reference takes its time. */
static void make_forward(struct case_maker *c, const struct self_attention_args *f)
{
    const size_t bytes = op_self_attention.reference_workspace(f, 1);
    const struct op_context context = {.workspace = arena_alloc(c->arena, bytes, 64)};
    float *out = f->out.data, *lse = f->lse;
    if (!context.workspace || !out || !lse || !f->q.data || !f->k.data || !f->v.data) return;
    if (c->kind != CASE_TIMED) {
        op_self_attention.reference(&context, f);
        return;
    }
    for (int64_t i = 0; i < f->out.rows * f->out.cols; i++) out[i] = 0.1f * rng_normal(c->rng);
    for (int64_t i = 0; i < f->out.rows * f->n_heads; i++) {
        int64_t t = i % f->length;
        lse[i] = logf((float)(t - self_attention_first(f->window, t) + 1)) + 0.5f;
    }
}

/* dout alone is extreme, or has a NaN: in the last row of the first sequence, without a window, so
 * that all of its keys get it. */
static void make(struct case_maker *c, const struct self_attention_shape *shape,
                 struct self_attention_backward_args *a)
{
    struct self_attention_args f;
    struct case_maker plain = *c;
    struct self_attention_shape s = *shape;
    int64_t rows = s.sequences * s.length;
    if (c->kind == CASE_EXTREME || c->kind == CASE_NONFINITE) plain.kind = CASE_RANDOM;
    if (c->kind == CASE_NONFINITE) s.window = 0;
    /* A row that sees one key and no sink has no gradient but what rounding leaves. */
    s.sinks = s.sinks || s.length == 1 || s.window == 1;
    self_attention_make(&plain, &s, &f);
    make_forward(c, &f);
    if (c->kind == CASE_EXTREME) plain.kind = CASE_EXTREME;
    *a = (struct self_attention_backward_args){
        .sequences = s.sequences,
        .length = s.length,
        .n_heads = s.n_heads,
        .n_kv_heads = s.n_kv_heads,
        .head_dim = s.head_dim,
        .window = s.window,
        .sinks = f.sinks,
        .lse = f.lse,
        .q = f.q,
        .k = f.k,
        .v = f.v,
        .out = f.out,
        .dout = case_rows(&plain, rows, f.q.cols, 1.0f),
        .dq = case_output(c, rows, f.q.cols),
        .dk = case_output(c, rows, f.k.cols),
        .dv = case_output(c, rows, f.k.cols),
        .dsinks = f.sinks ? case_sums(c, s.n_heads, sqrtf((float)rows)) : NULL,
    };
    float *last = a->dout.data;
    if (c->kind == CASE_NONFINITE && last)
        last[(s.length - 1) * f.q.cols + rng_range(c->rng, 0, f.q.cols - 1)] = NAN;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const struct self_attention_shape shape = self_attention_problem_shape(c, p);
    make(c, &shape, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    struct self_attention_shape shape;
    if (!self_attention_case(c, &shape)) return false;
    make(c, &shape, args);
    return true;
}

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct self_attention_backward_args *a = args;
    if (!a->sinks || !a->dsinks) return 0;
    outputs[0] = (struct op_output){offsetof(struct self_attention_backward_args, dsinks),
                                    (size_t)a->n_heads * sizeof(float), true, 1, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct self_attention_backward_args *a = args;
    *out = (struct op_problem){.rows = a->sequences * a->length,
                               .n = a->n_heads,
                               .k = a->n_kv_heads,
                               .head_dim = a->head_dim,
                               .window = a->window,
                               .sequences = a->sequences};
}

/* In bf16 p and ds are rounded on their way into products, each to 2^-9 of itself at most. Where
 * the terms of a sum cancel, the error stays: a few 1e-3 of a row as a rule, and rows whose terms
 * cancel more than most have several times that. */
const struct op op_self_attention_backward = {
    .name = "self_attention_backward",
    .summary = "dq, dk, dv of self_attention, and dsinks accumulated; a NaN of dout is in its row "
               "of dq and in the keys that the row sees",
    .args_size = sizeof(struct self_attention_backward_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 2e-2f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .n = 10, .k = 10, .head_dim = 128, .sequences = 1},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct self_attention_backward_args, q)},
                 {OP_READS, offsetof(struct self_attention_backward_args, k)},
                 {OP_READS, offsetof(struct self_attention_backward_args, v)},
                 {OP_READS, offsetof(struct self_attention_backward_args, out)},
                 {OP_READS, offsetof(struct self_attention_backward_args, dout)},
                 {OP_WRITES, offsetof(struct self_attention_backward_args, dq)},
                 {OP_WRITES, offsetof(struct self_attention_backward_args, dk)},
                 {OP_WRITES, offsetof(struct self_attention_backward_args, dv)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
