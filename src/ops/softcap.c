/* softcap: a smooth bound for logits. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/softcap.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct softcap_args *a = args;
    double count = (double)(a->m * a->n);
    return (struct op_cost){8 * count, 2 * matrix_bytes(&a->x)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct softcap_args *a = args;
    float *x = matrix_floats(&a->x);
    for (int64_t i = 0; i < a->m * a->n; i++) x[i] = a->cap * tanhf(x[i] / a->cap);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct softcap_args *)args = (struct softcap_args){
        .m = p->rows, .n = p->n, .cap = 15, .x = case_rows(c, p->rows, p->n, 10.0f)};
}

/* rows, n */
static const struct case_shape cases[] = {
    {4, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct softcap_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_softcap = {
    .name = "softcap",
    .summary = "x = cap * tanh(x / cap), in place; NaN stays NaN, an infinity becomes the cap",
    .args_size = sizeof(struct softcap_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 32768},
    .matrices = {{OP_UPDATES, offsetof(struct softcap_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
