/* add_bias: a bias for each column, of the group that a row is of. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/add_bias.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct add_bias_args *a = args;
    return (struct op_cost){(double)(a->m * a->n),
                            2 * matrix_bytes(&a->y) + 4 * (double)(a->groups * a->n)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct add_bias_args *a = args;
    float *y = matrix_floats(&a->y);
    int64_t group = 0;
    for (int64_t i = 0; i < a->m; i++) {
        while (a->group_offsets && a->group_offsets[group + 1] <= i) group++;
        for (int64_t j = 0; j < a->n; j++) y[i * a->n + j] += a->bias[group * a->n + j];
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t groups = p->groups ? p->groups : 1, top_k = p->top_k ? p->top_k : 1;
    const int64_t m = p->rows / top_k * top_k;
    struct add_bias_args *a = args;
    *a = (struct add_bias_args){
        .m = m,
        .n = p->n,
        .groups = groups,
        .bias = case_vector(c, groups * p->n, 1.0f),
        .y = case_rows(c, m, p->n, 1.0f),
    };
    if (p->groups) a->group_offsets = case_routing(c, m / top_k, groups, top_k).group_offsets;
}

/* rows, n, groups, of a token */
static const struct case_shape cases[] = {
    {4, {0, 1, 40}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {6, {4, 1, 20}, {0, 1, 300}, {0}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_F32},
};

static void problem(const void *args, struct op_problem *out)
{
    const struct add_bias_args *a = args;
    *out = (struct op_problem){
        .rows = a->m, .dtype = a->y.dtype, .n = a->n, .groups = a->group_offsets ? a->groups : 0};
}

const struct op op_add_bias = {
    .name = "add_bias",
    .summary = "y += the bias of its row's group, in place",
    .args_size = sizeof(struct add_bias_args),
    .problem = problem,
    .tolerance = {{1e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_F32, .n = 2880, .groups = 32},
    .matrices = {{OP_UPDATES, offsetof(struct add_bias_args, y)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
