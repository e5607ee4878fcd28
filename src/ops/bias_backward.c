/* bias_backward: rows added up by group. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/bias_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct bias_backward_args *a = args;
    return (struct op_cost){(double)(a->m * a->n),
                            matrix_bytes(&a->dy) + 8 * (double)(a->groups * a->n)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct bias_backward_args *a = args;
    const float *dy = matrix_floats(&a->dy);
    for (int64_t g = 0; g < a->groups; g++) {
        const int64_t first = a->group_offsets ? a->group_offsets[g] : 0;
        const int64_t end = a->group_offsets ? a->group_offsets[g + 1] : a->m;
        for (int64_t j = 0; j < a->n; j++) {
            double sum = (double)a->dbias[g * a->n + j];
            for (int64_t i = first; i < end; i++) sum += (double)dy[i * a->n + j];
            a->dbias[g * a->n + j] = (float)sum;
        }
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t groups = p->groups ? p->groups : 1, top_k = p->top_k ? p->top_k : 1;
    const int64_t m = p->rows / top_k * top_k;
    struct bias_backward_args *a = args;
    *a = (struct bias_backward_args){
        .m = m,
        .n = p->n,
        .groups = groups,
        .dy = case_rows(c, m, p->n, 1.0f),
        .dbias = case_vector(c, groups * p->n, 1.0f),
    };
    if (p->groups) a->group_offsets = case_routing(c, m / top_k, groups, top_k).group_offsets;
}

/* rows, n, groups, of a token */
static const struct case_shape cases[] = {
    {4, {0, 1, 40}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {2, {0, 200, 700}, {0, 1, 90}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {6, {4, 1, 60}, {0, 1, 300}, {0}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_F32},
};

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct bias_backward_args *a = args;
    out[0] = (struct op_output){offsetof(struct bias_backward_args, dbias),
                                (size_t)(a->groups * a->n) * 4, true, a->n, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct bias_backward_args *a = args;
    *out = (struct op_problem){
        .rows = a->m, .dtype = a->dy.dtype, .n = a->n, .groups = a->group_offsets ? a->groups : 0};
}

const struct op op_bias_backward = {
    .name = "bias_backward",
    .summary = "dbias of each group += the sum of its rows of dy",
    .args_size = sizeof(struct bias_backward_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_F32, .n = 2880, .groups = 32},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct bias_backward_args, dy)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
