/* See tune.h. For each number of rows an engine makes one step, so that buffers, routing and cache
 * are a step's. */
#include "check/tune.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"

enum { DEPTHS_MAX = 8 };

/* What a step of these rows is made with. */
struct search {
    const struct tune_params *params;
    struct tune_search search;
    struct engine *engine;
    struct engine_row *rows;
    int64_t n_rows, n_outputs, sequences;
    int64_t depths[DEPTHS_MAX]; /* with room for these rows */
};

/* ---- a step ---- */

static enum sol_status make_plan(void *arg, const struct chooser *chooser, plan_choice_fn on_choice,
                                 void *choice_arg, struct plan **out)
{
    const struct search *s = arg;
    return engine_make_plan(s->engine, chooser, s->n_rows, s->n_outputs, on_choice, choice_arg,
                            out);
}

static enum sol_status pretend(const struct search *s, int64_t depth)
{
    for (int32_t i = 0; i < s->sequences; i++) SOL_TRY(engine_pretend(s->engine, i, depth));
    return SOL_OK;
}

static enum sol_status make_step(void *arg, struct plan *plan, const void *args)
{
    const struct search *s = arg;
    (void)plan, (void)args;
    SOL_TRY(pretend(s, s->search.site.depths[0]));
    return engine_eval(s->engine, s->rows, s->n_rows, NULL, NULL, NULL);
}

/* Every sequence of the step `depth` tokens long, and the batch in place. */
static enum sol_status place(void *arg, int64_t depth)
{
    const struct search *s = arg;
    SOL_TRY(pretend(s, depth));
    return engine_place(s->engine, s->rows, s->n_rows);
}

/* A row of each sequence that wants its logits, or a prompt of one that wants none but the last. */
static enum sol_status make_rows(struct search *s, int64_t vocab)
{
    struct rng rng;
    rng_seed(&rng, 1);
    int64_t n = s->n_rows;
    bool own = s->sequences == n;
    s->rows = calloc((size_t)n, sizeof *s->rows);
    if (!s->rows) return status_set(SOL_E_MEMORY, "no memory for %lld rows", (long long)n);
    for (int64_t i = 0; i < n; i++)
        s->rows[i] = (struct engine_row){.token = (int32_t)rng_range(&rng, 0, vocab - 1),
                                         .sequence = own ? (int32_t)i : 0,
                                         .output = own || i + 1 == n};
    s->n_outputs = own ? n : 1;
    return SOL_OK;
}

/* own: sequences, 1 or as many as rows. */
static enum sol_status search_rows(struct search *s, const struct model *model, int64_t rows,
                                   int64_t own)
{
    struct tune_search *search = &s->search;
    struct engine_params p = s->params->engine;
    int64_t each = rows / own, deepest = 0;
    for (size_t i = 0; i < search->site.n_depths; i++) {
        int64_t most = model->config.context - each;
        s->depths[i] = s->params->depths[i] < most ? s->params->depths[i] : most;
        if (s->depths[i] < 0) s->depths[i] = 0;
        if (s->depths[i] > deepest) deepest = s->depths[i];
    }
    search->step_rows = s->n_rows = rows;
    s->sequences = own;
    p.chooser = search->usual;
    p.sequences = own;
    p.context = deepest + each;
    p.max_batch = rows;
    p.max_outputs = own == rows ? rows : 1;
    p.keep = true;
    SOL_TRY(engine_create(model, &p, &s->engine));
    search->usual.device.workers = search->site.chooser.device.workers =
        pool_size(engine_pool(s->engine));
    search->site.context = engine_context(s->engine);
    search->site.depths = s->depths;
    enum sol_status status = make_rows(s, model->config.vocab);
    if (status == SOL_OK && !search->list_only) status = engine_fill_cache(s->engine);
    if (status == SOL_OK) status = tune_search_step(search);
    engine_destroy(s->engine);
    free(s->rows);
    s->engine = NULL;
    s->rows = NULL;
    return status;
}

/* Step i of all: those of --rows first. */
static enum sol_status search_step(struct search *s, const struct model *model, size_t i)
{
    const struct tune_params *p = s->params;
    if (i >= p->n_rows) {
        int64_t own = p->sequences[i - p->n_rows];
        return search_rows(s, model, own, own);
    }
    return search_rows(s, model, p->rows[i], p->rows[i] <= TUNE_SEQUENCES_MAX ? p->rows[i] : 1);
}

enum sol_status tune_run(const struct model *model, const struct tune_params *params,
                         struct tuning *found, struct tune_report *report)
{
    size_t n = params->n_rows + params->n_sequences;
    struct search s = {.params = params};
    *report = (struct tune_report){0};
    s.search = (struct tune_search){.found = found,
                                    .report = report,
                                    .usual = params->engine.chooser,
                                    .list_only = params->list_only,
                                    .again = params->again,
                                    .make_plan = make_plan,
                                    .make_step = make_step,
                                    .arg = &s};
    s.search.usual.tuning = NULL;
    s.search.site = (struct tune_site){.chooser = s.search.usual,
                                       .place = place,
                                       .arg = &s,
                                       .n_depths = params->n_depths < DEPTHS_MAX ? params->n_depths
                                                                                 : DEPTHS_MAX};
    s.search.site.chooser.tuning = found;
    report->steps = calloc(n, sizeof *report->steps);
    if (!report->steps) return status_set(SOL_E_MEMORY, "no memory for the results");
    uint64_t start = clock_ns();
    enum sol_status status = SOL_OK;
    int done = 0;
    for (size_t i = 0; status == SOL_OK && i < n; i++) {
        /* What earlier rows left of their time is the later ones'. */
        double spent = 1e-9 * (double)(clock_ns() - start);
        double share = (params->seconds - spent) / (double)(n - i);
        s.search.end_ns = clock_ns() + (uint64_t)(share > 0 ? 1e9 * share : 0);
        status = search_step(&s, model, i);
        done += status == SOL_OK;
        bool others = done > 0 || i + 1 < n;
        if (status != SOL_E_MEMORY || !others) continue; /* others may fit */
        LOG_WARN("steps of %lld rows are left out: %s", (long long)s.n_rows, sol_last_error());
        status = SOL_OK;
    }
    report->seconds = 1e-9 * (double)(clock_ns() - start);
    return status;
}
