/* sol train on a text: opens what the options name, and shows how it goes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "bench/gpu_sensors.h"
#include "cli/engine_options.h"
#include "cli/train_options.h"
#include "cli/train_report.h"
#include "cli/train_tuning.h"
#include "store/store_json.h"
#include "train/run_log.h"

enum { EVAL_TOKENS_GPU = 1 << 20, EVAL_TOKENS_CPU = 1 << 15 };

struct pretrain {
    struct train_command *c;
    struct train_recipe recipe;
    struct trainer *trainer;
    struct tokenizer *tokenizer;
    struct corpus *corpus, *validation;
    struct checkpoint *checkpoint;
    struct core_bundle *core;
    struct probe_params probe;
    size_t probe_bytes;
    char source[CHECKPOINT_PATH]; /* the checkpoint's; "": random weights */
    bool resumes;                 /* goes on with it, else begins with its weights */
    int64_t first_step;
    uint64_t shown_ns;
    struct train_report report;
    struct train_tuned tuned;
    struct train_history history;   /* of the run, also of what was resumed */
    enum sol_status history_status; /* of the first failure to keep it */
    char folder[TRAIN_FOLDER];      /* of checkpoints, an absolute path; "": none */
    char run[STORE_ID_SIZE];        /* in the store; "": it is not kept */
};

/* ---- opening ---- */

enum { OWN_PATH = CHECKPOINT_PATH + 32 };

/* The vocabulary of the checkpoint, or NULL. */
static const char *own_tokenizer(const struct pretrain *p, char path[OWN_PATH])
{
    if (!*p->source) return NULL;
    snprintf(path, OWN_PATH, "%s/tokenizer.json", p->source);
    return access(path, R_OK) == 0 ? path : NULL;
}

static enum sol_status open_tokenizer(struct pretrain *p)
{
    char own[OWN_PATH];
    const char *path = p->c->o.tokenizer ? p->c->o.tokenizer : own_tokenizer(p, own);
    if (!path && (p->c->o.core || p->c->o.prompts.count))
        return status_set(SOL_E_ARGUMENT, "--core and --prompt want --tokenizer");
    return path ? tokenizer_open(path, &p->tokenizer) : SOL_OK;
}

/* What checkpoints get a copy of: other kinds of files are none that they could hold. */
static const char *tokenizer_to_keep(const struct pretrain *p, char own[OWN_PATH])
{
    const char *given = p->c->o.tokenizer;
    const size_t length = given ? strlen(given) : 0;
    if (length > 5 && strcmp(given + length - 5, ".json") == 0) return given;
    return own_tokenizer(p, own);
}

static enum sol_status begin_with(struct pretrain *p, const char *path)
{
    if (snprintf(p->source, sizeof p->source, "%s", path) >= CHECKPOINT_PATH - 64)
        return status_set(SOL_E_ARGUMENT, "the name '%.60s...' is too long", path);
    return checkpoint_open(p->source, &p->checkpoint);
}

/* Which checkpoint the run begins with or goes on from, if any. */
static enum sol_status find_checkpoint(struct pretrain *p)
{
    const struct train_options *o = &p->c->o;
    if (!o->resume && o->resume_from < 0) {
        if (o->out && checkpoint_latest(o->out) >= 0)
            return status_set(SOL_E_ARGUMENT,
                              "'%s' has checkpoints; --resume goes on from the last one, or name "
                              "another folder",
                              o->out);
        return o->init_from ? begin_with(p, o->init_from) : SOL_OK;
    }
    if (o->init_from)
        return status_set(SOL_E_ARGUMENT, "--init-from is for a new run, --resume for one that has "
                                          "checkpoints");
    p->resumes = true;
    if (!o->out) return status_set(SOL_E_ARGUMENT, "--resume wants --out, the run's folder");
    const int64_t latest = checkpoint_latest(o->out);
    const int64_t step = o->resume_from >= 0 ? o->resume_from : latest;
    if (step < 0) return status_set(SOL_E_ARGUMENT, "'%s' has no checkpoint", o->out);
    SOL_TRY(checkpoint_path(o->out, latest, p->source));
    if (step < latest) /* what is saved on the way would meet it */
        return status_set(SOL_E_ARGUMENT,
                          "'%s' is later; move it away, or go on from it with --resume", p->source);
    SOL_TRY(checkpoint_path(o->out, step, p->source));
    SOL_TRY(checkpoint_open(p->source, &p->checkpoint));
    p->first_step = checkpoint_step(p->checkpoint);
    return SOL_OK;
}

static enum sol_status open_corpus(struct pretrain *p, enum corpus_part part, struct corpus **out)
{
    const struct train_options *o = &p->c->o;
    struct corpus_options c;
    corpus_options_init(&c);
    c.path = o->data;
    c.val_path = o->validation;
    c.val_percent = o->val_percent;
    c.split =
        o->split && strcmp(o->split, "paragraphs") == 0 ? CORPUS_BLANK_LINES : CORPUS_WHOLE_FILES;
    c.plain_width = (int)o->token_bytes;
    c.tokenizer = p->tokenizer;
    c.vocab = p->recipe.config.vocab;
    return corpus_open(&c, part, out);
}

static enum sol_status settle(struct pretrain *p)
{
    const struct train_options *o = &p->c->o;
    struct train_flags flags = o->flags;
    int64_t vocab = o->vocab ? o->vocab : p->tokenizer ? tokenizer_vocab(p->tokenizer) : 0;
    if (p->checkpoint) vocab = checkpoint_vocab(p->checkpoint);
    if (p->checkpoint && !p->resumes) {
        SOL_TRY(train_flags_take_model(&flags, checkpoint_flags(p->checkpoint)));
        if (flags.num_iterations < 1)
            return status_set(SOL_E_ARGUMENT,
                              "--init-from wants --num-iterations: the dial's horizon is for "
                              "random weights");
    } else if (p->checkpoint) {
        /* All but how much is worked on at once is the run's own. */
        flags = *checkpoint_flags(p->checkpoint);
        if (o->flags.device_batch_size > 0) flags.device_batch_size = o->flags.device_batch_size;
        if (o->flags.num_iterations > 0) flags.num_iterations = o->flags.num_iterations;
    }
    if (!vocab)
        return status_set(SOL_E_ARGUMENT,
                          "give --tokenizer, or --vocab-size where --data is of tokens");
    SOL_TRY(recipe_settle(&flags, vocab, &p->recipe));
    if (p->first_step > p->recipe.iterations)
        return status_set(SOL_E_ARGUMENT, "'%s' is behind the end of a run of %lld updates",
                          p->source, (long long)p->recipe.iterations);
    int64_t micro_batches; /* before anything is allocated */
    return p->recipe.device_batch
               ? recipe_micro_batches(&p->recipe, p->recipe.device_batch, &micro_batches)
               : SOL_OK;
}

static bool has_probe(const struct pretrain *p)
{
    return p->probe.core || p->probe.samples;
}

enum { SAMPLE_EVERY = 2000 };

/* What nobody asked for does not keep a model from being trained. */
static enum sol_status give_up_samples(struct pretrain *p, enum sol_status status)
{
    if (p->core || p->c->o.sample_every != FLAG_UNSET || p->c->o.prompts.count) return status;
    LOG_WARN("no samples: %s", sol_last_error());
    p->probe.samples = false;
    return SOL_OK;
}

/* What is to be said of the model beside its loss, and what that takes. */
static enum sol_status open_probe(struct pretrain *p, struct trainer_params *params)
{
    const struct train_options *o = &p->c->o;
    const bool core = o->core && o->core_every != -1;
    if (core) SOL_TRY(core_bundle_open(o->core, &p->core));
    p->probe = (struct probe_params){.tokenizer = p->tokenizer,
                                     .core = p->core,
                                     .samples = p->tokenizer && o->sample_every != -1,
                                     .prompts = &o->prompts};
    if (o->core_max_per_task > 0) p->probe.core_max_per_task = (size_t)o->core_max_per_task;
    if (!has_probe(p)) return SOL_OK;
    SOL_TRY(probe_check(&p->probe));
    enum sol_status status = probe_memory(&p->probe, params, &p->probe_bytes);
    params->reserve = p->probe_bytes;
    return status == SOL_OK ? SOL_OK : give_up_samples(p, status);
}

static enum sol_status open_parts(struct pretrain *p, struct trainer_params *params)
{
    if (!p->c->o.data)
        return status_set(SOL_E_ARGUMENT, "sol train wants --data, a text or a folder of texts");
    SOL_TRY(find_checkpoint(p));
    SOL_TRY(open_tokenizer(p));
    SOL_TRY(settle(p));
    SOL_TRY(open_corpus(p, CORPUS_TRAIN, &p->corpus));
    if (p->c->o.eval_every != -1) SOL_TRY(open_corpus(p, CORPUS_VAL, &p->validation));
    train_params_of(p->c, &p->recipe, params);
    if (p->c->store) SOL_TRY(train_measure_limits(p->c, &p->recipe));
    return open_probe(p, params);
}

static enum sol_status load(struct pretrain *p)
{
    SOL_TRY(trainer_init(p->trainer));
    return p->checkpoint ? checkpoint_load(p->source, p->trainer, p->first_step, p->resumes)
                         : SOL_OK;
}

/* What only one rank cannot do, none does. */
static enum sol_status open_all(struct pretrain *p)
{
    struct trainer_params params;
    struct communicator *ranks = p->c->ranks.communicator;
    SOL_TRY(communicator_agree(ranks, open_parts(p, &params)));
    params.on_choice = train_tuned_see;
    params.on_choice_arg = &p->tuned;
    SOL_TRY(trainer_create(&params, &p->trainer));
    train_tuned_settle(&p->tuned, p->trainer);
    return communicator_agree(ranks, load(p));
}

/* ---- showing ---- */

/* Training goes on without. */
static void remember(struct pretrain *p, enum sol_status status)
{
    if (p->history_status == SOL_OK && status != SOL_OK) LOG_WARN("%s", sol_last_error());
    if (p->history_status == SOL_OK) p->history_status = status;
}

static void print_line(char *text)
{
    if (text) printf("%s\n", text);
    fflush(stdout);
    free(text);
}

/* About one line a second, and the last one. */
static void on_step(void *arg, const struct train_step *s)
{
    struct pretrain *p = arg;
    const uint64_t now = clock_ns(), second = 1000000000u;
    remember(p, train_history_add_step(&p->history, s));
    if (p->c->o.json) {
        print_line(run_log_step_text(s));
        return;
    }
    if (p->c->o.quiet || (now - p->shown_ns < second && s->step + 1 < s->steps)) return;
    p->shown_ns = now;
    printf(
        "step %lld of %lld  loss %.4f  rate %.2f  norm %.3g  %.1f ms  %.0f tokens/s  epoch %llu\n",
        (long long)s->step + 1, (long long)s->steps, s->smooth, s->lr, s->norm, s->seconds * 1e3,
        (double)s->tokens / s->seconds, (unsigned long long)s->epoch);
    fflush(stdout);
}

static void on_evaluation(void *arg, const struct train_evaluation *e)
{
    struct pretrain *p = arg;
    char bits[48] = "";
    remember(p, train_history_add_evaluation(&p->history, e));
    if (p->c->o.json) {
        print_line(run_log_evaluation_text(e));
        return;
    }
    if (isfinite(e->bpb)) snprintf(bits, sizeof bits, ", %.4f bits per byte", e->bpb);
    printf("after %lld updates: validation loss %.4f%s (%lld tokens)\n", (long long)e->step, e->nll,
           bits, (long long)e->targets);
    fflush(stdout);
}

static void on_core(void *arg, int64_t step, const struct core_result *r)
{
    struct pretrain *p = arg;
    remember(p, train_history_add_note(&p->history, step, run_log_core_text(step, r)));
    if (p->c->o.json)
        print_line(run_log_core_text(step, r));
    else
        printf("after %lld updates: CORE %.4f, 95 %% interval %.4f to %.4f (%zu items, %.1f s)\n",
               (long long)step, r->core, r->low, r->high, r->items, r->seconds);
    fflush(stdout);
}

static void on_sample(void *arg, const struct train_sample *s)
{
    struct pretrain *p = arg;
    remember(p, train_history_add_note(&p->history, s->step, run_log_sample_text(s)));
    if (p->c->o.json) {
        print_line(run_log_sample_text(s));
        return;
    }
    if (p->c->o.quiet) return;
    char *prompt = escape_line(s->prompt), *text = escape_line(s->text);
    if (prompt && text)
        printf("sample after %lld updates: %s[%s]\n", (long long)s->step, prompt, text);
    free(prompt);
    free(text);
    fflush(stdout);
}

static void on_save(void *arg, const char *path)
{
    struct pretrain *p = arg;
    if (!p->c->o.json) printf("saved %s\n", path);
    fflush(stdout);
    if (*p->run) remember(p, train_store_run_log(p->c->store, p->run, &p->history));
}

/* The loss of the run's steps, from left to right; taller is more. */
static void print_curve(const struct pretrain *p)
{
    enum { WIDTH = 60, LEVELS = 8 };
    static const char *const bars[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const struct train_step *steps = p->history.steps;
    const size_t n = p->history.n_steps;
    double low = INFINITY, high = -INFINITY;
    if (n < 2 || p->c->o.json || p->c->o.quiet) return;
    for (size_t i = 0; i < n; i++) {
        low = fmin(low, steps[i].smooth);
        high = fmax(high, steps[i].smooth);
    }
    printf("loss %.3f ", steps[0].smooth);
    for (size_t i = 0; i < WIDTH; i++) {
        const double x = steps[i * (n - 1) / (WIDTH - 1)].smooth;
        const double part = high > low ? (x - low) / (high - low) : 0;
        fputs(bars[(int)(part * (LEVELS - 1) + 0.5)], stdout);
    }
    printf(" %.3f\n", steps[n - 1].smooth);
}

/* ---- the store ---- */

/* What was before the checkpoint. A log that is damaged is as long as it is whole; train_run cuts
 * it there too. */
static void read_past(struct pretrain *p)
{
    char path[CHECKPOINT_PATH + 16];
    if (!p->resumes) return;
    snprintf(path, sizeof path, "%s/log.jsonl", p->c->o.out);
    if (access(path, R_OK) != 0) return;
    if (train_history_read_file(&p->history, path) != SOL_OK) LOG_WARN("%s", sol_last_error());
    train_history_cut(&p->history, p->first_step);
}

static enum sol_status begin_run(struct pretrain *p)
{
    const struct train_command *c = p->c;
    const struct train_store_begin how = {.label = c->o.label, .argc = c->argc, .argv = c->argv};
    read_past(p);
    if (!c->store) return SOL_OK;
    if (c->o.out) {
        mkdir(c->o.out, 0777); /* train_run says what is wrong with it */
        if (!realpath(c->o.out, p->folder)) p->folder[0] = '\0';
    }
    return train_store_run_begin(c->store, &p->report, &how, *p->folder ? p->folder : NULL,
                                 p->resumes, p->run);
}

/* `status`: how training ended; its message is the run's reason. */
static enum sol_status keep_run(struct pretrain *p, enum sol_status status)
{
    char reason[512] = "", *payload;
    if (!*p->run) return SOL_OK;
    const enum store_state state = status == SOL_OK ? STORE_OK : STORE_PARTIAL;
    if (status != SOL_OK) snprintf(reason, sizeof reason, "%s", sol_last_error());
    if (p->report.result.ops.count == 0) /* no update was made: all stays as it is */
        return store_run_finish(p->c->store, p->run, state, *reason ? reason : NULL, NULL);
    SOL_TRY(train_report_of_history(&p->history, &p->report));
    SOL_TRY(store_json_text(train_report_run_json(&p->report, *p->folder ? p->folder : NULL),
                            &payload));
    enum sol_status kept = train_store_run_end(p->c->store, p->run, &p->report, &p->history, state,
                                               *reason ? reason : NULL, payload);
    free(payload);
    return kept;
}

/* ---- the run ---- */

/* As train_run_params has it. */
static int packing_of(const char *word)
{
    static const char *const words[] = {
        [PACKING_BEST_FIT] = "bestfit", [PACKING_STREAM] = "stream", [PACKING_PAD] = "pad"};
    for (int i = 0; word && i < (int)(sizeof words / sizeof *words); i++)
        if (strcmp(word, words[i]) == 0) return i;
    return -1;
}

static void print_ranks(const struct ranks *r)
{
    printf("%d ranks, started by %s (%s), %d of them on this host\n", r->launch.size, r->launch.by,
           r->launch.from, r->host_ranks);
}

static enum sol_status go(struct pretrain *p)
{
    const struct train_options *o = &p->c->o;
    const int64_t eval_tokens = p->c->gpu ? EVAL_TOKENS_GPU : EVAL_TOKENS_CPU;
    char own[OWN_PATH];
    const bool leads = ranks_lead(&p->c->ranks);
    const struct train_run_params params = {
        .recipe = &p->recipe,
        .trainer = p->trainer,
        .corpus = p->corpus,
        .validation = p->validation,
        .tokenizer = p->tokenizer,
        .tokenizer_path = tokenizer_to_keep(p, own),
        .packing = packing_of(o->packing),
        .out = o->out,
        .first_step = p->first_step,
        .state = p->resumes ? checkpoint_state(p->checkpoint) : NULL,
        .eval_every = o->eval_every,
        .eval_tokens = o->eval_tokens ? o->eval_tokens : eval_tokens,
        .save_every = o->save_every,
        .timed_step = p->first_step + 1 < p->recipe.iterations ? p->first_step + 1 : p->first_step,
        .op_times = *p->run ? &p->report.result.ops : NULL,
        .probe = has_probe(p) ? &p->probe : NULL,
        .core_every = o->core_every,
        .sample_every = o->sample_every == FLAG_UNSET ? SAMPLE_EVERY : o->sample_every,
        .on_step = leads ? on_step : NULL,
        .on_evaluation = leads ? on_evaluation : NULL,
        .on_core = leads ? on_core : NULL,
        .on_sample = leads ? on_sample : NULL,
        .on_save = leads ? on_save : NULL,
        .arg = p,
    };
    if (leads && !o->json && !o->quiet) {
        if (p->c->ranks.communicator) print_ranks(&p->c->ranks);
        SOL_TRY(train_report_memory(&p->report, stdout));
        train_tuning_print(&p->tuned, stdout);
        printf("%lld updates of %lld tokens%s%s\n", (long long)p->recipe.iterations,
               (long long)p->recipe.total_batch, *p->source ? ", from " : "", p->source);
    }
    struct watch watch;
    watch_start(&watch);
    enum sol_status status = train_run(&params);
    watch_stop(&watch, &p->report.watch);
    if (p->c->gpu) p->report.device_bytes = gpu_sensors_memory(gpu_info(p->c->gpu));
    if (leads) print_curve(p);
    return status;
}

/* A run that cannot be kept is one all the same; how it ended is what counts. */
static enum sol_status go_and_keep(struct pretrain *p)
{
    p->report = (struct train_report){.recipe = &p->recipe,
                                      .trainer = p->trainer,
                                      .gpu = p->c->gpu,
                                      .bf16 = train_is_bf16(p->c),
                                      .updates = true,
                                      .tuned = &p->tuned,
                                      .probe = p->probe_bytes,
                                      .ceiling = &p->c->ceiling};
    SOL_TRY(communicator_agree(p->c->ranks.communicator, begin_run(p)));
    enum sol_status status = go(p);
    char message[1024];
    snprintf(message, sizeof message, "%s", status == SOL_OK ? "" : sol_last_error());
    enum sol_status kept = keep_run(p, status);
    if (status != SOL_OK) return status_set(status, "%s", message);
    if (kept == SOL_OK && *p->run && !p->c->o.json && !p->c->o.quiet) printf("run %s\n", p->run);
    return kept;
}

enum sol_status train_pretrain(struct train_command *c)
{
    struct pretrain p = {.c = c, .tuned = {.chooser = &c->chooser}};
    enum sol_status status = open_all(&p);
    if (status == SOL_OK) status = go_and_keep(&p);
    trainer_destroy(p.trainer);
    corpus_close(p.corpus);
    corpus_close(p.validation);
    core_bundle_close(p.core);
    checkpoint_close(p.checkpoint);
    tokenizer_destroy(p.tokenizer);
    train_history_free(&p.history);
    return status;
}
