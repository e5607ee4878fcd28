/* rmsnorm: root-mean-square normalisation, with a gain or without. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/rmsnorm.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct rmsnorm_args *a = args;
    double count = (double)(a->m * a->n);
    return (struct op_cost){4 * count, 2 * matrix_bytes(&a->y) + (a->gain ? 4 * (double)a->n : 0)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct rmsnorm_args *a = args;
    for (int64_t i = 0; i < a->m; i++) {
        const float *x = matrix_floats(&a->x) + (a->rows ? a->rows[i] : i) * a->n;
        double sum = 0;
        for (int64_t j = 0; j < a->n; j++) sum += (double)x[j] * x[j];
        double scale = 1.0 / sqrt(sum / (double)a->n + a->eps);
        float *y = matrix_floats(&a->y) + i * a->n;
        for (int64_t j = 0; j < a->n; j++)
            y[j] = (float)(x[j] * scale) * (a->gain ? a->gain[j] : 1);
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct rmsnorm_args *)args = (struct rmsnorm_args){
        .m = p->rows,
        .n = p->n,
        .eps = 1e-5f,
        .x = case_rows(c, p->rows, p->n, 1.0f),
        .gain = case_vector(c, p->n, 1.0f),
        .y = case_output(c, p->rows, p->n),
    };
}

static bool make_case(struct case_maker *c, void *args)
{
    static const int64_t lines[] = {128, 2880, 8256}; /* whole ones of 128 bytes in bf16 */
    enum { RANDOM = 9, WIDE = 12, ALL = WIDE + sizeof lines / sizeof *lines };
    if (c->index >= ALL) return false;
    const bool wide = c->index >= RANDOM;
    int64_t m = wide ? 2 : case_size(c, 1, 20), n = case_size(c, 5, 300);
    if (c->index >= WIDE)
        n = lines[c->index - WIDE];
    else if (wide)
        n = c->index == 9 ? 8200 + n : 8 * rng_range(c->rng, 257, 1024);
    const struct batch *batch = case_batch(c, m, 1, 0, 1);
    struct rmsnorm_args *a = args;
    make_problem(c, &(struct op_problem){.rows = m, .n = n}, a);
    if (c->index % 2 && batch) {
        a->m = a->y.rows = batch->n_outputs;
        a->rows = batch->output_rows;
    }
    if (c->index >= 6 && c->index < WIDE) a->gain = NULL;
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct rmsnorm_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_rmsnorm = {
    .name = "rmsnorm",
    .summary = "y = x / sqrt(mean(x^2) + eps) * gain, row by row",
    .args_size = sizeof(struct rmsnorm_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 2880},
    .matrices = {{OP_READS, offsetof(struct rmsnorm_args, x)},
                 {OP_WRITES, offsetof(struct rmsnorm_args, y)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
