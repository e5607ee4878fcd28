/* delayed_scale: scales of FP8 for the next step, from what the last ones have seen. */
#include <math.h>
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/quantise.h"

#define OP_LIST "ops/delayed_scale.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct delayed_scale_args *a = args;
    return (struct op_cost){(double)(a->m * a->n), 2 * matrix_bytes(&a->rows)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct delayed_scale_args *a = args;
    const int64_t length = a->n - QUANTISE_SCALE_FLOATS;
    for (int64_t i = 0; i < a->m; i++) {
        float *row = matrix_floats(&a->rows) + i * a->n, *history = row + QUANTISE_SCALE_FLOATS;
        struct quantise_scale *s = (struct quantise_scale *)(void *)row;
        memmove(history + 1, history, sizeof *history * (size_t)(length - 1));
        history[0] = s->amax;
        float amax = 0;
        for (int64_t j = 0; j < length; j++) amax = fmaxf(amax, history[j]);
        const float scale = fp8_scale_for(a->formats[i % 3], amax);
        if (scale > 0) s->scale = scale;
        s->amax = 0;
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct delayed_scale_args *a = args;
    *a = (struct delayed_scale_args){.m = p->rows,
                                     .n = p->n,
                                     .formats = {DTYPE_FP8_E4M3, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2},
                                     .rows = case_output(c, p->rows, p->n)};
    float *x = a->rows.data;
    for (int64_t i = 0; x && i < p->rows * p->n; i++)
        x[i] = i % 7 == 3 ? 0 : fabsf(rng_normal(c->rng)) * (c->kind == CASE_EXTREME ? 1e30f : 1);
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 4) return false;
    const struct op_problem p = {.rows = case_size(c, 1, 30),
                                 .n = case_size(c, 1, 20) + QUANTISE_SCALE_FLOATS};
    make_problem(c, &p, args);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct delayed_scale_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = DTYPE_F32, .n = a->n};
}

const struct op op_delayed_scale = {
    .name = "delayed_scale",
    .summary = "amax moves into the history, whose largest makes the next scale of FP8",
    .args_size = sizeof(struct delayed_scale_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 360, .dtype = DTYPE_F32, .n = 19},
    .matrices = {{OP_UPDATES, offsetof(struct delayed_scale_args, rows)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
