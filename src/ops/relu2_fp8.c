/* relu2_fp8: relu2 or its gradient, and in the same pass the codes of what it makes. Of a GPT's
 * activations these are the widest, so that a pass for the codes alone costs most there. */
#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/plan.h"

#define OP_LIST "ops/relu2_fp8.list"
#include "ops/variant_table.h"

static size_t codes_bytes(const struct relu2_fp8_args *a)
{
    return (size_t)(a->m * a->n);
}

static struct op_cost cost(const void *args)
{
    const struct relu2_fp8_args *a = args;
    const double count = (double)(a->m * a->n);
    double bytes = 2 * matrix_bytes(&a->x);
    if (a->y.data) bytes += matrix_bytes(&a->y);
    if (a->codes) bytes += count;
    if (a->codes_turned) bytes += count;
    return (struct op_cost){(a->y.data ? 7 : 6) * count, bytes};
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct relu2_fp8_args *a = args;
    if (a->y.data)
        plan_call(plan, &op_relu2_backward,
                  &(struct relu2_backward_args){.m = a->m, .n = a->n, .y = a->y, .d = a->x});
    else
        plan_call(plan, &op_relu2, &(struct relu2_args){.m = a->m, .n = a->n, .x = a->x});
    plan_call(plan, &op_quantise,
              &(struct quantise_args){.m = a->m,
                                      .n = a->n,
                                      .format = a->format,
                                      .scale = a->scale,
                                      .from = a->x,
                                      .codes = a->codes,
                                      .codes_turned = a->codes_turned});
    return SOL_OK;
}

/* In turn: forward and backward, codes in one layout and in both, a scale that nobody knows yet. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct relu2_fp8_args *a = args;
    const bool timed = c->kind == CASE_TIMED, backward = p->dtype == DTYPE_FP8_E5M2;
    struct quantise_scale *scale = ARENA_NEW(c->arena, struct quantise_scale, 1);
    *a = (struct relu2_fp8_args){.m = p->rows, .n = p->n, .format = p->dtype, .scale = scale};
    if (scale)
        *scale = (struct quantise_scale){.amax = 0.125f, .scale = c->index % 3 == 2 ? 0 : 16};
    a->x = case_rows(c, p->rows, p->n, 1.0f);
    if (backward) a->y = case_rows(c, p->rows, p->n, 1.0f);
    for (int64_t i = 0; backward && a->y.data && i < p->rows * p->n; i++) {
        float *y = matrix_floats(&a->y) + i;
        *y = *y < 0 ? 0 : *y; /* as relu2 leaves it */
    }
    if (timed || c->index % 4 != 1) a->codes = arena_alloc(c->arena, codes_bytes(a), 64);
    if (backward || c->index % 4 == 1) a->codes_turned = arena_alloc(c->arena, codes_bytes(a), 64);
}

/* rows, n; then as training has them */
static const struct case_shape cases[] = {
    {4, {0, 1, 300}, {0, 1, 150}, {0}, {0}, {0}, {0}, DTYPE_FP8_E4M3},
    {4, {0, 1, 300}, {0, 1, 150}, {0}, {0}, {0}, {0}, DTYPE_FP8_E5M2},
    {4, {16, 1, 20}, {16, 1, 16}, {0}, {0}, {0}, {0}, DTYPE_FP8_E4M3},
    {4, {16, 1, 20}, {16, 1, 16}, {0}, {0}, {0}, {0}, DTYPE_FP8_E5M2}};

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct relu2_fp8_args *a = args;
    int n = 0;
    out[n++] = (struct op_output){offsetof(struct relu2_fp8_args, scale), sizeof *a->scale, false,
                                  0, DTYPE_F32};
    if (a->codes)
        out[n++] = (struct op_output){offsetof(struct relu2_fp8_args, codes), codes_bytes(a), false,
                                      0, DTYPE_F32};
    if (a->codes_turned)
        out[n++] = (struct op_output){offsetof(struct relu2_fp8_args, codes_turned), codes_bytes(a),
                                      false, 0, DTYPE_F32};
    return n;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct relu2_fp8_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->format, .n = a->n};
}

const struct op op_relu2_fp8 = {
    .name = "relu2_fp8",
    .summary = "relu2, or relu2_backward, in place, and the result in FP8 as quantise has it",
    .args_size = sizeof(struct relu2_fp8_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .compose = compose,
    .calls = {&op_relu2, &op_relu2_backward, &op_quantise},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_FP8_E4M3, .n = 5120},
    .more_outputs = more_outputs,
    .matrices = {{OP_UPDATES, offsetof(struct relu2_fp8_args, x)},
                 {OP_READS, offsetof(struct relu2_fp8_args, y)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
