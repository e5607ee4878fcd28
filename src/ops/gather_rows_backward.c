/* gather_rows_backward: a token's grouped rows added up, by rising slot, so that bits do not depend
 * on who does it. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/gather_rows_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct gather_rows_backward_args *a = args;
    return (struct op_cost){(double)(a->m * a->top_k * a->n), matrix_bytes(&a->d) +
                                                                  2 * matrix_bytes(&a->dx) +
                                                                  4 * (double)(a->m * a->top_k)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct gather_rows_backward_args *a = args;
    const float *d = matrix_floats(&a->d);
    float *dx = matrix_floats(&a->dx);
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t c = 0; c < a->n; c++) {
            double sum = (double)dx[i * a->n + c];
            for (int64_t j = 0; j < a->top_k; j++)
                sum += (double)d[a->row_of_slot[i * a->top_k + j] * a->n + c];
            dx[i * a->n + c] = (float)sum;
        }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    enum { EXPERTS = 9 };
    *(struct gather_rows_backward_args *)args = (struct gather_rows_backward_args){
        .m = p->rows,
        .n = p->n,
        .top_k = p->top_k,
        .row_of_slot = case_routing(c, p->rows, EXPERTS, p->top_k).row_of_slot,
        .d = case_rows(c, p->rows * p->top_k, p->n, 1.0f),
        .dx = case_rows(c, p->rows, p->n, 1.0f),
    };
}

/* rows, n, of a token */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 5, 300}, {0}, {0}, {1, 1, 4}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct gather_rows_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->dx.dtype, .n = a->n, .top_k = a->top_k};
}

const struct op op_gather_rows_backward = {
    .name = "gather_rows_backward",
    .summary = "dx of a token += its grouped rows of d",
    .args_size = sizeof(struct gather_rows_backward_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 2880, .top_k = 4},
    .matrices = {{OP_READS, offsetof(struct gather_rows_backward_args, d)},
                 {OP_UPDATES, offsetof(struct gather_rows_backward_args, dx)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
