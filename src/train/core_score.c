/* A round takes examples until slots, pages or rows are used up. First it computes what the answers
 * of each share, in one sequence; that is copied into the others; then the rest of all of them. An
 * example with more answers than there is room for has several rounds for itself. */
#include "train/core_score.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "infer/logits.h"
#include "ops/batch.h"

enum {
    CONTEXT = 4096,     /* few-shot prompts of CORE are shorter */
    SEQUENCES_CPU = 16, /* four questions with four answers fill a step of 512 rows */
    SEQUENCES_GPU = 32,
    SHARED_LEAST = 32, /* tokens below which a copy is not worth its launches */
};

/* An answer in a slot. */
struct placed {
    struct core_sequence *sequence;
    size_t shared; /* tokens that it gets from the slot of the first of its part */
    int32_t first; /* that slot */
};

/* Where a row's logits go. */
struct target {
    struct core_sequence *sequence;
    int32_t token;
};

struct verdict {
    double nll;
    bool likely;
};

struct flight {
    struct core_example example;
    size_t index, placed; /* answers that have a place in this round, or were scored before */
};

struct core_scorer {
    struct engine *engine;
    const struct tokenizer *tokenizer;
    int32_t bos;
    int64_t context, sequences, pages, rows_most, vocab;
    struct placed *placed; /* [sequences] */
    int64_t n_placed, pages_used, rows_planned;
    struct flight *flight; /* examples that are not done; at most sequences + 1 */
    size_t n_flight;
    struct engine_row *rows;
    struct target *targets; /* as rows */
    size_t n_rows, rows_capacity, targets_capacity;
    struct verdict *verdicts; /* [max_outputs] */
    const float *logits;      /* of the step that is looked at */
    const int32_t *outputs;   /* its rows */
    int64_t first_row;
    int64_t computed;
    core_scored_fn scored;
    void *arg;
};

int64_t core_scorer_context(const struct model *model, int64_t wanted)
{
    if (wanted) return wanted;
    return model->config.context < CONTEXT ? model->config.context : CONTEXT;
}

void core_scorer_prepare(const struct model *model, int64_t context, struct engine_params *p)
{
    p->context = core_scorer_context(model, context);
    p->sequences = p->chooser.device.gpu ? SEQUENCES_GPU : SEQUENCES_CPU;
    p->cache_positions = 2 * p->context + p->sequences * KV_PAGE + 4 * p->max_batch;
    engine_params_settle(p);
    p->max_outputs = logits_rows(model, p->max_batch);
}

enum sol_status core_scorer_create(struct engine *engine, const struct engine_params *params,
                                   struct core_scorer **out)
{
    const struct model *model = engine_model(engine);
    *out = NULL;
    if (!model->tokenizer || tokenizer_begin(model->tokenizer) < 0)
        return status_set(
            SOL_E_UNSUPPORTED,
            "%s: its vocabulary has no token that begins a text, which CORE's prompts "
            "want",
            model->name);
    struct core_scorer *s = calloc(1, sizeof *s);
    if (!s) return status_set(SOL_E_MEMORY, "no memory for scores");
    s->engine = engine;
    s->tokenizer = model->tokenizer;
    s->bos = tokenizer_begin(model->tokenizer);
    s->context = params->context;
    s->sequences = params->sequences;
    s->rows_most = 2 * params->max_batch;
    s->vocab = model->config.vocab;
    s->placed = calloc((size_t)s->sequences, sizeof *s->placed);
    s->flight = calloc((size_t)s->sequences + 1, sizeof *s->flight);
    s->verdicts = calloc((size_t)params->max_outputs, sizeof *s->verdicts);
    if (!s->placed || !s->flight || !s->verdicts) {
        core_scorer_destroy(s);
        return status_set(SOL_E_MEMORY, "no memory for scores");
    }
    for (int32_t i = 0; i < s->sequences; i++) engine_reset(engine, i);
    s->pages = engine_free_positions(engine) / KV_PAGE;
    *out = s;
    return SOL_OK;
}

void core_scorer_destroy(struct core_scorer *s)
{
    if (!s) return;
    for (size_t i = 0; s->flight && i < s->n_flight; i++) core_example_free(&s->flight[i].example);
    free(s->verdicts);
    free(s->targets);
    free(s->rows);
    free(s->flight);
    free(s->placed);
    free(s);
}

int64_t core_scorer_rows(const struct core_scorer *s)
{
    return s->computed;
}

/* ---- a round ---- */

static enum sol_status add_row(struct core_scorer *s, struct core_sequence *q, size_t at,
                               int32_t slot, bool output)
{
    SOL_TRY(array_grow(&s->rows, s->n_rows, &s->rows_capacity, sizeof *s->rows, "a batch"));
    SOL_TRY(
        array_grow(&s->targets, s->n_rows, &s->targets_capacity, sizeof *s->targets, "a batch"));
    s->rows[s->n_rows] = (struct engine_row){q->ids.ids[at], slot, output};
    s->targets[s->n_rows++] = (struct target){q, output ? q->ids.ids[at + 1] : -1};
    return SOL_OK;
}

static void judge(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct core_scorer *s = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *logits = s->logits + i * s->vocab;
        const struct softmax p = softmax_of(logits, s->vocab);
        const int32_t token = s->targets[s->first_row + s->outputs[i]].token;
        s->verdicts[i] = (struct verdict){softmax_nll(&p, logits, token), p.top == token};
    }
}

/* Rows are judged in parallel and added in order, so that sums do not depend on threads. */
static enum sol_status on_logits(void *arg, int64_t first_row, const int32_t *rows, int64_t n,
                                 const float *logits)
{
    struct core_scorer *s = arg;
    s->logits = logits;
    s->outputs = rows;
    s->first_row = first_row;
    pool_for(engine_pool(s->engine), n, 1, judge, s);
    for (int64_t i = 0; i < n; i++) {
        struct core_sequence *q = s->targets[first_row + rows[i]].sequence;
        q->nll += s->verdicts[i].nll;
        q->likely &= s->verdicts[i].likely;
    }
    return SOL_OK;
}

static enum sol_status run_rows(struct core_scorer *s)
{
    const int64_t n = (int64_t)s->n_rows;
    s->n_rows = 0;
    s->computed += n;
    return n ? engine_eval(s->engine, s->rows, n, on_logits, s, NULL) : SOL_OK;
}

/* The last token of a sequence is never an input; row i predicts token i + 1. */
static enum sol_status run_placed(struct core_scorer *s)
{
    for (int32_t slot = 0; slot < s->n_placed; slot++) {
        const struct placed *p = &s->placed[slot];
        for (size_t at = 0; p->first == slot && at < p->shared; at++)
            SOL_TRY(add_row(s, p->sequence, at, slot, false));
    }
    SOL_TRY(run_rows(s));
    for (int32_t slot = 0; slot < s->n_placed; slot++) {
        const struct placed *p = &s->placed[slot];
        if (p->shared && p->first != slot) SOL_TRY(engine_copy(s->engine, p->first, slot));
    }
    for (int32_t slot = 0; slot < s->n_placed; slot++) {
        const struct placed *p = &s->placed[slot];
        struct core_sequence *q = p->sequence;
        for (size_t at = p->shared; at + 1 < q->end; at++)
            SOL_TRY(add_row(s, q, at, slot, at + 1 >= q->begin));
    }
    return run_rows(s);
}

/* Afterwards only an example that is not wholly scored is left. */
static enum sol_status finish_round(struct core_scorer *s)
{
    size_t kept = 0;
    SOL_TRY(run_placed(s));
    for (int32_t slot = 0; slot < s->n_placed; slot++) engine_reset(s->engine, slot);
    s->n_placed = s->pages_used = s->rows_planned = 0;
    for (size_t i = 0; i < s->n_flight; i++) {
        struct flight *f = &s->flight[i];
        if (f->placed < f->example.count) {
            s->flight[kept++] = *f;
            continue;
        }
        s->scored(s->arg, f->index, &f->example);
        core_example_free(&f->example);
    }
    s->n_flight = kept;
    return SOL_OK;
}

/* ---- placing ---- */

static int64_t pages_of(const struct core_sequence *q)
{
    return ((int64_t)q->end + KV_PAGE - 1) / KV_PAGE;
}

/* How many of an example's answers from `from` on there is room for. */
static size_t room_for(const struct core_scorer *s, const struct core_example *e, size_t from)
{
    int64_t slots = s->sequences - s->n_placed, pages = s->pages - s->pages_used;
    size_t n = 0;
    for (size_t i = from; i < e->count && slots > 0; i++, n++, slots--) {
        pages -= pages_of(&e->sequences[i]);
        if (pages < 0) break;
    }
    return n;
}

/* Tokens that `n` sequences begin with, the row before an answer not among them: each needs its
 * logits. */
static size_t shared_by(const struct core_sequence *q, size_t n)
{
    if (n < 2) return 0;
    size_t most = q[0].begin - 1;
    for (size_t i = 1; i < n; i++) {
        size_t same = 0;
        if (q[i].begin - 1 < most) most = q[i].begin - 1;
        while (same < most && q[i].ids.ids[same] == q[0].ids.ids[same]) same++;
        most = same;
    }
    return most < SHARED_LEAST ? 0 : most;
}

static void place(struct core_scorer *s, struct flight *f, size_t n)
{
    struct core_sequence *q = &f->example.sequences[f->placed];
    const size_t shared = shared_by(q, n);
    const int32_t first = (int32_t)s->n_placed;
    s->rows_planned += (int64_t)shared;
    for (size_t i = 0; i < n; i++) {
        q[i].nll = 0;
        q[i].likely = true;
        s->placed[s->n_placed++] = (struct placed){&q[i], shared, first};
        s->pages_used += pages_of(&q[i]);
        s->rows_planned += (int64_t)(q[i].end - shared);
    }
    f->placed += n;
}

static enum sol_status take_example(struct core_scorer *s, const struct core_task *task,
                                    size_t index)
{
    struct flight *f = &s->flight[s->n_flight];
    *f = (struct flight){.index = index};
    SOL_TRY(core_task_example(task, index, s->tokenizer, s->bos, (size_t)s->context, &f->example));
    s->n_flight++;
    while (s->n_flight && f->placed < f->example.count) {
        const size_t left = f->example.count - f->placed, n = room_for(s, &f->example, f->placed);
        const bool whole = n == left || s->n_placed == 0;
        assert(n || s->n_placed);
        if (whole) place(s, f, n);
        if (n < left || s->rows_planned >= s->rows_most) {
            SOL_TRY(finish_round(s));
            f = &s->flight[0]; /* where it is not done it is the only one left */
        }
    }
    return SOL_OK;
}

enum sol_status core_score_task(struct core_scorer *s, const struct core_task *task,
                                core_scored_fn scored, void *arg)
{
    s->scored = scored;
    s->arg = arg;
    for (size_t i = 0; i < core_task_count(task); i++) SOL_TRY(take_example(s, task, i));
    return finish_round(s);
}
