/* sol train bench. */
#include "cli/train_bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "bench/gpu_sensors.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/train_report.h"
#include "store/store_json.h"

/* What one benchmark has at hand. */
struct bench {
    struct train_command *c;
    const struct train_bench_how *how;
    struct train_bench_params params;
    struct train_report report;
    struct train_tuned tuned;
};

static void see_choice(void *arg, const struct op *op, const void *args, int chosen)
{
    struct bench *b = arg;
    train_tuned_see(&b->tuned, op, args, chosen);
    if (b->how->on_choice) b->how->on_choice(b->how->arg, op, args, chosen);
}

static enum sol_status time_bench(struct bench *b)
{
    struct train_report *r = &b->report;
    struct watch watch;
    SOL_TRY(trainer_init(r->trainer));
    if (b->how->says_memory && ranks_lead(&b->c->ranks)) SOL_TRY(train_report_memory(r, stdout));
    watch_start(&watch);
    SOL_TRY(train_bench(r->trainer, r->recipe, &b->params, &r->result));
    watch_stop(&watch, &r->watch);
    if (b->c->gpu) r->device_bytes = gpu_sensors_memory(gpu_info(b->c->gpu));
    return SOL_OK;
}

static enum sol_status show_bench(const struct bench *b, const char *run)
{
    char *payload;
    if (run) {
        SOL_TRY(store_json_text(train_report_json(&b->report, b->how->settings, NULL), &payload));
        enum sol_status status = train_store_bench(b->c->store, run, &b->report, payload);
        free(payload);
        SOL_TRY(status);
    }
    if (!ranks_lead(&b->c->ranks)) return SOL_OK;
    const char *cause = watch_cause(&b->report.watch);
    if (cause) LOG_WARN("%s while this was measured: it may be noise", cause);
    return b->how->show(b->how->arg, &b->report, run);
}

static enum sol_status keep_bench(struct bench *b)
{
    char id[STORE_ID_SIZE] = "";
    struct store *store = b->c->store;
    const struct train_store_begin begin = {
        .kind = "bench", .label = b->how->label, .argc = b->c->argc, .argv = b->c->argv};
    if (store) SOL_TRY(train_store_begin(store, &b->report, &begin, id));
    enum sol_status status = communicator_agree(b->c->ranks.communicator, time_bench(b));
    if (status == SOL_OK) return show_bench(b, *id ? id : NULL);
    /* What it was is more than how that ended. */
    if (*id) store_run_finish(store, id, STORE_PARTIAL, sol_last_error(), NULL);
    return status;
}

enum sol_status train_bench_measure(struct train_command *c, const struct train_recipe *recipe,
                                    const struct train_bench_how *how)
{
    struct trainer_params params;
    struct bench b = {
        .c = c,
        .how = how,
        .params = {.warmup = c->o.warmup,
                   .steps = recipe->iterations,
                   .update = train_updates(c),
                   .micro_batches = c->o.micro_batches,
                   .seed = (uint64_t)recipe->flags.seed},
        .report = {.recipe = recipe,
                   .gpu = c->gpu,
                   .bf16 = train_is_bf16(c),
                   .micro_batches = c->o.micro_batches,
                   .ceiling = &c->ceiling},
    };
    b.report.updates = b.params.update;
    train_params_of(c, recipe, &params);
    params.on_choice = see_choice;
    params.on_choice_arg = &b;
    b.tuned.chooser = &c->chooser;
    b.report.tuned = &b.tuned;
    SOL_TRY(trainer_create(&params, &b.report.trainer));
    train_tuned_settle(&b.tuned, b.report.trainer);
    enum sol_status status = how->check ? how->check(how->arg) : SOL_OK;
    if (status == SOL_OK) status = keep_bench(&b);
    train_bench_result_free(&b.report.result);
    trainer_destroy(b.report.trainer);
    return status;
}

/* The figures are shown also where they do not count; that is the command's error then. */
static enum sol_status show_one(void *arg, const struct train_report *r, const char *run)
{
    const struct train_command *c = arg;
    char reason[TRAIN_REASON];
    const char *invalid = train_invalid(r, reason);
    SOL_TRY(c->o.json ? json_print(train_report_json(r, NULL, run))
                      : train_report_print(r, run, stdout));
    return invalid ? status_set(SOL_E_MISMATCH, "the figures are not valid: %s", invalid) : SOL_OK;
}

enum sol_status train_bench_one(struct train_command *c)
{
    struct train_recipe recipe;
    const struct train_bench_how how = {
        .label = c->o.label, .says_memory = !c->o.json, .show = show_one, .arg = c};
    SOL_TRY(recipe_settle(&c->o.flags, c->o.vocab, &recipe));
    SOL_TRY(train_measure_limits(c, &recipe));
    return train_bench_measure(c, &recipe, &how);
}
