/* combine: the experts' results, weighted, into the residual stream. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/combine.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct combine_args *a = args;
    double count = (double)(a->m * a->n);
    return (struct op_cost){2 * count * (double)a->top_k, 4 * count * (double)(a->top_k + 2)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct combine_args *a = args;
    float *x = matrix_floats(&a->x);
    const float *y = matrix_floats(&a->y);
    for (int64_t i = 0; i < a->m; i++) {
        for (int64_t d = 0; d < a->n; d++) {
            double sum = x[i * a->n + d];
            for (int64_t j = 0; j < a->top_k; j++) {
                int64_t slot = i * a->top_k + j;
                if (a->routing.row_of_slot[slot] < 0) continue;
                sum += (double)a->routing.weight[slot] * y[a->routing.row_of_slot[slot] * a->n + d];
            }
            x[i * a->n + d] = (float)sum;
        }
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    enum { EXPERTS = 32, CASE_EXPERTS = 9 };
    *(struct combine_args *)args = (struct combine_args){
        .m = p->rows,
        .n = p->n,
        .top_k = p->top_k,
        .y = case_rows(c, p->rows * p->top_k, p->n, 1.0f),
        .routing =
            case_own_routing(c, p->rows, c->kind == CASE_TIMED ? EXPERTS : CASE_EXPERTS, p->top_k),
        .x = case_rows(c, p->rows, p->n, 1.0f),
    };
}

/* rows, n, of a token */
static const struct case_shape cases[] = {
    {4, {0, 1, 20}, {0, 5, 300}, {0}, {0}, {1, 1, 4}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct combine_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n, .top_k = a->top_k};
}

const struct op op_combine = {
    .name = "combine",
    .summary = "x[i] += sum over the token's experts of weight * y[its grouped row], in place",
    .args_size = sizeof(struct combine_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 2880, .top_k = 4},
    .matrices = {{OP_READS, offsetof(struct combine_args, y)},
                 {OP_UPDATES, offsetof(struct combine_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
