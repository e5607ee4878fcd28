/* combine_backward: the gradient of the residual stream, weighted, to each expert's row, and along
 * each row to its weight. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/combine_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct combine_backward_args *a = args;
    return (struct op_cost){3 * (double)(a->m * a->top_k * a->n),
                            matrix_bytes(&a->y) + matrix_bytes(&a->dy) + matrix_bytes(&a->dx) +
                                12 * (double)(a->m * a->top_k)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct combine_backward_args *a = args;
    for (int64_t slot = 0; slot < a->m * a->top_k; slot++) {
        const int64_t row = a->routing.row_of_slot[slot] * a->n;
        const float *dx = matrix_floats(&a->dx) + slot / a->top_k * a->n;
        const float *y = matrix_floats(&a->y) + row;
        float *dy = matrix_floats(&a->dy) + row;
        double along = 0;
        for (int64_t j = 0; j < a->n; j++) {
            along += (double)y[j] * (double)dx[j];
            dy[j] = a->routing.weight[slot] * dx[j];
        }
        a->dweight[slot] = (float)along;
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    enum { EXPERTS = 32, CASE_EXPERTS = 9 };
    const int64_t experts = c->kind == CASE_TIMED ? EXPERTS : CASE_EXPERTS;
    *(struct combine_backward_args *)args = (struct combine_backward_args){
        .m = p->rows,
        .n = p->n,
        .top_k = p->top_k,
        .routing = case_routing(c, p->rows, experts, p->top_k),
        .y = case_rows(c, p->rows * p->top_k, p->n, 1.0f),
        .dx = case_rows(c, p->rows, p->n, 1.0f),
        .dy = case_output(c, p->rows * p->top_k, p->n),
        .dweight = case_vector(c, p->rows * p->top_k, 1.0f),
    };
}

/* rows, n, of a token */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 5, 300}, {0}, {0}, {1, 1, 4}, {0}, DTYPE_F32}};

/* Sums of products may cancel: a token's weights are judged together. */
static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct combine_backward_args *a = args;
    const int64_t slots = a->m * a->top_k;
    out[0] = (struct op_output){offsetof(struct combine_backward_args, dweight), (size_t)slots * 4,
                                true, slots, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct combine_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->dx.dtype, .n = a->n, .top_k = a->top_k};
}

const struct op op_combine_backward = {
    .name = "combine_backward",
    .summary = "dy of a grouped row = weight * dx of its token, dweight = y . dx",
    .args_size = sizeof(struct combine_backward_args),
    .problem = problem,
    .tolerance = {{5e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 2880, .top_k = 4},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct combine_backward_args, y)},
                 {OP_READS, offsetof(struct combine_backward_args, dx)},
                 {OP_WRITES, offsetof(struct combine_backward_args, dy)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
