/* grouped_wgrad: gradients of the weights of each group. */
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/grouped_wgrad.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct grouped_wgrad_args *a = args;
    const int32_t *offsets = a->host_offsets ? a->host_offsets : a->group_offsets;
    const double used = cost_groups_used(offsets, a->groups) / (double)a->groups;
    return (struct op_cost){2 * (double)(a->m * a->n) * (double)a->k,
                            2 * used * matrix_bytes(&a->dw) + matrix_bytes(&a->dy) +
                                matrix_bytes(&a->x)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct grouped_wgrad_args *a = args;
    const float *dy = matrix_floats(&a->dy), *x = matrix_floats(&a->x);
    for (int64_t g = 0; g < a->groups; g++)
        for (int64_t j = 0; j < a->n; j++)
            for (int64_t k = 0; k < a->k; k++) {
                float *dw = matrix_floats(&a->dw) + (g * a->n + j) * a->k + k;
                double sum = (double)*dw;
                for (int64_t i = a->group_offsets[g]; i < a->group_offsets[g + 1]; i++)
                    sum += (double)dy[i * a->n + j] * (double)x[i * a->k + k];
                *dw = (float)sum;
            }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t groups = p->groups ? p->groups : 1, top_k = p->top_k ? p->top_k : 1;
    const int64_t m = p->rows / top_k * top_k;
    *(struct grouped_wgrad_args *)args = (struct grouped_wgrad_args){
        .m = m,
        .n = p->n,
        .k = p->k,
        .groups = groups,
        .group_offsets = case_routing(c, m / top_k, groups, top_k).group_offsets,
        .dy = case_rows(c, m, p->n, 1.0f),
        .x = case_rows(c, m, p->k, 1.0f),
        .dw = case_rows(c, groups * p->n, p->k, 1.0f),
    };
}

/* rows, n, k, groups, of a token */
static const struct case_shape cases[] = {
    {8, {4, 1, 20}, {0, 1, 50}, {0, 1, 70}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_F32},
    {3, {4, 60, 180}, {8, 1, 12}, {8, 1, 12}, {1, 4, 6}, {1, 1, 4}, {0}, DTYPE_F32},
    {2, {4, 520, 600}, {8, 1, 12}, {8, 1, 12}, {1, 4, 4}, {4, 1, 1}, {0}, DTYPE_F32},
};

static void problem(const void *args, struct op_problem *out)
{
    const struct grouped_wgrad_args *a = args;
    *out = (struct op_problem){
        .rows = a->m, .dtype = a->dy.dtype, .n = a->n, .k = a->k, .groups = a->groups};
}

const struct op op_grouped_wgrad = {
    .name = "grouped_wgrad",
    .summary = "dW of each group += dY^T X over its rows",
    .args_size = sizeof(struct grouped_wgrad_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 4e-6f, [NUMERICS_BF16] = 8e-3f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_F32, .n = 2880, .k = 2880, .groups = 32},
    .matrices = {{OP_READS, offsetof(struct grouped_wgrad_args, dy)},
                 {OP_READS, offsetof(struct grouped_wgrad_args, x)},
                 {OP_UPDATES, offsetof(struct grouped_wgrad_args, dw)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
