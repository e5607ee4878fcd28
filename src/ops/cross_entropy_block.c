/* cross_entropy_block: the loss of logits that never exist all at once. */
#include <math.h>

#include "ops/cases.h"
#include "ops/cross_entropy.h"
#include "ops/ops.h"

#define OP_LIST "ops/cross_entropy_block.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct cross_entropy_block_args *a = args;
    const double count = (double)(a->m * a->logits.cols);
    return (struct op_cost){10 * count, matrix_bytes(&a->logits) + 28 * (double)a->m};
}

static int64_t columns(const struct cross_entropy_block_args *a)
{
    const int64_t left = a->vocab - a->first;
    return left < 0 ? 0 : left < a->logits.cols ? left : a->logits.cols;
}

static bool ends(const struct cross_entropy_block_args *a)
{
    return a->first + a->logits.cols >= a->vocab;
}

/* A z of -Inf weighs nothing, also where all so far are. */
static double total_of(const struct cross_entropy_block_args *a, const float *x, double before,
                       double top)
{
    const double base = isinf(top) && top < 0 ? 0 : top;
    double total = before;
    for (int64_t j = 0; j < columns(a); j++)
        total += exp(cross_entropy_capped(a->cap, x[j]) - base);
    return total;
}

static void row(const struct cross_entropy_block_args *a, int64_t i)
{
    const float *x = matrix_floats(&a->logits) + i * a->logits.cols;
    const int32_t target = a->target[i];
    if (target < 0) {
        a->top[i] = a->total[i] = a->own[i] = 0;
        if (ends(a)) a->nll[i] = 0;
        return;
    }
    const double before = a->first ? (double)a->top[i] : -(double)INFINITY;
    double top = before, total = a->first ? (double)a->total[i] : 0;
    for (int64_t j = 0; j < columns(a); j++) top = fmax(top, cross_entropy_capped(a->cap, x[j]));
    top = (double)(float)top; /* as it is kept */
    total = total_of(a, x, total * (before == top ? 1 : exp(before - top)), top);
    if (!a->first) a->own[i] = 0;
    if (target >= a->first && target - a->first < columns(a))
        a->own[i] = (float)cross_entropy_capped(a->cap, x[target - a->first]);
    a->top[i] = isnan(total) ? NAN : (float)top;
    a->total[i] = (float)total;
    if (ends(a)) a->nll[i] = (float)(top - (double)a->own[i] + log(total));
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct cross_entropy_block_args *a = args;
    for (int64_t i = 0; i < a->m; i++) row(a, i);
}

/* As others left it: rows of which nothing counted yet, and one with a NaN. */
static void fill_state(struct case_maker *c, struct cross_entropy_block_args *a)
{
    if (!a->top || !a->total || !a->own) return;
    for (int64_t i = 0; i < a->m; i++) {
        a->total[i] = a->first ? 1 + 9 * fabsf(a->total[i]) : NAN;
        if (!a->first) a->top[i] = a->own[i] = NAN; /* nobody is to read them */
        if (i % 6 == 4) a->top[i] = -INFINITY, a->total[i] = 0;
    }
    if (c->kind == CASE_NONFINITE && a->m > 5) a->top[5] = a->total[5] = NAN;
}

/* The vocabulary ends behind the block, with it, within it, or before it. */
static int64_t case_vocab(struct case_maker *c, int64_t first, int64_t n)
{
    switch (c->index % 4) {
    case 0:
        return first + n + 50;
    case 1:
        return first + n;
    case 2:
        return first + n - rng_range(c->rng, 0, n < 60 ? n - 1 : 60);
    default:
        return first ? first - 3 : n;
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const bool timed = c->kind == CASE_TIMED;
    const int64_t first = timed ? 0 : 64 * rng_range(c->rng, 0, 3);
    const int64_t vocab = timed ? p->n : case_vocab(c, first, p->n);
    int32_t *target = ARENA_NEW(c->arena, int32_t, p->rows);
    struct cross_entropy_block_args *a = args;
    *a = (struct cross_entropy_block_args){.m = p->rows,
                                           .vocab = vocab,
                                           .first = first,
                                           .cap = c->index % 3 == 2 ? 0
                                                  : c->index % 5    ? 15
                                                                    : 50,
                                           .target = target,
                                           .logits = case_rows(c, p->rows, p->n, 4.0f),
                                           .top = case_vector(c, p->rows, 4.0f),
                                           .total = case_vector(c, p->rows, 1.0f),
                                           .own = case_vector(c, p->rows, 4.0f),
                                           .nll = case_vector(c, p->rows, 1.0f)};
    for (int64_t i = 0; target && i < p->rows; i++)
        target[i] = i % 7 == 3 ? -1 : (int32_t)rng_range(c->rng, 0, vocab - 1);
    fill_state(c, a);
}

/* rows, n: columns of the block */
static const struct case_shape cases[] = {
    {8, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {4, {1, 1, 9}, {8, 1, 80}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {3, {1, 1, 3}, {1, 2000, 9000}, {0}, {0}, {0}, {0}, DTYPE_F32},
};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    static const size_t offsets[] = {offsetof(struct cross_entropy_block_args, top),
                                     offsetof(struct cross_entropy_block_args, total),
                                     offsetof(struct cross_entropy_block_args, own),
                                     offsetof(struct cross_entropy_block_args, nll)};
    const struct cross_entropy_block_args *a = args;
    const int n = ends(a) ? 4 : 3;
    for (int i = 0; i < n; i++)
        outputs[i] =
            (struct op_output){offsets[i], (size_t)a->m * sizeof(float), true, 1, DTYPE_F32};
    return n;
}

/* Of a vocabulary of one token nll is what is left of z - z. */
static bool row_norms(const void *args, int output, double *norms)
{
    enum { NLL = 3 };
    const struct cross_entropy_block_args *a = args;
    for (int64_t i = 0; output == NLL && i < a->m; i++)
        norms[i] = fabs((double)a->top[i]) + fabs((double)a->own[i]);
    return output == NLL;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct cross_entropy_block_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->logits.dtype, .n = a->logits.cols};
}

const struct op op_cross_entropy_block = {
    .name = "cross_entropy_block",
    .summary = "largest z, sum of exponentials and z[target] of the columns so far; nll behind the "
               "last",
    .args_size = sizeof(struct cross_entropy_block_args),
    .problem = problem,
    .tolerance = {{1e-5f}},
    .cost = cost,
    .reference = reference,
    .row_norms = row_norms,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_F32, .n = 2048},
    .matrices = {{OP_READS, offsetof(struct cross_entropy_block_args, logits)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
