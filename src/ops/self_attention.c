/* self_attention: causal attention of whole sequences, which leaves what its gradient needs. */
#include "ops/self_attention.h"

#include <math.h>

#include "ops/ops.h"

#define OP_LIST "ops/self_attention.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct self_attention_args *a = args;
    double heads = (double)(a->sequences * a->n_heads);
    double pairs = heads * self_attention_pairs(a->window, a->length);
    return (struct op_cost){4 * pairs * (double)a->head_dim,
                            matrix_bytes(&a->q) + matrix_bytes(&a->k) + matrix_bytes(&a->v) +
                                matrix_bytes(&a->out) + 4 * heads * (double)a->length};
}

static double score(const struct self_attention_args *a, int64_t row, int64_t key, int64_t h)
{
    const float *q = matrix_floats(&a->q) + (row * a->n_heads + h) * a->head_dim;
    int64_t kv_head = h * a->n_kv_heads / a->n_heads;
    const float *k = matrix_floats(&a->k) + (key * a->n_kv_heads + kv_head) * a->head_dim;
    double sum = 0;
    for (int64_t d = 0; d < a->head_dim; d++) sum += (double)q[d] * k[d];
    return sum / sqrt((double)a->head_dim);
}

/* Token t of the sequence that begins at row `from`. `scores` has room for a sequence, `sum` for a
 * head. */
static void reference_head(const struct self_attention_args *a, int64_t from, int64_t t, int64_t h,
                           double *scores, double *sum)
{
    int64_t first = self_attention_first(a->window, t), kv_head = h * a->n_kv_heads / a->n_heads;
    double top = a->sinks ? a->sinks[h] : -INFINITY;
    for (int64_t j = first; j <= t; j++) {
        scores[j] = score(a, from + t, from + j, h);
        top = fmax(top, scores[j]);
    }
    double total = a->sinks ? exp(a->sinks[h] - top) : 0;
    for (int64_t d = 0; d < a->head_dim; d++) sum[d] = 0;
    for (int64_t j = first; j <= t; j++) {
        double weight = exp(scores[j] - top);
        const float *v =
            matrix_floats(&a->v) + ((from + j) * a->n_kv_heads + kv_head) * a->head_dim;
        for (int64_t d = 0; d < a->head_dim; d++) sum[d] += weight * v[d];
        total += weight;
    }
    float *out = matrix_floats(&a->out) + ((from + t) * a->n_heads + h) * a->head_dim;
    for (int64_t d = 0; d < a->head_dim; d++) out[d] = (float)(sum[d] / total);
    a->lse[h * a->sequences * a->length + from + t] = (float)(top + log(total));
}

static size_t reference_workspace(const void *args, int workers)
{
    const struct self_attention_args *a = args;
    (void)workers;
    return (size_t)(a->length + a->head_dim) * sizeof(double);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct self_attention_args *a = args;
    double *scores = context->workspace;
    for (int64_t s = 0; s < a->sequences; s++)
        for (int64_t t = 0; t < a->length; t++)
            for (int64_t h = 0; h < a->n_heads; h++)
                reference_head(a, s * a->length, t, h, scores, scores + a->length);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const struct self_attention_shape shape = self_attention_problem_shape(c, p);
    self_attention_make(c, &shape, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    struct self_attention_shape shape;
    if (!self_attention_case(c, &shape)) return false;
    self_attention_make(c, &shape, args);
    return true;
}

/* A number of lse is a row of its own: a NaN stays where it is. */
static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct self_attention_args *a = args;
    size_t bytes = (size_t)(a->sequences * a->length * a->n_heads) * sizeof(float);
    outputs[0] =
        (struct op_output){offsetof(struct self_attention_args, lse), bytes, true, 1, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct self_attention_args *a = args;
    *out = (struct op_problem){.rows = a->sequences * a->length,
                               .n = a->n_heads,
                               .k = a->n_kv_heads,
                               .head_dim = a->head_dim,
                               .window = a->window,
                               .sequences = a->sequences};
}

const struct op op_self_attention = {
    .name = "self_attention",
    .summary = "causal grouped-query attention of whole sequences, window 0 or the last `window` "
               "tokens, sink logit in the denominator; a NaN of q stays in its row, one of k or v "
               "in its sequence",
    .args_size = sizeof(struct self_attention_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .n = 10, .k = 10, .head_dim = 128, .sequences = 1},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct self_attention_args, q)},
                 {OP_READS, offsetof(struct self_attention_args, k)},
                 {OP_READS, offsetof(struct self_attention_args, v)},
                 {OP_WRITES, offsetof(struct self_attention_args, out)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
