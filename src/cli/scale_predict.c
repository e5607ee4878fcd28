/* What sol scale predicts: the step that was measured, its ops, and the ways to spread it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/status.h"
#include "cli/engine_options.h"
#include "cli/scale_private.h"

/* ---- what was measured, in words ---- */

static void say_step(struct scale *s, double tokens)
{
    struct scale_report *r = &s->report;
    char ms[NUMBER_SIZE], speed[NUMBER_SIZE];
    r->one_ns = s->found.step_ns;
    r->one_tokens = tokens;
    snprintf(r->step, sizeof r->step, "%s ms, %s tokens/s, %s%s",
             number_text(1e-6 * r->one_ns, 4, ms), number_text(1e9 * tokens / r->one_ns, 4, speed),
             *s->found.run ? "run " : "as given", s->found.run);
}

static bool is_used(const struct scale_report *r, int64_t ranks)
{
    for (int c = 0; c < r->n_counts; c++)
        for (int i = 0; i < r->counts[c].n_ways; i++)
            if (r->counts[c].ways[i].part_measured && r->counts[c].ways[i].tensor == ranks)
                return true;
    return false;
}

/* Parts whose computing is not predicted. */
static void say_parts(struct scale *s)
{
    char *text = s->report.step;
    const size_t size = sizeof s->report.step;
    const char *before = "; measured too: a GPU's part of ";
    for (int i = 0; i < s->found.n_parts; i++) {
        const size_t at = strlen(text);
        if (!is_used(&s->report, s->found.parts[i].ranks)) continue;
        snprintf(text + at, size - at, "%s%lld", before, (long long)s->found.parts[i].ranks);
        before = ", ";
    }
}

static void say_calls(struct scale *s, double calls)
{
    struct scale_report *r = &s->report;
    if (r->call_ns > 0)
        snprintf(r->calls, sizeof r->calls,
                 "%.0f, of which each takes %.1f us whatever its size (by a step of one row)",
                 calls, 1e-3 * r->call_ns);
    else
        snprintf(r->calls, sizeof r->calls,
                 "%.0f; what they take whatever their size is not known (--row-ms), and left out",
                 calls);
}

/* ---- counts ---- */

static enum sol_status next_count(struct scale *s, int64_t gpus, struct scale_count **out)
{
    struct scale_report *r = &s->report;
    if (r->n_counts == SCALE_COUNTS_MAX)
        return status_set(SOL_E_ARGUMENT, "more than %d numbers of GPUs", SCALE_COUNTS_MAX);
    *out = &r->counts[r->n_counts++];
    (*out)->gpus = gpus;
    return SOL_OK;
}

/* ---- a model that runs ---- */

static enum sol_status prepare_model(struct scale *s, struct scale_model *m)
{
    const struct scale_options *o = s->o;
    struct engine_params *p = &m->engine;
    engine_params_init(p);
    p->chooser.device.gpu = s->gpu;
    /* Ranks have its parts, and so has what is compared with them. */
    SOL_TRY(chooser_force(&p->chooser, "attn_moe=composed"));
    m->limits = s->report.limits;
    if (!dtype_from_name(o->kv, &p->kv_dtype) ||
        (p->kv_dtype != DTYPE_F16 && p->kv_dtype != DTYPE_BF16 && p->kv_dtype != DTYPE_F32))
        return status_set(SOL_E_ARGUMENT, "--kv %s: the cache is kept in f16, bf16 or f32", o->kv);
    if (m->task.depth + m->task.prompt + 1 > m->model->config.context)
        return status_set(SOL_E_ARGUMENT, "%lld tokens are more than the %lld that %s is made for",
                          (long long)(m->task.depth + m->task.prompt + 1),
                          (long long)m->model->config.context, m->model->name);
    return SOL_OK;
}

static enum sol_status find_call(struct scale *s, struct scale_model *m)
{
    struct work row;
    if (!(s->found.row_ns > 0)) return SOL_OK;
    SOL_TRY(scale_model_row(m, &row));
    s->report.call_ns = scale_call_ns(&row, s->found.row_ns);
    return SOL_OK;
}

static void describe_task(struct scale *s, const struct scale_model *m)
{
    const struct scale_task *t = &m->task;
    char *text = s->report.what;
    const size_t size = sizeof s->report.what;
    const char *name = m->model->name;
    if (t->sequences && t->prompt)
        snprintf(text, size, "%.120s: steps of %lld sequences and %lld tokens of prompts", name,
                 (long long)t->sequences, (long long)t->prompt);
    else if (t->sequences)
        snprintf(text, size, "%.120s: %lld sequence%s, %lld tokens before", name,
                 (long long)t->sequences, t->sequences > 1 ? "s together" : "",
                 (long long)t->depth);
    else
        snprintf(text, size, "%.120s: a prompt of %lld tokens in steps of %lld, %lld before", name,
                 (long long)t->prompt, (long long)t->chunk, (long long)t->depth);
}

static enum sol_status scale_runs(struct scale *s, struct scale_model *m)
{
    const struct scale_options *o = s->o;
    const struct work *one;
    SOL_TRY(scale_find_step(&o->given, m->model->name, &m->task, &s->found));
    SOL_TRY(scale_open_device(s));
    SOL_TRY(prepare_model(s, m));
    SOL_TRY(find_call(s, m));
    const struct scale_measured measured = {.step_ns = s->found.step_ns,
                                            .call_ns = s->report.call_ns,
                                            .ops = s->found.ops,
                                            .n_ops = s->found.n_ops,
                                            .parts = s->found.parts,
                                            .n_parts = s->found.n_parts};
    SOL_TRY(scale_model_work(m, 1, 1, &one));
    describe_task(s, m);
    say_step(s, scale_task_tokens(&m->task));
    say_calls(s, work_calls(one));
    for (size_t i = 0; i < o->gpus.count; i++) {
        struct scale_count *c;
        SOL_TRY(next_count(s, o->gpus.values[i], &c));
        SOL_TRY(scale_model_ways(m, &s->network, &measured, c->gpus, s->report.memory, c->ways,
                                 &c->n_ways));
    }
    say_parts(s);
    for (int i = 0; i < m->n_kept; i++)
        scale_report_account(&s->report, "step", m->kept[i].ranks, m->kept[i].divide,
                             &m->kept[i].work);
    return SOL_OK;
}

enum sol_status scale_run_model(struct scale *s)
{
    static const struct model_params later = {.later = true};
    const struct scale_options *o = s->o;
    struct model *model;
    SOL_TRY(model_open_with(o->model, &later, &model));
    struct scale_model m = {.model = model,
                            .task = {.sequences = o->sequences || o->prompt ? o->sequences : 1,
                                     .depth = o->depth,
                                     .prompt = o->prompt,
                                     .chunk = o->chunk}};
    const enum sol_status status = scale_runs(s, &m);
    scale_model_free(&m);
    model_close(model);
    return status;
}

/* ---- a model that trains ---- */

static enum sol_status add_training(struct scale *s, const struct scale_training *t, int64_t gpus)
{
    struct scale_count *c;
    const struct scale_trained measured = {s->found.step_ns, s->found.update_ns};
    SOL_TRY(next_count(s, gpus, &c));
    SOL_TRY(scale_training_ways(t, &s->network, &measured, gpus, s->report.memory, c->ways,
                                &c->n_ways));
    if (c->n_ways) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "%lld tokens of an update are no whole micro-batches for %lld GPUs",
                      (long long)t->tokens, (long long)gpus);
}

static enum sol_status account_training(struct scale *s, const struct scale_training *t,
                                        int64_t ranks)
{
    struct work micro, update;
    SOL_TRY(scale_training_work(t, ranks, t->params.sequences, &micro, &update));
    scale_report_account(&s->report, "micro-batch", ranks, 1, &micro);
    scale_report_account(&s->report, "update", ranks, 1, &update);
    if (ranks == 1) say_calls(s, work_calls(&micro) + work_calls(&update));
    return SOL_OK;
}

enum sol_status scale_train_model(struct scale *s)
{
    struct scale_options *o = s->o;
    struct train_recipe recipe;
    struct scale_training t = {.micro_batches = o->micro_batches};
    char name[64];
    const int64_t total = o->flags.total_batch_size;
    const int64_t sequences = o->flags.device_batch_size > 0 ? o->flags.device_batch_size : 32;
    if (o->flags.num_iterations < 1) o->flags.num_iterations = 1;
    o->flags.device_batch_size = sequences;
    o->flags.total_batch_size = sequences * o->flags.max_seq_len * o->micro_batches;
    SOL_TRY(recipe_settle(&o->flags, o->vocab, &recipe));
    const double tokens = (double)(o->micro_batches * sequences * recipe.length);
    snprintf(name, sizeof name, "%.20s d%lld", recipe.flags.recipe, (long long)o->flags.depth);
    SOL_TRY(scale_find_training(&o->given, name, tokens, &s->found));
    SOL_TRY(scale_open_device(s));
    trainer_params_init(&t.params);
    t.params.recipe = &recipe;
    t.params.sequences = sequences;
    t.params.bf16 = true;
    t.params.chooser.device.gpu = s->gpu;
    t.limits = s->report.limits;
    t.tokens = total > 0 ? total : 0;
    snprintf(s->report.what, sizeof s->report.what,
             "training, %s, micro-batches of %lld x %lld tokens, %s", name, (long long)sequences,
             (long long)recipe.length, total > 0 ? "an update's tokens divided" : "as many a GPU");
    say_step(s, tokens);
    SOL_TRY(account_training(s, &t, 1));
    for (size_t i = 0; i < o->gpus.count; i++) {
        const int64_t gpus = o->gpus.values[i];
        SOL_TRY(add_training(s, &t, gpus));
        if (gpus > 1) SOL_TRY(account_training(s, &t, gpus));
    }
    return SOL_OK;
}
