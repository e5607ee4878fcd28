/* See bench.h. */
#include "train/bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/rng.h"
#include "comm/communicator.h"
#include "gpu/kernel.h"
#include "store/store.h"

struct run {
    struct trainer *trainer;
    const struct train_bench_params *params;
    int32_t *tokens; /* [micro_batches][sequences * length + 1] */
    int64_t rows;
    struct communicator *ranks; /* NULL: alone */
};

static enum sol_status draw_tokens(struct run *r, int64_t vocab)
{
    const int64_t n = r->params->micro_batches * (r->rows + 1);
    struct rng rng;
    r->tokens = malloc((size_t)n * sizeof *r->tokens);
    if (!r->tokens) return status_set(SOL_E_MEMORY, "no memory for tokens");
    rng_seed(&rng, r->params->seed + (uint64_t)trainer_rank(r->trainer));
    for (int64_t i = 0; i < n; i++) r->tokens[i] = (int32_t)rng_range(&rng, 0, vocab - 1);
    return SOL_OK;
}

static enum sol_status micro(struct run *r, int64_t m, bool timed)
{
    const int32_t *at = r->tokens + m * (r->rows + 1);
    const bool last = r->params->update && m + 1 == r->params->micro_batches;
    const struct micro_batch batch = {.x = at, .y = at + 1, .last = last};
    const int64_t all = r->params->micro_batches * trainer_ranks(r->trainer);
    return trainer_micro(r->trainer, &batch, 1.0 / (double)all, timed);
}

/* In the last one ranks add up. */
static enum sol_status micros(struct run *r, bool timed)
{
    const int64_t last = r->params->micro_batches - 1;
    enum sol_status status = SOL_OK;
    for (int64_t m = 0; m < last && status == SOL_OK; m++) status = micro(r, m, timed);
    SOL_TRY(communicator_agree(r->ranks, status));
    SOL_TRY(micro(r, last, timed));
    return trainer_wait(r->trainer);
}

/* What a step took, and how many kernels the driver launched in it. */
struct step_seen {
    double micro_ns, update_ns;
    int64_t micro_kernels, update_kernels;
};

static int64_t kernels_so_far(const struct run *r)
{
    const struct gpu_stream *stream = trainer_stream(r->trainer);
    return stream ? gpu_stream_kernels(stream) : 0;
}

static enum sol_status step_parts(struct run *r, int64_t number, bool timed, struct step_seen *seen)
{
    const uint64_t begin = clock_ns();
    const int64_t before = kernels_so_far(r);
    *seen = (struct step_seen){.micro_ns = 0};
    SOL_TRY(communicator_agree(r->ranks, micros(r, timed)));
    const uint64_t middle = clock_ns();
    const int64_t between = kernels_so_far(r);
    seen->micro_ns = (double)(middle - begin) / (double)r->params->micro_batches;
    seen->micro_kernels = between - before;
    if (!r->params->update) return SOL_OK;
    SOL_TRY(trainer_update(r->trainer, number, timed));
    SOL_TRY(trainer_wait(r->trainer));
    seen->update_ns = (double)(clock_ns() - middle);
    seen->update_kernels = kernels_so_far(r) - between;
    return SOL_OK;
}

static enum sol_status step(struct run *r, int64_t number, bool timed, struct step_seen *seen)
{
    trainer_step_begin(r->trainer);
    enum sol_status status = step_parts(r, number, timed, seen);
    enum sol_status ended = trainer_step_end(r->trainer);
    return status == SOL_OK ? ended : status;
}

/* Of the last step, which ran as graphs do. The first run of a plan is none. */
static enum sol_status count_kernels(const struct run *r, const struct step_seen *last,
                                     struct train_bench_result *out)
{
    out->micro = out->update = (struct train_kernels){-1, -1};
    if (!trainer_stream(r->trainer) || r->params->steps + r->params->warmup < 2) return SOL_OK;
    struct trainer_kernels kernels;
    SOL_TRY(trainer_kernels(r->trainer, &kernels));
    out->micro.plan = r->params->micro_batches * kernels.micro;
    if (r->params->update) out->micro.plan += kernels.last - kernels.micro;
    out->update.plan = kernels.update;
    out->micro.launched = last->micro_kernels;
    out->update.launched = last->update_kernels;
    if (!r->params->update) out->update = (struct train_kernels){-1, -1};
    return SOL_OK;
}

static enum sol_status run_steps(struct run *r, struct train_bench_result *out)
{
    const int64_t n = r->params->steps, warm = r->params->warmup;
    struct step_seen seen = {.micro_ns = 0};
    struct progress progress;
    enum sol_status status = SOL_OK;
    progress_start(&progress, "training", "steps", (size_t)(n + warm));
    for (int64_t i = 0; status == SOL_OK && i < n + warm; i++) {
        const int64_t started = store_now_ns();
        status = step(r, i, false, &seen);
        if (status == SOL_OK) status = communicator_agree(r->ranks, interrupt_check());
        if (i >= warm && status == SOL_OK) {
            out->micros[i - warm] = seen.micro_ns;
            out->updates[i - warm] = seen.update_ns;
            out->samples[i - warm] = (struct sample){
                .ns = seen.micro_ns * (double)r->params->micro_batches + seen.update_ns,
                .joules = NAN,
                .started_ns = started};
        }
        progress_update(&progress, (size_t)i + 1);
    }
    progress_end(&progress);
    SOL_TRY(status);
    return count_kernels(r, &seen, out);
}

static enum sol_status median(const double *values, int64_t n, double *out)
{
    struct figure figure;
    SOL_TRY(figure_of_one(values, (size_t)n, &figure));
    *out = figure.value;
    return SOL_OK;
}

static enum sol_status time_steps(struct run *r, struct train_bench_result *out)
{
    const int64_t n = r->params->steps;
    out->samples = calloc((size_t)n, sizeof *out->samples);
    out->micros = calloc((size_t)n, sizeof *out->micros);
    out->updates = calloc((size_t)n, sizeof *out->updates);
    if (!out->samples || !out->micros || !out->updates)
        return status_set(SOL_E_MEMORY, "no memory for times");
    SOL_TRY(run_steps(r, out));
    samples_label_outliers(out->samples, (size_t)n);
    SOL_TRY(samples_figure(out->samples, (size_t)n, 1, &out->step_ns));
    SOL_TRY(median(out->micros, n, &out->micro_ns));
    return median(out->updates, n, &out->update_ns);
}

static enum sol_status time_ops(struct run *r, int64_t number, struct train_bench_result *out)
{
    struct step_seen unused;
    train_op_times_reset(r->trainer);
    SOL_TRY(step(r, number, true, &unused));
    train_op_times_read(r->trainer, r->params->micro_batches, r->params->update, &out->ops);
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
    struct run r = {
        .trainer = trainer, .params = params, .ranks = trainer_params(trainer)->communicator};
    const int64_t last = params->steps + params->warmup;
    *out = (struct train_bench_result){.steps = params->steps};
    r.rows = trainer_sequences(trainer) * recipe->length;
    out->tokens = r.rows * params->micro_batches * trainer_ranks(trainer);
    enum sol_status status = communicator_agree(r.ranks, draw_tokens(&r, recipe->config.vocab));
    if (status == SOL_OK) status = time_steps(&r, out);
    if (status == SOL_OK) status = time_ops(&r, last, out);
    if (status == SOL_OK) status = find_loss(&r, last, out);
    free(r.tokens);
    return status;
}

void train_bench_result_free(struct train_bench_result *result)
{
    free(result->samples);
    free(result->micros);
    free(result->updates);
    *result = (struct train_bench_result){.steps = 0};
}
