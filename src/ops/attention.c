/* attention: causal grouped-query attention over the cache, with a sliding window and sinks or
 * without. */
#include <math.h>

#include "ops/attention.h"
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/attention.list"
#include "ops/variant_table.h"

static int64_t first_key(const struct attention_args *a, int64_t position)
{
    return a->window && position >= a->window ? position - a->window + 1 : 0;
}

static struct op_cost cost(const void *args)
{
    const struct attention_args *a = args;
    const struct kv_layer *kv = &a->kv;
    const struct batch *b = batch_on_host(a->batch);
    double pairs = 0, keys = 0;
    for (int64_t i = 0; i < a->m; i++) {
        int64_t p = b->position[i];
        pairs += (double)(p - first_key(a, p) + 1);
        /* The rows of a run share their keys: count those of its last row. */
        bool last = i + 1 == a->m || b->sequence[i + 1] != b->sequence[i];
        int64_t run = 1;
        while (last && run <= i && b->sequence[i - run] == b->sequence[i]) run++;
        if (last) keys += (double)(p - first_key(a, p - run + 1) + 1);
    }
    double width = (double)(a->n_heads * kv->head_dim);
    double kv_row =
        2.0 * (double)(kv->n_kv_heads * kv->head_dim) * (double)dtype_info(kv->dtype)->block_bytes;
    return (struct op_cost){4 * pairs * width,
                            keys * kv_row + matrix_bytes(&a->q) + matrix_bytes(&a->out)};
}

static float element(const struct kv_layer *kv, const void *data, int64_t index)
{
    const struct dtype_info *info = dtype_info(kv->dtype);
    float value;
    info->decode((const char *)data + (size_t)index * info->block_bytes, &value, 1);
    return value;
}

static double score(const struct attention_args *a, int64_t i, int64_t h, int64_t p)
{
    const struct kv_layer *kv = &a->kv;
    int64_t index = kv_k_index(kv, a->batch->sequence[i], h * kv->n_kv_heads / a->n_heads, p);
    const float *q = matrix_floats(&a->q) + (i * a->n_heads + h) * kv->head_dim;
    double sum = 0;
    for (int64_t d = 0; d < kv->head_dim; d++)
        sum += (double)q[d] * element(kv, kv->k, index + d * KV_BLOCK);
    return sum / sqrt((double)kv->head_dim);
}

/* `scores` has room for one number a position of the cache. */
static void reference_head(const struct attention_args *a, int64_t i, int64_t h, double *scores)
{
    const struct kv_layer *kv = &a->kv;
    int64_t last = a->batch->position[i], first = first_key(a, last);
    float *out = matrix_floats(&a->out) + (i * a->n_heads + h) * kv->head_dim;
    double sink = a->sinks ? a->sinks[h] : -INFINITY, top = sink;
    for (int64_t p = first; p <= last; p++) {
        scores[p - first] = score(a, i, h, p);
        top = fmax(top, scores[p - first]);
    }
    double total = a->sinks ? exp(sink - top) : 0;
    for (int64_t d = 0; d < kv->head_dim; d++) out[d] = 0;
    for (int64_t p = first; p <= last; p++) total += exp(scores[p - first] - top);
    for (int64_t p = first; p <= last; p++) {
        double weight = exp(scores[p - first] - top) / total;
        int64_t index = kv_v_index(kv, a->batch->sequence[i], h * kv->n_kv_heads / a->n_heads, p);
        for (int64_t d = 0; d < kv->head_dim; d++)
            out[d] += (float)(weight * element(kv, kv->v, index + d));
    }
}

static size_t reference_workspace(const void *args, int workers)
{
    const struct attention_args *a = args;
    (void)workers;
    return (size_t)a->kv.capacity * sizeof(double);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct attention_args *a = args;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t h = 0; h < a->n_heads; h++) reference_head(a, i, h, context->workspace);
}

/* Scores in the thousands would only show what exp makes of float32's last bit, and queries of
 * hundreds what it makes of a bf16's: hence 2e-4, as in self_attention. */
static void make(struct case_maker *c, const struct op_problem *p, int64_t sequences, int64_t start,
                 struct attention_args *a)
{
    int64_t m = p->rows, width = p->n * p->head_dim;
    const struct batch *batch = case_batch(c, m, sequences, start, 1);
    *a = (struct attention_args){
        .m = m,
        .n_heads = p->n,
        .outputs = batch ? batch->n_outputs : 0,
        .window = p->window,
        .batch = batch,
        .q = case_rows(c, m, width, c->kind == CASE_EXTREME ? 2e-4f : 2.0f),
        .kv = case_kv(c, batch, p->dtype, p->window, p->k, p->head_dim),
        .sinks = case_vector(c, p->n, 2.0f),
        .out = case_output(c, m, width),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, c->sequences, c->depth, args);
}

/* A case a line. */
/* clang-format off */
static const struct attention_case {
    struct case_shape shape; /* rows, query heads of a key head, key heads, head_dim, of the cache */
    struct case_range window;
    int64_t sequences, start; /* start: of a sequence, at most */
    bool no_sinks;
} cases[] = {
    {{1, {1, 1, 1}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {2, 1, 40}, DTYPE_F16}, {0}, 3, 40, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_F32}, {1, 1, 130}, 3, 40, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {0}, 3, 40, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {2, 1, 40}, DTYPE_F16}, {1, 1, 130}, 3, 40, false},
    {{1, {1, 1, 1}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_F32}, {0}, 3, 700, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {1, 1, 130}, 3, 40, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {2, 1, 40}, DTYPE_F16}, {0}, 3, 40, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_F32}, {1, 1, 130}, 3, 40, false},
    {{1, {1, 1, 1}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {0}, 3, 40, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {2, 1, 40}, DTYPE_F16}, {1, 1, 130}, 3, 700, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_F32}, {0}, 3, 40, false},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {1, 1, 130}, 3, 40, false},
    {{1, {1, 1, 1}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {2, 1, 40}, DTYPE_F16}, {0}, 3, 40, true},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_F32}, {1, 1, 130}, 3, 40, true},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {0}, 3, 700, true},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {2, 1, 40}, DTYPE_F16}, {1, 1, 130}, 3, 40, true},
    {{1, {1, 1, 1}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_F32}, {0}, 3, 40, true},
    {{1, {0, 1, 60}, {1, 1, 8}, {1, 1, 3}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {1, 1, 130}, 3, 40, true},
    /* as gpt-oss: few rows of a long cache, rows of several sequences, rings that have wrapped */
    {{2, {0, 3, 6}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {0}, 2, 1500, false},
    {{2, {0, 3, 6}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {0}, 2, 1500, false},
    {{2, {0, 45, 90}, {1, 8, 8}, {1, 2, 2}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {0}, 3, 60, false},
    {{2, {0, 45, 90}, {1, 8, 8}, {1, 2, 2}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {0}, 3, 60, false},
    {{2, {0, 30, 60}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {1, 128, 128}, 2, 700, false},
    {{2, {0, 30, 60}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {1, 128, 128}, 2, 700, false},
    {{2, {0, 20, 40}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {0}, 1, 300, false},
    {{2, {0, 20, 40}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {0}, 1, 300, false},
    /* and many rows of many sequences */
    {{2, {0, 129, 200}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {0}, 90, 40, false},
    {{2, {0, 129, 200}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {1, 128, 128}, 90, 200, false},
    {{1, {0, 900, 920}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {0}, 70, 8, false},
    {{1, {0, 600, 610}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {1, 33, 33}, 1, 60, false},
    /* and without sinks */
    {{2, {0, 3, 6}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {0}, 2, 1500, true},
    {{2, {0, 45, 90}, {1, 8, 8}, {1, 2, 2}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {0}, 3, 60, true},
    {{2, {0, 30, 60}, {1, 8, 8}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {1, 128, 128}, 2, 700, true},
    /* contexts that the CPU cuts into pieces (vector/attention.h), windows of more than one */
    {{3, {1, 1, 1}, {1, 4, 4}, {1, 1, 2}, {0}, {0}, {1, 64, 64}, DTYPE_F16}, {0}, 1, 7000, false},
    {{1, {0, 3, 6}, {1, 4, 4}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_BF16}, {0}, 3, 5000, true},
    {{2, {0, 20, 40}, {1, 2, 2}, {1, 1, 1}, {0}, {0}, {1, 64, 64}, DTYPE_F32}, {1, 2060, 2600}, 1, 5000, false},
};
/* clang-format on */

static bool make_case(struct case_maker *c, void *args)
{
    struct op_problem p = {0};
    const struct attention_case *shape = CASE_OF(c, cases, &p);
    if (!shape) return false;
    p.n *= p.k;
    p.window = case_draw(c, &shape->window);
    make(c, &p, shape->sequences, shape->start, args);
    if (shape->no_sinks) ((struct attention_args *)args)->sinks = NULL;
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct attention_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->kv.dtype,
                               .n = a->n_heads,
                               .k = a->kv.n_kv_heads,
                               .head_dim = a->kv.head_dim,
                               .window = a->window,
                               .sequences = attention_rows_apart(a) ? 1 : 2};
}

const struct op op_attention = {
    .name = "attention",
    .summary =
        "causal grouped-query attention over the cache, window 0 or the last `window` positions, "
        "sink logit in the denominator; a query with NaN or Inf gives a non-finite row",
    .args_size = sizeof(struct attention_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_F16, .n = 64, .k = 8, .head_dim = 64, .sequences = 1},
    .matrices = {{OP_READS, offsetof(struct attention_args, q)},
                 {OP_WRITES, offsetof(struct attention_args, out)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
