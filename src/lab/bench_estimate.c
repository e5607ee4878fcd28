/* A step's time is taken to grow linearly with the depth and with the number of sequences; rows of
 * a prompt cost what they cost without a context, and as much for the context as a step's. That is
 * right within a factor of two, which is what deciding whether to wait needs. */
#include "lab/bench_estimate.h"

enum { PROMPT = 64, STEPS = 2, WARMUPS = 4, COUNTED = 9 };

struct speeds {
    double row, step;            /* seconds of a prompt's row and of a step, without a context */
    double step_deep, step_wide; /* at the greatest depth; with the most sequences */
    int64_t depth, parallel;     /* these */
};

static enum sol_status time_test(const struct model *model, const struct bench_params *params,
                                 struct bench_test test, double *seconds)
{
    struct bench_params quick = *params;
    struct bench_result result;
    quick.repetitions = 1;
    quick.ops = false;
    enum sol_status status = bench_run(model, &quick, &test, &result);
    *seconds = 1e-9 * result.ns.median / (double)(test.n_prompt + test.n_gen);
    bench_result_free(&result);
    return status;
}

static enum sol_status measure(const struct model *model, const struct bench_params *params,
                               struct speeds *s)
{
    int64_t most = model->config.context, prompt = most < PROMPT ? most : PROMPT;
    SOL_TRY(time_test(model, params, (struct bench_test){prompt, 0, 0, 1}, &s->row));
    SOL_TRY(time_test(model, params, (struct bench_test){0, STEPS, 0, 1}, &s->step));
    s->step_deep = s->step_wide = s->step;
    if (s->depth)
        SOL_TRY(
            time_test(model, params, (struct bench_test){0, STEPS, s->depth, 1}, &s->step_deep));
    if (s->parallel > 1)
        SOL_TRY(
            time_test(model, params, (struct bench_test){0, STEPS, 0, s->parallel}, &s->step_wide));
    return SOL_OK;
}

static double repetition_seconds(const struct speeds *s, const struct bench_test *t)
{
    double depth = s->depth ? (double)t->n_depth / (double)s->depth : 0;
    double deep = depth * (s->step_deep > s->step ? s->step_deep - s->step : 0);
    double wide = s->parallel > 1 ? (double)(t->n_parallel - 1) / (double)(s->parallel - 1) *
                                        (s->step_wide - s->step)
                                  : 0;
    double rows = (double)(t->n_prompt * t->n_parallel), steps = (double)t->n_gen;
    return rows * (s->row + deep) + steps * (s->step + wide + deep * (double)t->n_parallel);
}

static double test_seconds(const struct bench_params *p, double repetition)
{
    double extra = p->ops ? repetition : 0, most = p->seconds > 0 ? p->seconds : 60;
    if (p->repetitions) return repetition * (p->repetitions + 1) + extra;
    double least = p->seconds > 0 ? 1 : BENCH_REPETITIONS, counted = COUNTED * repetition;
    if (counted > most) counted = most > least * repetition ? most : least * repetition;
    double warmup = WARMUPS * repetition;
    if (warmup > most / 4) warmup = most / 4 > repetition ? most / 4 : repetition;
    return warmup + counted + extra;
}

enum sol_status bench_estimate(const struct model *model, const struct bench_params *params,
                               const struct bench_test *tests, size_t n, double *seconds)
{
    struct speeds s = {.depth = 0};
    for (size_t i = 0; i < n; i++) {
        if (tests[i].n_depth > s.depth) s.depth = tests[i].n_depth;
        if (tests[i].n_parallel > s.parallel) s.parallel = tests[i].n_parallel;
    }
    SOL_TRY(measure(model, params, &s));
    for (size_t i = 0; i < n; i++)
        seconds[i] = test_seconds(params, repetition_seconds(&s, &tests[i]));
    return SOL_OK;
}
