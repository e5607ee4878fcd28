/* clip: what gradients are multiplied with so that their norm stays below a limit. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/clip.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    (void)args;
    return (struct op_cost){4, 8};
}

/* A norm that is no number stays none: the step that it belongs to must be seen to fail. */
static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct clip_args *a = args;
    float factor = a->limit / (sqrtf(*a->sum) + 1e-6f);
    *a->factor = a->limit == 0 || factor > 1 ? 1 : factor;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    (void)p;
    float *sum = case_vector(c, 1, 3.0f), *factor = case_vector(c, 1, 1.0f);
    if (sum) *sum = *sum * *sum * (c->kind == CASE_EXTREME ? 1e20f : 1);
    *(struct clip_args *)args =
        (struct clip_args){.limit = c->index % 3 ? 1.0f : 0, .sum = sum, .factor = factor};
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 6) return false;
    make_problem(c, &(struct op_problem){0}, args);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    (void)args;
    *out = (struct op_problem){.rows = 1};
}

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    (void)args;
    outputs[0] = (struct op_output){offsetof(struct clip_args, factor), 4, true, 1, DTYPE_F32};
    return 1;
}

const struct op op_clip = {
    .name = "clip",
    .summary = "factor = limit / (sqrt(sum) + 1e-6), at most 1; NaN stays NaN",
    .args_size = sizeof(struct clip_args),
    .problem = problem,
    .tolerance = {{1e-6f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
