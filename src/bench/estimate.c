/* A step's time is taken to grow linearly with the depth and with the number of sequences; rows of
 * a prompt cost what they cost without a context, and as much for the context as a step's. That is
 * right within a factor of two, which is what deciding whether to wait needs. */
#include "bench/estimate.h"

#include <math.h>

enum { PROMPT = 64, STEPS = 2, QUICK = 3 };

/* Repetitions of a test whose noise is as small as the precision that is wanted, and of one that is
 * noisier: medians of such tests on a quiet GPU and on a virtual machine with two busy cores. */
static const struct {
    double warmups, counted;
} quiet = {5, 7}, noisy = {12, 25};

struct speeds {
    double row, step;            /* seconds of a prompt's row and of a step, without a context */
    double step_deep, step_wide; /* at the greatest depth; with the most sequences */
    int64_t depth, parallel;     /* these */
    bool noisy;
};

static enum sol_status time_test(const struct model *model, const struct bench_params *params,
                                 struct bench_test test, double *seconds, bool *is_noisy)
{
    struct bench_params quick = *params;
    struct bench_result result;
    quick.repetitions = QUICK;
    quick.ops = false;
    quick.whole = NULL;
    enum sol_status status = bench_run(model, &quick, &test, &result);
    *seconds = 1e-9 * result.speed.value * (double)test.n_parallel;
    /* Short runs are noisier than long ones: twice the precision is still quiet. */
    double limit = test.n_gen ? 0.01 : 0.02;
    *is_noisy = *is_noisy || result.speed.sd > limit; /* not where it is NaN */
    bench_result_free(&result);
    return status;
}

static enum sol_status measure(const struct model *model, const struct bench_params *params,
                               struct speeds *s)
{
    int64_t most = model->config.context, prompt = most < PROMPT ? most : PROMPT;
    SOL_TRY(time_test(model, params, (struct bench_test){prompt, 0, 0, 1}, &s->row, &s->noisy));
    SOL_TRY(time_test(model, params, (struct bench_test){0, STEPS, 0, 1}, &s->step, &s->noisy));
    s->step_deep = s->step_wide = s->step;
    if (s->depth)
        SOL_TRY(time_test(model, params, (struct bench_test){0, STEPS, s->depth, 1}, &s->step_deep,
                          &s->noisy));
    if (s->parallel > 1)
        SOL_TRY(time_test(model, params, (struct bench_test){0, STEPS, 0, s->parallel},
                          &s->step_wide, &s->noisy));
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

/* What is begun within the time is finished. */
static double repetitions_within(double seconds, double repetition, double wanted, double least)
{
    double most = repetition > 0 ? ceil(seconds / repetition) : wanted;
    return fmax(least, fmin(wanted, most));
}

static double test_seconds(const struct bench_params *p, double repetition, bool is_noisy)
{
    double extra = p->ops ? repetition : 0, most = p->seconds > 0 ? p->seconds : 60;
    if (p->repetitions) return repetition * (p->repetitions + 1) + extra;
    double least = p->seconds > 0 ? 1 : BENCH_REPETITIONS;
    double warmups = is_noisy ? noisy.warmups : quiet.warmups;
    double counted = is_noisy ? noisy.counted : quiet.counted;
    return repetition * (repetitions_within(most / 4, repetition, warmups, 1) +
                         repetitions_within(most, repetition, counted, least)) +
           extra;
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
        seconds[i] = test_seconds(params, repetition_seconds(&s, &tests[i]), s.noisy);
    return SOL_OK;
}
