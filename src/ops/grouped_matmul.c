/* grouped_matmul: products of rows with the weights of their group, forward (W transposed) and for
 * the gradient of what went in. */
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/grouped_matmul.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct grouped_matmul_args *a = args;
    const int32_t *offsets = a->host_offsets ? a->host_offsets : a->group_offsets;
    const double used = cost_groups_used(offsets, a->groups) / (double)a->groups;
    return (struct op_cost){2 * (double)(a->m * a->n) * (double)a->k,
                            used * matrix_bytes(&a->w) + matrix_bytes(&a->a) +
                                (a->add ? 2 : 1) * matrix_bytes(&a->out)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct grouped_matmul_args *a = args;
    float *out = matrix_floats(&a->out);
    for (int64_t g = 0; g < a->groups; g++) {
        const float *w = matrix_floats(&a->w) + g * a->n * a->k;
        for (int64_t i = a->group_offsets[g]; i < a->group_offsets[g + 1]; i++) {
            const float *x = matrix_floats(&a->a) + i * a->k;
            for (int64_t j = 0; j < a->n; j++) {
                double sum = a->add ? (double)out[i * a->n + j] : 0;
                for (int64_t k = 0; k < a->k; k++)
                    sum +=
                        (double)x[k] * (double)(a->transpose ? w[j * a->k + k] : w[k * a->n + j]);
                out[i * a->n + j] = (float)sum;
            }
        }
    }
}

static void make(struct case_maker *c, const struct op_problem *p, int flags,
                 struct grouped_matmul_args *a)
{
    const int64_t groups = p->groups ? p->groups : 1, top_k = p->top_k ? p->top_k : 1;
    const int64_t m = p->rows / top_k * top_k, n = p->n, k = p->k;
    const bool transpose = !(flags & 1), add = flags & 2;
    *a = (struct grouped_matmul_args){
        .m = m,
        .n = n,
        .k = k,
        .groups = groups,
        .transpose = transpose,
        .add = add,
        .group_offsets = case_routing(c, m / top_k, groups, top_k).group_offsets,
        .a = case_rows(c, m, k, 1.0f),
        .w = case_rows(c, groups * (transpose ? n : k), transpose ? k : n, 1.0f),
        .out = add ? case_rows(c, m, n, 1.0f) : case_output(c, m, n),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, p->transposed ? 0 : 1, args);
}

/* rows, n, k, groups, of a token */
static const struct case_shape cases[] = {
    {8, {4, 1, 20}, {0, 1, 70}, {0, 1, 90}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_F32},
    {4, {4, 40, 80}, {8, 1, 20}, {8, 1, 60}, {1, 4, 6}, {1, 1, 4}, {0}, DTYPE_F32},
    {4, {4, 100, 200}, {8, 1, 20}, {8, 1, 12}, {1, 4, 4}, {4, 1, 1}, {0}, DTYPE_F32},
};

static bool make_case(struct case_maker *c, void *args)
{
    struct op_problem p = {0};
    if (!CASE_OF(c, cases, &p)) return false;
    make(c, &p, c->index & 3, args);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct grouped_matmul_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->a.dtype,
                               .n = a->n,
                               .k = a->k,
                               .groups = a->groups,
                               .transposed = a->transpose ? 2 : 0};
}

const struct op op_grouped_matmul = {
    .name = "grouped_matmul",
    .summary = "out = A op(W of the row's group), or added to what is there",
    .args_size = sizeof(struct grouped_matmul_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 4e-6f, [NUMERICS_BF16] = 8e-3f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual =
        {.rows = 8192, .dtype = DTYPE_F32, .n = 2880, .k = 2880, .groups = 32, .transposed = 2},
    .matrices = {{OP_READS, offsetof(struct grouped_matmul_args, a)},
                 {OP_READS, offsetof(struct grouped_matmul_args, w)},
                 {OP_UPDATES, offsetof(struct grouped_matmul_args, out)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
