/* self_attention: causal grouped-query attention of whole sequences, without a cache: training's.
 */
#include "ops/self_attention.h"

#include <math.h>

#include "ops/ops.h"

#define OP_LIST "ops/self_attention.list"
#include "ops/variant_table.h"

double self_attention_pairs(int64_t sequences, int64_t length, int64_t window)
{
    const double t = (double)length, w = window > 0 && window < length ? (double)window : t;
    return (double)sequences * (w * (w + 1) / 2 + (t - w) * w);
}

static struct op_cost cost(const void *args)
{
    const struct self_attention_args *a = args;
    const double pairs = self_attention_pairs(a->sequences, a->length, a->window);
    return (struct op_cost){4 * pairs * (double)(a->n_heads * a->head_dim),
                            matrix_bytes(&a->q) + matrix_bytes(&a->k) + matrix_bytes(&a->v) +
                                matrix_bytes(&a->out) +
                                4 * (double)(a->n_heads * a->sequences * a->length)};
}

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

static int64_t first_key(int64_t window, int64_t t)
{
    return window > 0 && t >= window ? t - window + 1 : 0;
}

/* Token `t` of a sequence whose rows begin at `row0`, head h. */
static void one(const struct self_attention_args *a, int64_t row0, int64_t t, int64_t h)
{
    const int64_t dim = a->head_dim, width = a->n_heads * dim, kv_width = a->n_kv_heads * dim;
    const int64_t kv_head = h * a->n_kv_heads / a->n_heads, first = first_key(a->window, t);
    const float *q = matrix_floats(&a->q) + (row0 + t) * width + h * dim;
    const float *k = matrix_floats(&a->k) + row0 * kv_width + kv_head * dim;
    const float *v = matrix_floats(&a->v) + row0 * kv_width + kv_head * dim;
    float *out = matrix_floats(&a->out) + (row0 + t) * width + h * dim;
    const double scale = 1 / sqrt((double)dim);
    double top = a->sinks ? (double)a->sinks[h] : -INFINITY;
    for (int64_t s = first; s <= t; s++) {
        double score = dot(q, k + s * kv_width, dim) * scale;
        if (score > top || isnan(score)) top = score;
    }
    double total = a->sinks ? exp((double)a->sinks[h] - top) : 0, sums[SELF_ATTENTION_DIM_MAX];
    for (int64_t d = 0; d < dim; d++) sums[d] = 0;
    for (int64_t s = first; s <= t; s++) {
        const double weight = exp(dot(q, k + s * kv_width, dim) * scale - top);
        total += weight;
        for (int64_t d = 0; d < dim; d++) sums[d] += weight * (double)v[s * kv_width + d];
    }
    for (int64_t d = 0; d < dim; d++) out[d] = (float)(sums[d] / total);
    a->lse[h * a->sequences * a->length + row0 + t] = (float)(top + log(total));
}

void self_attention_reference(const struct self_attention_args *a)
{
    for (int64_t b = 0; b < a->sequences; b++)
        for (int64_t t = 0; t < a->length; t++)
            for (int64_t h = 0; h < a->n_heads; h++) one(a, b * a->length, t, h);
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    self_attention_reference(args);
}

/* Shapes of both ops: length, query heads of a key head, key heads, sequences, head_dim. */
/* clang-format off */
const struct self_attention_case self_attention_cases[] = {
    {{3, {0, 1, 70}, {1, 1, 4}, {1, 1, 3}, {1, 1, 3}, {0}, {16, 1, 6}, DTYPE_F32}, {0}, true},
    {{3, {0, 1, 70}, {1, 1, 4}, {1, 1, 3}, {1, 1, 3}, {0}, {16, 1, 6}, DTYPE_F32}, {1, 1, 80}, false},
    {{2, {1, 60, 260}, {1, 1, 2}, {1, 1, 2}, {1, 1, 2}, {0}, {1, 128, 128}, DTYPE_F32}, {0}, false},
    {{2, {1, 60, 300}, {1, 1, 2}, {1, 1, 2}, {1, 1, 2}, {0}, {1, 128, 128}, DTYPE_F32}, {1, 1, 140}, false},
    {{2, {1, 60, 260}, {1, 1, 3}, {1, 1, 2}, {1, 1, 2}, {0}, {1, 64, 64}, DTYPE_F32}, {0}, true},
    {{2, {1, 60, 300}, {1, 1, 2}, {1, 1, 2}, {1, 1, 2}, {0}, {1, 64, 64}, DTYPE_F32}, {1, 1, 140}, true},
    {{1, {1, 64, 64}, {1, 1, 1}, {1, 1, 1}, {1, 2, 2}, {0}, {1, 128, 128}, DTYPE_F32}, {1, 65, 65}, false},
};
/* clang-format on */
const int self_attention_n_cases = sizeof self_attention_cases / sizeof *self_attention_cases;

const struct self_attention_case *self_attention_draw(struct case_maker *c, struct op_problem *p)
{
    const struct self_attention_case *shape =
        case_of_table(c, self_attention_cases, (size_t)self_attention_n_cases, sizeof *shape, p);
    if (!shape) return NULL;
    p->n *= p->k;
    p->sequences = p->groups ? p->groups : 1;
    p->groups = 0;
    p->window = case_draw(c, &shape->window);
    return shape;
}

static void spoil(struct case_maker *c, const struct matrix *m, int64_t row)
{
    float *x = m->data;
    if (x) x[row * m->cols + rng_range(c->rng, 0, m->cols - 1)] = NAN;
}

/* Scores in the thousands would only show what exp makes of float32's last bit: hence 2e-4, and
 * keys are never extreme. Nonfinite ones have a NaN in a row of q and, without a window, in the
 * first row of the last sequence's k or v, which all of its rows see. An infinity would only show
 * which signs it is multiplied with. */
void self_attention_make(struct case_maker *c, const struct op_problem *p, bool sinks,
                         struct self_attention_args *a)
{
    const int64_t sequences = case_sequences(c, p), rows = sequences * p->rows;
    const int64_t dim = p->head_dim;
    const bool nonfinite = c->kind == CASE_NONFINITE;
    struct case_maker finite = *c, ordinary = *c;
    if (nonfinite) finite.kind = CASE_RANDOM;
    if (nonfinite || c->kind == CASE_EXTREME) ordinary.kind = CASE_RANDOM;
    *a = (struct self_attention_args){
        .sequences = sequences,
        .length = p->rows,
        .n_heads = p->n,
        .n_kv_heads = p->k,
        .head_dim = dim,
        .window = p->window,
        .sinks = sinks ? case_vector(c, p->n, 2.0f) : NULL,
        .q = case_rows(&finite, rows, p->n * dim, c->kind == CASE_EXTREME ? 2e-4f : 1.5f),
        .k = case_rows(&ordinary, rows, p->k * dim, c->kind == CASE_EXTREME ? 1.0f : 1.5f),
        .v = case_rows(&finite, rows, p->k * dim, 1.0f),
        .out = case_output(c, rows, p->n * dim),
        .lse = case_vector(c, p->n * rows, 0),
    };
    if (!nonfinite) return;
    spoil(c, &a->q, rng_range(c->rng, 0, rows - 1));
    if (!p->window) spoil(c, c->index % 2 ? &a->k : &a->v, rows - p->rows);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    self_attention_make(c, p, false, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    struct op_problem p = {0};
    const struct self_attention_case *shape = self_attention_draw(c, &p);
    if (!shape) return false;
    self_attention_make(c, &p, shape->sinks, args);
    return true;
}

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct self_attention_args *a = args;
    outputs[0] = (struct op_output){offsetof(struct self_attention_args, lse),
                                    (size_t)(a->n_heads * a->sequences * a->length) * sizeof(float),
                                    true, 1, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct self_attention_args *a = args;
    *out = (struct op_problem){.rows = a->length,
                               .dtype = a->q.dtype,
                               .n = a->n_heads,
                               .k = a->n_kv_heads,
                               .head_dim = a->head_dim,
                               .window = a->window,
                               .sequences = a->sequences};
}

const struct op op_self_attention = {
    .name = "self_attention",
    .summary =
        "causal grouped-query attention of whole sequences, window 0 or the last `window` "
        "tokens, with sinks or without; leaves the logarithm of each softmax denominator; a NaN "
        "of q stays in its row, one of k or v in its sequence",
    .args_size = sizeof(struct self_attention_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 10, .k = 10, .head_dim = 128, .sequences = 1},
    .matrices = {{OP_READS, offsetof(struct self_attention_args, q)},
                 {OP_READS, offsetof(struct self_attention_args, k)},
                 {OP_READS, offsetof(struct self_attention_args, v)},
                 {OP_WRITES, offsetof(struct self_attention_args, out)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
