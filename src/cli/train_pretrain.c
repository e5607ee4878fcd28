/* sol train on a text: opens what the options name, and shows how it goes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "cli/engine_options.h"
#include "cli/train_options.h"
#include "cli/train_report.h"
#include "train/run_log.h"

enum { CURVE_MAX = 4096, EVAL_TOKENS_GPU = 1 << 20, EVAL_TOKENS_CPU = 1 << 15 };

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
    char resumed[CHECKPOINT_PATH]; /* "": a new run */
    int64_t first_step;
    uint64_t shown_ns;
    double *curve; /* smoothed loss of each step of this process */
    int64_t n_curve, curve_capacity;
};

/* ---- opening ---- */

enum { OWN_PATH = CHECKPOINT_PATH + 32 };

/* The vocabulary of the checkpoint that the run goes on from, or NULL. */
static const char *own_tokenizer(const struct pretrain *p, char path[OWN_PATH])
{
    if (!*p->resumed) return NULL;
    snprintf(path, OWN_PATH, "%s/tokenizer.json", p->resumed);
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

/* Which checkpoint the run goes on from, if any. */
static enum sol_status find_checkpoint(struct pretrain *p)
{
    const struct train_options *o = &p->c->o;
    if (!o->resume && o->resume_from < 0) {
        if (!o->out || checkpoint_latest(o->out) < 0) return SOL_OK;
        return status_set(SOL_E_ARGUMENT,
                          "'%s' has checkpoints; --resume goes on from the last one, or name "
                          "another folder",
                          o->out);
    }
    if (!o->out) return status_set(SOL_E_ARGUMENT, "--resume wants --out, the run's folder");
    const int64_t latest = checkpoint_latest(o->out);
    const int64_t step = o->resume_from >= 0 ? o->resume_from : latest;
    if (step < 0) return status_set(SOL_E_ARGUMENT, "'%s' has no checkpoint", o->out);
    SOL_TRY(checkpoint_path(o->out, latest, p->resumed));
    if (step < latest) /* what is saved on the way would meet it */
        return status_set(SOL_E_ARGUMENT,
                          "'%s' is later; move it away, or go on from it with --resume",
                          p->resumed);
    SOL_TRY(checkpoint_path(o->out, step, p->resumed));
    SOL_TRY(checkpoint_open(p->resumed, &p->checkpoint));
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
    if (p->checkpoint) {
        /* All but how much is worked on at once is the run's own. */
        flags = *checkpoint_flags(p->checkpoint);
        if (o->flags.device_batch_size > 0) flags.device_batch_size = o->flags.device_batch_size;
        if (o->flags.num_iterations > 0) flags.num_iterations = o->flags.num_iterations;
        vocab = checkpoint_vocab(p->checkpoint);
    }
    if (!vocab)
        return status_set(SOL_E_ARGUMENT,
                          "give --tokenizer, or --vocab-size where --data is of tokens");
    SOL_TRY(recipe_settle(&flags, vocab, &p->recipe));
    if (p->first_step > p->recipe.iterations)
        return status_set(SOL_E_ARGUMENT, "'%s' is behind the end of a run of %lld updates",
                          p->resumed, (long long)p->recipe.iterations);
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

static enum sol_status open_all(struct pretrain *p)
{
    struct trainer_params params;
    if (!p->c->o.data)
        return status_set(SOL_E_ARGUMENT, "sol train wants --data, a text or a folder of texts");
    SOL_TRY(find_checkpoint(p));
    SOL_TRY(open_tokenizer(p));
    SOL_TRY(settle(p));
    SOL_TRY(open_corpus(p, CORPUS_TRAIN, &p->corpus));
    if (p->c->o.eval_every != -1) SOL_TRY(open_corpus(p, CORPUS_VAL, &p->validation));
    train_params_of(p->c, &p->recipe, &params);
    SOL_TRY(open_probe(p, &params));
    SOL_TRY(trainer_create(&params, &p->trainer));
    SOL_TRY(trainer_init(p->trainer));
    return p->checkpoint ? checkpoint_load(p->resumed, p->trainer, true) : SOL_OK;
}

/* ---- showing ---- */

static void remember(struct pretrain *p, double smooth)
{
    if (p->n_curve == p->curve_capacity) {
        int64_t wanted = p->curve_capacity ? 2 * p->curve_capacity : CURVE_MAX;
        double *grown = realloc(p->curve, (size_t)wanted * sizeof *grown);
        if (!grown) return; /* a picture less */
        p->curve = grown;
        p->curve_capacity = wanted;
    }
    p->curve[p->n_curve++] = smooth;
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
    remember(p, s->smooth);
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
    const struct pretrain *p = arg;
    char bits[48] = "";
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
    const struct pretrain *p = arg;
    if (p->c->o.json)
        print_line(run_log_core_text(step, r));
    else
        printf("after %lld updates: CORE %.4f, 95 %% interval %.4f to %.4f (%zu items, %.1f s)\n",
               (long long)step, r->core, r->low, r->high, r->items, r->seconds);
    fflush(stdout);
}

static void on_sample(void *arg, const struct train_sample *s)
{
    const struct pretrain *p = arg;
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
    const struct pretrain *p = arg;
    if (!p->c->o.json) printf("saved %s\n", path);
    fflush(stdout);
}

/* The loss of this process's steps, from left to right; taller is more. */
static void print_curve(const struct pretrain *p)
{
    enum { WIDTH = 60, LEVELS = 8 };
    static const char *const bars[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double low = INFINITY, high = -INFINITY;
    if (p->n_curve < 2 || p->c->o.json || p->c->o.quiet) return;
    for (int64_t i = 0; i < p->n_curve; i++) {
        low = fmin(low, p->curve[i]);
        high = fmax(high, p->curve[i]);
    }
    printf("loss %.3f ", p->curve[0]);
    for (int i = 0; i < WIDTH; i++) {
        const double x = p->curve[i * (p->n_curve - 1) / (WIDTH - 1)];
        const double part = high > low ? (x - low) / (high - low) : 0;
        fputs(bars[(int)(part * (LEVELS - 1) + 0.5)], stdout);
    }
    printf(" %.3f\n", p->curve[p->n_curve - 1]);
}

/* ---- the run ---- */

static enum sol_status go(struct pretrain *p)
{
    const struct train_options *o = &p->c->o;
    const int64_t eval_tokens = p->c->gpu ? EVAL_TOKENS_GPU : EVAL_TOKENS_CPU;
    char own[OWN_PATH];
    const struct train_run_params params = {
        .recipe = &p->recipe,
        .trainer = p->trainer,
        .corpus = p->corpus,
        .validation = p->validation,
        .tokenizer = p->tokenizer,
        .tokenizer_path = tokenizer_to_keep(p, own),
        .stream = o->packing && strcmp(o->packing, "stream") == 0,
        .out = o->out,
        .first_step = p->first_step,
        .state = p->checkpoint ? checkpoint_state(p->checkpoint) : NULL,
        .eval_every = o->eval_every,
        .eval_tokens = o->eval_tokens ? o->eval_tokens : eval_tokens,
        .save_every = o->save_every,
        .probe = has_probe(p) ? &p->probe : NULL,
        .core_every = o->core_every,
        .sample_every = o->sample_every == FLAG_UNSET ? SAMPLE_EVERY : o->sample_every,
        .on_step = on_step,
        .on_evaluation = on_evaluation,
        .on_core = on_core,
        .on_sample = on_sample,
        .on_save = on_save,
        .arg = p,
    };
    struct train_report report = {.recipe = &p->recipe,
                                  .trainer = p->trainer,
                                  .gpu = p->c->gpu,
                                  .bf16 = train_is_bf16(p->c),
                                  .probe = p->probe_bytes};
    if (!o->json && !o->quiet) {
        SOL_TRY(train_report_memory(&report, stdout));
        printf("%lld updates of %lld tokens%s%s\n", (long long)p->recipe.iterations,
               (long long)p->recipe.total_batch, *p->resumed ? ", from " : "", p->resumed);
    }
    enum sol_status status = train_run(&params);
    print_curve(p);
    return status;
}

enum sol_status train_pretrain(struct train_command *c)
{
    struct pretrain p = {.c = c};
    enum sol_status status = open_all(&p);
    if (status == SOL_OK) status = go(&p);
    trainer_destroy(p.trainer);
    corpus_close(p.corpus);
    corpus_close(p.validation);
    core_bundle_close(p.core);
    checkpoint_close(p.checkpoint);
    tokenizer_destroy(p.tokenizer);
    free(p.curve);
    return status;
}
