/* See run.h. */
#include "train/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "train/bpb.h"
#include "train/run_log.h"

enum { MESSAGE = 1024 };

static const double smoothing = 0.9; /* of the loss that people look at */

struct run {
    const struct train_run_params *p;
    const struct train_recipe *recipe;
    struct trainer *trainer;
    struct loader *loader;
    struct run_log *log;
    struct probe *probe;
    int32_t *token_bytes;
    float *nll;
    int64_t micro, rows;        /* of an update, each rank's; of tokens of a micro-batch */
    struct communicator *ranks; /* NULL: alone */
    bool leads;                 /* writes what is kept */
    bool agreed;                /* on the last error */
    int64_t step;               /* updates that were put */
    int64_t seen;               /* of those, whose results were looked at */
    uint64_t epoch, last_ns;
    double smooth;               /* without its correction for having begun at 0 */
    int64_t smoothed;            /* how many it is of */
    char saved[CHECKPOINT_PATH]; /* the last checkpoint; "": none */
};

/* ---- ranks ---- */

/* Where one rank may have failed and the others did not: all stop together. Whatever else ranks do
 * together comes behind an agreement, so that one that failed since the last meets the others in
 * the next. */
static enum sol_status agree(struct run *r, enum sol_status status)
{
    status = communicator_agree(r->ranks, status);
    r->agreed = r->ranks && status != SOL_OK;
    return status;
}

/* How something ended that has agreements in it. */
static enum sol_status tell(struct run *r, enum sol_status status)
{
    return status == SOL_OK || r->agreed ? status : agree(r, status);
}

/* ---- set up ---- */

static double state_number(const struct run *r, const char *key)
{
    return json_number_value(json_object_get(r->p->state, key));
}

/* *ahead: documents are read up to an epoch before rows have them. */
static enum sol_status open_loader(struct run *r, const struct corpus *corpus,
                                   const json_t *position, bool *ahead, struct loader **out)
{
    struct loader_options o;
    loader_options_init(corpus, &o);
    o.tokens = r->recipe->length;
    o.rows = trainer_sequences(r->trainer);
    o.total_rows = o.rows * trainer_ranks(r->trainer);
    o.first_row = o.rows * trainer_rank(r->trainer);
    o.position = position;
    if (r->p->packing >= 0) o.packing = (enum packing_kind)r->p->packing;
    *ahead = o.packing != PACKING_STREAM;
    return loader_open(&o, out);
}

static enum sol_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return SOL_OK;
    return status_set(SOL_E_IO, "cannot make the folder '%s': %s", path, strerror(errno));
}

static enum sol_status set_up(struct run *r)
{
    const struct train_run_params *p = r->p;
    bool ahead;
    const int64_t sequences = trainer_sequences(r->trainer), ranks = trainer_ranks(r->trainer);
    r->rows = sequences * r->recipe->length;
    SOL_TRY(recipe_micro_batches(r->recipe, sequences * ranks, &r->micro));
    r->step = r->seen = p->first_step;
    r->smooth = state_number(r, "smooth");
    r->smoothed = (int64_t)state_number(r, "smoothed");
    SOL_TRY(open_loader(r, p->corpus, json_object_get(p->state, "position"), &ahead, &r->loader));
    if (p->tokenizer)
        SOL_TRY(bpb_token_bytes(p->tokenizer, r->recipe->config.vocab, &r->token_bytes));
    r->nll = calloc((size_t)r->rows, sizeof *r->nll);
    if (!r->nll) return status_set(SOL_E_MEMORY, "no memory for losses");
    if (p->probe && r->leads) SOL_TRY(probe_create(p->probe, r->trainer, &r->probe));
    if (!p->out) return SOL_OK;
    if (p->first_step) SOL_TRY(checkpoint_path(p->out, p->first_step, r->saved));
    if (!r->leads) return SOL_OK;
    SOL_TRY(make_folder(p->out));
    return run_log_open(p->out, p->first_step, &r->log);
}

/* ---- what happens at a step ---- */

/* What an evaluation adds up. */
struct sums {
    struct train_evaluation e;
    struct bpb bpb;
};

static void add_batch(const struct run *r, const struct train_batch *b, struct sums *sums)
{
    for (int64_t k = 0; k < r->rows; k++) {
        sums->e.targets += b->y[k] >= 0;
        sums->e.nll += (double)r->nll[k];
    }
    if (r->token_bytes) bpb_add(&sums->bpb, r->token_bytes, b->y, r->nll, r->rows);
}

/* Each rank's share. Once through the data is enough, if there is less of it than asked for. What
 * rows are packed from is read up to a round before it is in one. */
static enum sol_status evaluate_share(struct run *r, struct sums *sums)
{
    uint64_t last_epoch = 0;
    struct loader *loader;
    const int64_t batches = r->p->eval_tokens / (r->rows * trainer_ranks(r->trainer));
    bool ahead;
    SOL_TRY(open_loader(r, r->p->validation, NULL, &ahead, &loader));
    enum sol_status status = SOL_OK;
    for (int64_t i = 0; status == SOL_OK && i < (batches > 0 ? batches : 1); i++) {
        struct train_batch b;
        status = loader_next(loader, &b);
        if (status == SOL_OK && i == 0) last_epoch = b.epoch + ahead;
        if (status == SOL_OK && b.epoch > last_epoch) break;
        const struct micro_batch batch = {.x = b.x, .y = b.y, .order = b.order};
        if (status == SOL_OK) status = trainer_evaluate(r->trainer, &batch, r->nll);
        if (status == SOL_OK) status = interrupt_check();
        if (status == SOL_OK) add_batch(r, &b, sums);
    }
    loader_close(loader);
    return status;
}

/* All ranks' shares, in the order of ranks. */
static enum sol_status add_shares(const struct run *r, struct sums *sums)
{
    const int ranks = trainer_ranks(r->trainer);
    if (!r->ranks) return SOL_OK;
    struct sums *all = calloc((size_t)ranks, sizeof *all);
    if (!all) return status_set(SOL_E_MEMORY, "no memory for an evaluation");
    enum sol_status status = communicator_all_gather(r->ranks, sums, sizeof *sums, all);
    for (int i = 0; i < ranks && status == SOL_OK; i++) {
        if (i == 0) *sums = all[0];
        if (i == 0) continue;
        sums->e.nll += all[i].e.nll;
        sums->e.targets += all[i].e.targets;
        sums->bpb.nats += all[i].bpb.nats;
        sums->bpb.bytes += all[i].bpb.bytes;
    }
    free(all);
    return status;
}

static enum sol_status evaluate(struct run *r)
{
    struct sums sums = {.e = {.step = r->step, .bpb = NAN}};
    if (!r->p->validation) return SOL_OK;
    SOL_TRY(agree(r, evaluate_share(r, &sums)));
    SOL_TRY(add_shares(r, &sums));
    struct train_evaluation *e = &sums.e;
    e->nll /= e->targets ? (double)e->targets : 1;
    if (r->token_bytes) e->bpb = bpb_value(&sums.bpb);
    if (r->p->on_evaluation) r->p->on_evaluation(r->p->arg, e);
    r->last_ns = clock_ns();
    /* The log of a run that is resumed at its end has this line already. */
    const bool logged = r->p->state && r->step == r->p->first_step;
    return r->log && !logged ? run_log_evaluation(r->log, e) : SOL_OK;
}

static enum sol_status on_sample(void *arg, const char *prompt, const char *text)
{
    struct run *r = arg;
    const struct train_sample s = {.step = r->step, .prompt = prompt, .text = text};
    if (r->p->on_sample) r->p->on_sample(r->p->arg, &s);
    return r->log ? run_log_sample(r->log, &s) : interrupt_check();
}

/* A long run is not lost because something could not be said of it. */
static enum sol_status go_on_without(struct run *r, enum sol_status status)
{
    r->last_ns = clock_ns();
    if (status == SOL_OK || status == SOL_E_INTERRUPTED || status == SOL_E_IO) return status;
    LOG_WARN("%s; the run goes on without CORE and samples", sol_last_error());
    probe_destroy(r->probe);
    r->probe = NULL;
    return SOL_OK;
}

static enum sol_status sample(struct run *r)
{
    return go_on_without(r, probe_samples(r->probe, on_sample, r));
}

static enum sol_status measure_core(struct run *r)
{
    struct core_result result;
    enum sol_status status = probe_core(r->probe, &result);
    if (status != SOL_OK) return go_on_without(r, status);
    if (r->p->on_core) r->p->on_core(r->p->arg, r->step, &result);
    status = r->log ? run_log_core(r->log, r->step, &result) : SOL_OK;
    core_result_free(&result);
    r->last_ns = clock_ns();
    return status;
}

static enum sol_status stop_at(const struct run *r, const struct train_step *s)
{
    return status_set(SOL_E_MISMATCH,
                      "step %lld: the loss is %g and the norm of the gradients %g; training stops. "
                      "%s%s",
                      (long long)s->step, fabs(s->loss), fabs(s->norm), /* no "-nan" */
                      *r->saved ? "The last checkpoint is " : "No checkpoint was saved before",
                      r->saved);
}

/* The results of one update, the oldest that was not looked at. */
static enum sol_status look(struct run *r)
{
    struct train_step s = {.step = r->seen, .steps = r->recipe->iterations, .epoch = r->epoch};
    SOL_TRY(trainer_results(r->trainer, r->seen, &s.loss, &s.norm));
    const uint64_t now = clock_ns();
    if (!isfinite(s.loss) || !isfinite(s.norm)) return stop_at(r, &s);
    r->seen++;
    r->smooth = smoothing * r->smooth + (1 - smoothing) * s.loss;
    r->smoothed++;
    s.smooth = r->smooth / (1 - pow(smoothing, (double)r->smoothed));
    s.lr = recipe_rates(r->recipe, s.step).lr;
    s.seconds = (double)(now - r->last_ns) * 1e-9;
    s.tokens = r->recipe->total_batch;
    r->last_ns = now;
    if (r->p->on_step) r->p->on_step(r->p->arg, &s);
    return r->log ? run_log_step(r->log, &s) : SOL_OK;
}

/* What a checkpoint has of the run. */
static enum sol_status describe(struct run *r, json_t **out)
{
    json_t *position = NULL;
    *out = NULL;
    SOL_TRY(loader_position(r->loader, &position));
    *out = json_pack("{s:o, s:f, s:I}", "position", position, "smooth", r->smooth, "smoothed",
                     (json_int_t)r->smoothed);
    return *out ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a checkpoint");
}

static enum sol_status write_checkpoint(struct run *r, const char *path)
{
    json_t *state;
    enum sol_status status = agree(r, describe(r, &state));
    const struct checkpoint_parts parts = {
        .recipe = r->recipe, .step = r->step, .state = state, .tokenizer = r->p->tokenizer_path};
    if (status == SOL_OK) status = agree(r, checkpoint_save(r->trainer, &parts, path));
    json_decref(state);
    return status;
}

static enum sol_status look_at_all(struct run *r)
{
    while (r->seen < r->step) SOL_TRY(look(r));
    return SOL_OK;
}

/* All updates that were put are looked at: what is saved is known to be numbers. What is saved
 * already stays, as where Ctrl-C comes right after it. */
static enum sol_status save(struct run *r)
{
    char path[CHECKPOINT_PATH];
    SOL_TRY(agree(r, look_at_all(r)));
    if (!r->p->out) return SOL_OK;
    SOL_TRY(checkpoint_path(r->p->out, r->step, path));
    if (strcmp(path, r->saved) == 0) return SOL_OK;
    SOL_TRY(write_checkpoint(r, path));
    snprintf(r->saved, sizeof r->saved, "%s", path);
    if (r->p->on_save) r->p->on_save(r->p->arg, path);
    r->last_ns = clock_ns();
    return SOL_OK;
}

static enum sol_status put_micro(struct run *r, const struct train_batch *b, bool last, bool timed)
{
    const double weight = 1.0 / (double)(r->micro * trainer_ranks(r->trainer));
    const struct micro_batch batch = {.x = b->x, .y = b->y, .order = b->order, .last = last};
    return trainer_micro(r->trainer, &batch, weight, timed);
}

/* All but the last one of an update, which is read: in that ranks add up. */
static enum sol_status put_micro_batches(struct run *r, struct train_batch *last, bool timed)
{
    for (int64_t m = 0; m < r->micro; m++) {
        SOL_TRY(loader_next(r->loader, last));
        r->epoch = last->epoch;
        if (m + 1 < r->micro) SOL_TRY(put_micro(r, last, false, timed));
    }
    return SOL_OK;
}

/* Data that cannot be read ends a run; what was learnt until then is kept. */
static enum sol_status stop_without_data(struct run *r, enum sol_status status)
{
    char why[MESSAGE];
    if (status == SOL_E_INTERRUPTED || r->step == r->p->first_step) return status;
    snprintf(why, sizeof why, "%s", sol_last_error());
    enum sol_status saved = save(r);
    if (saved == SOL_E_MISMATCH) return saved; /* what was learnt is no number */
    return status_set(status, "%s", why);
}

static enum sol_status put_update(struct run *r, bool timed)
{
    struct train_batch last;
    enum sol_status status = agree(r, put_micro_batches(r, &last, timed));
    if (status != SOL_OK) return stop_without_data(r, status);
    SOL_TRY(put_micro(r, &last, true, timed));
    return trainer_update(r->trainer, r->step, timed);
}

/* A GPU works on this step while the host looks at the one before. */
static enum sol_status update(struct run *r)
{
    const bool timed = r->p->op_times && r->step == r->p->timed_step;
    if (timed) train_op_times_reset(r->trainer);
    trainer_step_begin(r->trainer);
    enum sol_status status = put_update(r, timed), ended = trainer_step_end(r->trainer);
    SOL_TRY(status);
    SOL_TRY(ended);
    if (timed) train_op_times_read(r->trainer, r->micro, true, r->p->op_times);
    r->step++;
    loader_mark(r->loader);
    /* On the host the step is over. */
    const int64_t behind = trainer_stream(r->trainer) ? 1 : 0;
    return r->step - r->seen > behind ? look(r) : SOL_OK;
}

static bool falls_on(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* Of what is done every so many updates, and at the end: not again where the run goes on. */
static bool is_due(const struct run *r, int64_t every)
{
    if (r->step == r->p->first_step) return false;
    return r->step == r->recipe->iterations || falls_on(every, r->step);
}

/* What is said of the weights as they are. */
static enum sol_status look_at_weights(struct run *r)
{
    const struct train_run_params *p = r->p;
    const bool last = r->step == r->recipe->iterations, first = r->step == 0 && p->eval_every > 0;
    const bool evaluated = last || first || is_due(r, p->eval_every);
    const bool core = r->probe && p->probe->core && is_due(r, p->core_every);
    const bool sampled = r->probe && p->probe->samples && is_due(r, p->sample_every);
    if (!evaluated && !core && !sampled) return SOL_OK;
    SOL_TRY(look_at_all(r));
    if (evaluated) SOL_TRY(evaluate(r));
    if (core) SOL_TRY(measure_core(r));
    return sampled && r->probe ? sample(r) : SOL_OK;
}

static enum sol_status go(struct run *r)
{
    const int64_t last = r->recipe->iterations;
    r->last_ns = clock_ns();
    for (;;) {
        SOL_TRY(look_at_weights(r));
        if (r->step == last || (falls_on(r->p->save_every, r->step) && r->step > r->p->first_step))
            SOL_TRY(save(r));
        if (r->step == last) return SOL_OK;
        SOL_TRY(agree(r, interrupt_check()));
        SOL_TRY(update(r));
    }
}

/* Between two updates: what was put until then is saved, so that nothing is lost. */
static enum sol_status save_interrupted(struct run *r)
{
    SOL_TRY(save(r));
    return status_set(SOL_E_INTERRUPTED, "interrupted at step %lld of %lld%s%s", (long long)r->step,
                      (long long)r->recipe->iterations, *r->saved ? "; saved as " : "", r->saved);
}

/* Whatever ended the run, one reads where it can go on. */
static enum sol_status tell_saved(const struct run *r, enum sol_status status)
{
    char why[MESSAGE];
    if (status == SOL_OK || !*r->saved || strstr(sol_last_error(), r->saved)) return status;
    snprintf(why, sizeof why, "%s", sol_last_error());
    return status_set(status, "%s; the last checkpoint is %s", why, r->saved);
}

enum sol_status train_run(const struct train_run_params *params)
{
    struct run r = {.p = params,
                    .recipe = params->recipe,
                    .trainer = params->trainer,
                    .ranks = trainer_params(params->trainer)->communicator,
                    .leads = trainer_rank(params->trainer) == 0};
    enum sol_status status = agree(&r, set_up(&r));
    if (status == SOL_OK) status = tell(&r, go(&r));
    if (status == SOL_E_INTERRUPTED) status = tell(&r, save_interrupted(&r));
    status = tell_saved(&r, status);
    probe_destroy(r.probe);
    loader_close(r.loader);
    run_log_close(r.log);
    free(r.token_bytes);
    free(r.nll);
    return status;
}
