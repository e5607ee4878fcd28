/* See bench.h. */
#include "train/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/rng.h"
#include "stats/samples.h"

struct run {
    struct trainer *trainer;
    const struct train_bench_params *params;
    int32_t *tokens; /* [micro_batches][sequences * length + 1] */
    int64_t rows;
};

static enum sol_status draw_tokens(struct run *r, int64_t vocab)
{
    const int64_t n = r->params->micro_batches * (r->rows + 1);
    struct rng rng;
    r->tokens = malloc((size_t)n * sizeof *r->tokens);
    if (!r->tokens) return status_set(SOL_E_MEMORY, "no memory for tokens");
    rng_seed(&rng, r->params->seed);
    for (int64_t i = 0; i < n; i++) r->tokens[i] = (int32_t)rng_range(&rng, 0, vocab - 1);
    return SOL_OK;
}

static enum sol_status micro(struct run *r, int64_t m, bool timed)
{
    const int32_t *at = r->tokens + m * (r->rows + 1);
    const struct micro_batch batch = {.x = at, .y = at + 1};
    return trainer_micro(r->trainer, &batch, 1.0 / (double)r->params->micro_batches, timed);
}

static enum sol_status step(struct run *r, int64_t number, bool timed, double *micro_ns,
                            double *update_ns)
{
    const uint64_t begin = clock_ns();
    for (int64_t m = 0; m < r->params->micro_batches; m++) SOL_TRY(micro(r, m, timed));
    SOL_TRY(trainer_wait(r->trainer));
    const uint64_t middle = clock_ns();
    *micro_ns = (double)(middle - begin) / (double)r->params->micro_batches;
    *update_ns = 0;
    if (!r->params->update) return SOL_OK;
    SOL_TRY(trainer_update(r->trainer, number, timed));
    SOL_TRY(trainer_wait(r->trainer));
    *update_ns = (double)(clock_ns() - middle);
    return SOL_OK;
}

static enum sol_status time_steps(struct run *r, struct train_bench_result *out)
{
    const int64_t n = r->params->steps, warm = r->params->warmup;
    struct sample *samples = calloc((size_t)n, sizeof *samples);
    double *micros = calloc((size_t)n, sizeof *micros);
    double *updates = calloc((size_t)n, sizeof *updates);
    struct progress progress;
    enum sol_status status =
        samples && micros && updates ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for times");
    progress_start(&progress, "training", "steps", (size_t)(n + warm));
    for (int64_t i = 0; status == SOL_OK && i < n + warm; i++) {
        double micro_ns, update_ns;
        status = step(r, i, false, &micro_ns, &update_ns);
        if (status == SOL_OK) status = interrupt_check();
        if (i >= warm && status == SOL_OK) {
            micros[i - warm] = micro_ns;
            updates[i - warm] = update_ns;
            samples[i - warm] = (struct sample){
                .ns = micro_ns * (double)r->params->micro_batches + update_ns, .joules = NAN};
        }
        progress_update(&progress, (size_t)i + 1);
    }
    progress_end(&progress);
    if (status == SOL_OK) status = samples_figure(samples, (size_t)n, 1, &out->step_ns);
    if (status == SOL_OK) {
        samples_sort(micros, (size_t)n);
        samples_sort(updates, (size_t)n);
        out->micro_ns = samples_percentile(micros, (size_t)n, 0.5);
        out->update_ns = samples_percentile(updates, (size_t)n, 0.5);
    }
    free(samples);
    free(micros);
    free(updates);
    return status;
}

/* ---- by op ---- */

static struct train_op_time *find(struct train_bench_result *out, const struct plan_step *s)
{
    for (int i = 0; i < out->n_ops; i++)
        if (out->ops[i].op == s->op->name && strcmp(out->ops[i].variant, s->variant) == 0)
            return &out->ops[i];
    if (out->n_ops == TRAIN_OPS_MAX) return NULL;
    out->ops[out->n_ops] =
        (struct train_op_time){.op = s->op->name, .variant = s->variant, .numerics = s->numerics};
    return &out->ops[out->n_ops++];
}

static void add_plan(const struct plan *plan, int64_t times, struct train_bench_result *out)
{
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct plan_step *s = plan_step_at(plan, i);
        struct train_op_time *t = find(out, s);
        if (!t) continue;
        const struct op_cost cost = s->op->cost(s->args);
        t->calls += times;
        t->runs += (int64_t)s->runs;
        t->ns += (double)s->ns;
        t->flops += (double)times * cost.flops;
        t->bytes += (double)times * cost.bytes;
    }
}

static int slower(const void *a, const void *b)
{
    const struct train_op_time *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static enum sol_status time_ops(struct run *r, int64_t number, struct train_bench_result *out)
{
    double unused[2];
    plan_reset_times(trainer_micro_plan(r->trainer));
    plan_reset_times(trainer_update_plan(r->trainer));
    SOL_TRY(step(r, number, true, &unused[0], &unused[1]));
    add_plan(trainer_micro_plan(r->trainer), r->params->micro_batches, out);
    if (r->params->update) add_plan(trainer_update_plan(r->trainer), 1, out);
    qsort(out->ops, (size_t)out->n_ops, sizeof *out->ops, slower);
    return SOL_OK;
}

/* An update that is not timed tells whether the numbers are numbers. */
static enum sol_status find_loss(struct run *r, int64_t number, struct train_bench_result *out)
{
    double norm;
    if (!r->params->update) SOL_TRY(trainer_update(r->trainer, number, false));
    SOL_TRY(trainer_results(r->trainer, number, &out->loss, &norm));
    if (!r->params->update) /* the gradients of all steps were added up */
        out->loss /= (double)(r->params->steps + r->params->warmup + 1);
    if (isfinite(out->loss) && isfinite(norm)) return SOL_OK;
    return status_set(SOL_E_MISMATCH, "the loss is %g and the gradients' norm %g", out->loss, norm);
}

enum sol_status train_bench(struct trainer *trainer, const struct train_recipe *recipe,
                            const struct train_bench_params *params, struct train_bench_result *out)
{
    struct run r = {.trainer = trainer, .params = params};
    const int64_t last = params->steps + params->warmup;
    *out = (struct train_bench_result){.steps = params->steps};
    r.rows = trainer_sequences(trainer) * recipe->length;
    out->tokens = r.rows * params->micro_batches;
    enum sol_status status = draw_tokens(&r, recipe->config.vocab);
    if (status == SOL_OK) status = time_steps(&r, out);
    if (status == SOL_OK) status = time_ops(&r, last, out);
    if (status == SOL_OK) status = find_loss(&r, last, out);
    free(r.tokens);
    return status;
}
