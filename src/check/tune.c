/* See tune.h.
 *
 * For each number of rows an engine makes one step, so that buffers, routing and cache are a
 * step's. Two plans are made and looked at, not run: one with every composite composed, whose
 * primitives are searched first, and the usual one, whose composites follow, with the primitives
 * within them as they were found. */
#include "check/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "check/tune_measure.h"
#include "ops/ops.h"
#include "ops/problem.h"

enum { PROBLEMS_MAX = 96 };

/* The calls of one problem in a plan. */
struct found {
    struct op_problem problem;
    struct tune_calls calls; /* some, to time */
    int count;               /* all */
    int usual_v, usual_choice;
};

struct collection {
    const struct chooser *chooser;
    bool composites; /* these, else the primitives */
    struct plan *plan;
    struct found list[PROBLEMS_MAX];
    int count;
};

struct search {
    const struct tune_params *params;
    struct tuning *found;
    struct tune_report *report;
    struct tune_site site;
    struct chooser usual; /* without a record */
    struct engine_row *rows;
    int64_t n_outputs;
    struct collection *primitives, *composites;
    uint64_t end_ns; /* of the time for these rows */
    bool late;
};

/* ---- problems ---- */

static bool same_problem(const struct op_problem *a, const struct op_problem *b)
{
    return a->rows == b->rows && op_problem_same(a, b);
}

static struct found *find_problem(struct collection *c, const struct op *op,
                                  const struct op_problem *problem)
{
    for (int i = 0; i < c->count; i++)
        if (c->list[i].calls.op == op && same_problem(&c->list[i].problem, problem))
            return &c->list[i];
    return NULL;
}

static void collect(void *arg, const struct op *op, const void *args, int chosen)
{
    struct collection *c = arg;
    struct op_problem problem;
    if (c->composites != (op->compose != NULL)) return;
    op->problem(args, &problem);
    struct found *f = find_problem(c, op, &problem);
    if (!f && c->count == PROBLEMS_MAX) return; /* a model has some thirty */
    if (!f) {
        f = &c->list[c->count++];
        *f = (struct found){.problem = problem,
                            .calls.op = op,
                            .usual_v = chosen,
                            .usual_choice = chooser_choice(c->chooser, op, chosen, args)};
    }
    f->count++;
    if (f->calls.n < TUNE_SETS_MAX) f->calls.args[f->calls.n++] = args;
}

static enum sol_status make_collection(struct search *s, const struct chooser *chooser,
                                       bool composites, struct collection **out)
{
    struct collection *c = *out = calloc(1, sizeof *c);
    if (!c) return status_set(SOL_E_MEMORY, "no memory for the list of problems");
    c->chooser = chooser;
    c->composites = composites;
    return engine_make_plan(s->site.engine, chooser, s->site.n_rows, s->n_outputs, collect, c,
                            &c->plan);
}

static void free_collection(struct collection *c)
{
    if (c) plan_destroy(c->plan);
    free(c);
}

static bool is_forced(const struct chooser *chooser, const struct op *op)
{
    for (int i = 0; i < chooser->n_forces; i++)
        if (chooser->forces[i].op == op) return true;
    return false;
}

/* Every composite composed, but for those that the user forces. */
static enum sol_status compose_all(struct chooser *chooser)
{
    for (int i = 0; i < op_table_count; i++) {
        const struct op *op = op_table[i];
        if (!op->compose || is_forced(chooser, op)) continue;
        if (chooser->n_forces == CHOOSER_FORCES_MAX)
            return status_set(SOL_E_ARGUMENT, "--force is given too often for tuning");
        chooser->forces[chooser->n_forces].op = op;
        chooser->forces[chooser->n_forces].choice = -1;
        chooser->forces[chooser->n_forces++].variant = op_variant_name(op, op->n_variants);
    }
    return SOL_OK;
}

/* ---- candidates ---- */

static bool serves_all(const struct search *s, const struct tune_calls *calls, int v, int choice)
{
    char why[OP_REASON_MAX];
    for (int i = 0; i < calls->n; i++)
        if (!chooser_can_run(&s->usual, calls->op, v, calls->args[i], why) ||
            !op_choice_serves(calls->op, v, calls->args[i], &s->usual.device, choice))
            return false;
    return true;
}

/* Not the references, which are made to be read. Returns how many. */
static int list_candidates(const struct search *s, const struct found *f,
                           struct tune_candidate out[TUNE_CANDIDATES_MAX], int *usual)
{
    const struct op *op = f->calls.op;
    int n = 0, variants = op->n_variants + (op->compose != NULL);
    *usual = -1;
    for (int v = 0; v < variants; v++) {
        if (v < op->n_variants && op->variants[v]->numerics > s->usual.loosest) continue;
        for (int c = 0; c < op_choice_count(op, v) && n < TUNE_CANDIDATES_MAX; c++) {
            if (!serves_all(s, &f->calls, v, c)) continue;
            if (v == f->usual_v && c == f->usual_choice) *usual = n;
            out[n++] = (struct tune_candidate){.v = v, .choice = c};
        }
    }
    return *usual < 0 ? 0 : n;
}

/* ---- results ---- */

static enum sol_status add_result(struct tune_report *r, struct tune_result **out)
{
    SOL_TRY(array_grow(&r->results, r->count, &r->capacity, sizeof *r->results, "results"));
    *out = &r->results[r->count++];
    **out = (struct tune_result){0};
    return SOL_OK;
}

static void name(char out[TUNING_NAME_MAX], const char *text)
{
    snprintf(out, TUNING_NAME_MAX, "%s", text);
}

static void fill_entry(const struct search *s, const struct found *f, struct tuning_entry *e)
{
    const struct op *op = f->calls.op;
    *e = (struct tuning_entry){.op = op, .problem = f->problem, .loosest = s->usual.loosest};
    tuning_range(f->problem.rows, &e->rows_from, &e->rows_to);
    name(e->usual, op_variant_name(op, f->usual_v));
    name(e->usual_choice, op_choice_name(op, f->usual_v, f->usual_choice));
    memcpy(e->variant, e->usual, sizeof e->variant);
    memcpy(e->choice, e->usual_choice, sizeof e->choice);
}

/* In the usual plan; a primitive is there where its composite is composed. */
static int calls_in_step(const struct search *s, const struct found *f)
{
    int calls = 0;
    for (int i = 0; i < plan_step_count(s->composites->plan); i++) {
        const struct plan_step *step = plan_step_at(s->composites->plan, i);
        struct op_problem problem;
        if (step->op != f->calls.op) continue;
        step->op->problem(step->args, &problem);
        calls += same_problem(&problem, &f->problem);
    }
    return calls;
}

/* ---- one problem ---- */

/* Leaves in the buffers what a step leaves there. */
static enum sol_status make_step(struct search *s)
{
    for (int32_t i = 0; i < s->site.sequences; i++)
        SOL_TRY(engine_pretend(s->site.engine, i, s->site.depths[0]));
    return engine_eval(s->site.engine, s->rows, s->site.n_rows, NULL, NULL, NULL);
}

static enum sol_status measure(struct search *s, struct found *f, struct tune_result *r,
                               struct tune_candidate *candidates, int usual)
{
    struct tune_choice choice;
    const struct op *op = f->calls.op;
    SOL_TRY(make_step(s));
    SOL_TRY(tune_measure(&s->site, &f->calls, candidates, r->candidates, usual, &choice));
    for (int i = 0; i < r->candidates; i++) r->wrong += candidates[i].wrong;
    s->report->wrong += r->wrong;
    const struct tune_candidate *best = &candidates[choice.fastest];
    name(r->entry.variant, op_variant_name(op, best->v));
    name(r->entry.choice, op_choice_name(op, best->v, best->choice));
    r->entry.ns = choice.ns;
    r->entry.usual_ns = choice.usual_ns;
    r->gain = choice.gain;
    r->low = choice.low;
    r->high = choice.high;
    r->state = choice.fastest == usual ? TUNE_KEPT : TUNE_FASTER;
    return tuning_add(s->found, &r->entry);
}

/* The same problem in a step of other rows: a prompt's head has one row too. */
static const struct tune_result *measured_before(const struct search *s, const struct found *f)
{
    for (size_t i = 0; i < s->report->count; i++) {
        const struct tune_result *r = &s->report->results[i];
        bool timed = r->state == TUNE_KEPT || r->state == TUNE_FASTER;
        if (timed && r->entry.op == f->calls.op && same_problem(&r->entry.problem, &f->problem))
            return r;
    }
    return NULL;
}

static enum sol_status search_problem(struct search *s, struct found *f, int calls)
{
    struct tune_candidate candidates[TUNE_CANDIDATES_MAX];
    int usual, n = list_candidates(s, f, candidates, &usual);
    if (n < 2 || is_forced(&s->usual, f->calls.op)) return SOL_OK;
    const struct tune_result *before = measured_before(s, f);
    struct tune_result known = before ? *before : (struct tune_result){0}, *r;
    SOL_TRY(add_result(s->report, &r));
    *r = known;
    r->step_rows = s->site.n_rows;
    r->calls = calls;
    if (before) return SOL_OK;
    r->candidates = n;
    fill_entry(s, f, &r->entry);
    if (s->params->list_only) return SOL_OK;
    s->late = s->late || clock_ns() > s->end_ns;
    r->state = TUNE_NOT_REACHED;
    return s->late ? SOL_OK : measure(s, f, r, candidates, usual);
}

/* ---- one number of rows ---- */

struct pair {
    struct tune_site *site;
    struct plan *plans[2];
    int times;
};

static enum sol_status time_step(void *arg, int candidate, double *ns)
{
    struct pair *p = arg;
    SOL_TRY(interrupt_check());
    return tune_time_plan(p->site, p->plans[candidate], p->times, ns);
}

/* The whole step, as usual and as tuned. */
static enum sol_status compare_steps(struct search *s, struct tune_step *step)
{
    struct pair p = {.site = &s->site, .plans = {s->composites->plan}};
    struct tune_choice choice;
    SOL_TRY(engine_make_plan(s->site.engine, &s->site.chooser, s->site.n_rows, s->n_outputs, NULL,
                             NULL, &p.plans[1]));
    enum sol_status status = tune_warm_up(&s->site, p.plans[0]);
    if (status == SOL_OK) status = tune_warm_up(&s->site, p.plans[1]);
    if (status == SOL_OK) status = tune_plan_times(&s->site, p.plans[0], &p.times);
    if (status == SOL_OK) status = tune_select(time_step, &p, 2, 0, &choice);
    if (status == SOL_OK) {
        step->usual_ns = choice.usual_ns;
        step->ns = choice.ns;
        step->low = choice.low;
        step->high = choice.high;
    }
    plan_destroy(p.plans[1]);
    return status;
}

static enum sol_status search_problems(struct search *s)
{
    size_t first = s->report->count;
    struct progress progress;
    char label[32];
    enum sol_status status = SOL_OK;
    uint64_t total = (uint64_t)s->primitives->count + (uint64_t)s->composites->count, done = 0;
    snprintf(label, sizeof label, "tune, %lld rows", (long long)s->site.n_rows);
    progress_start(&progress, label, "problems", total);
    for (int i = 0; status == SOL_OK && i < s->primitives->count; i++) {
        struct found *f = &s->primitives->list[i];
        status = search_problem(s, f, calls_in_step(s, f));
        progress_update(&progress, ++done);
    }
    for (int i = 0; status == SOL_OK && i < s->composites->count; i++) {
        struct found *f = &s->composites->list[i];
        status = search_problem(s, f, f->count);
        progress_update(&progress, ++done);
    }
    progress_end(&progress);
    struct tune_step *step = &s->report->steps[s->report->n_steps++];
    *step = (struct tune_step){.rows = s->site.n_rows};
    for (size_t i = first; i < s->report->count; i++) {
        const struct tune_result *r = &s->report->results[i];
        if (r->state == TUNE_FASTER)
            step->expected_ns += r->calls * (r->entry.usual_ns - r->entry.ns);
    }
    bool worth = step->expected_ns > 0 && !s->params->list_only;
    return status == SOL_OK && worth ? compare_steps(s, step) : status;
}

/* A row of each sequence that wants its logits, or a prompt of one that wants none but the last. */
static enum sol_status make_rows(struct search *s, int64_t vocab)
{
    struct rng rng;
    rng_seed(&rng, 1);
    int64_t n = s->site.n_rows;
    bool own = s->site.sequences == n;
    s->rows = calloc((size_t)n, sizeof *s->rows);
    if (!s->rows) return status_set(SOL_E_MEMORY, "no memory for %lld rows", (long long)n);
    for (int64_t i = 0; i < n; i++)
        s->rows[i] = (struct engine_row){.token = (int32_t)rng_range(&rng, 0, vocab - 1),
                                         .sequence = own ? (int32_t)i : 0,
                                         .output = own || i + 1 == n};
    s->site.rows = s->rows;
    s->n_outputs = own ? n : 1;
    return SOL_OK;
}

/* own: sequences, 1 or as many as rows. */
static enum sol_status search_rows(struct search *s, const struct model *model, int64_t rows,
                                   int64_t own)
{
    struct engine_params p = s->params->engine;
    int64_t each = rows / own, deepest = 0;
    int64_t depths[8];
    for (size_t i = 0; i < s->site.n_depths; i++) {
        int64_t most = model->config.context - each;
        depths[i] = s->params->depths[i] < most ? s->params->depths[i] : most;
        if (depths[i] < 0) depths[i] = 0;
        if (depths[i] > deepest) deepest = depths[i];
    }
    s->site.n_rows = rows;
    s->site.sequences = own;
    p.chooser = s->usual;
    p.sequences = own;
    p.context = deepest + each;
    p.max_batch = rows;
    p.max_outputs = own == rows ? rows : 1;
    p.keep = true;
    SOL_TRY(engine_create(model, &p, &s->site.engine));
    struct chooser composed = s->usual;
    composed.device.workers = s->usual.device.workers = s->site.chooser.device.workers =
        pool_size(engine_pool(s->site.engine));
    s->site.depths = depths;
    enum sol_status status = make_rows(s, model->config.vocab);
    if (status == SOL_OK) status = compose_all(&composed);
    if (status == SOL_OK) status = tune_site_open(&s->site);
    if (status == SOL_OK && !s->params->list_only) status = engine_fill_cache(s->site.engine);
    if (status == SOL_OK) status = make_collection(s, &composed, false, &s->primitives);
    if (status == SOL_OK) status = make_collection(s, &s->usual, true, &s->composites);
    if (status == SOL_OK) status = search_problems(s);
    free_collection(s->primitives);
    free_collection(s->composites);
    s->primitives = s->composites = NULL;
    tune_site_close(&s->site);
    engine_destroy(s->site.engine);
    free(s->rows);
    s->site.engine = NULL;
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
    enum { DEPTHS_MAX = 8 };
    size_t n = params->n_rows + params->n_sequences;
    struct search s = {.params = params, .found = found, .report = report};
    *report = (struct tune_report){0};
    s.usual = params->engine.chooser;
    s.usual.tuning = NULL;
    s.site.chooser = s.usual;
    s.site.chooser.tuning = found;
    s.site.n_depths = params->n_depths < DEPTHS_MAX ? params->n_depths : DEPTHS_MAX;
    report->steps = calloc(n, sizeof *report->steps);
    if (!report->steps) return status_set(SOL_E_MEMORY, "no memory for the results");
    uint64_t start = clock_ns();
    enum sol_status status = SOL_OK;
    int done = 0;
    for (size_t i = 0; status == SOL_OK && i < n; i++) {
        /* What earlier rows left of their time is the later ones'. */
        double spent = 1e-9 * (double)(clock_ns() - start);
        double share = (params->seconds - spent) / (double)(n - i);
        s.end_ns = clock_ns() + (uint64_t)(share > 0 ? 1e9 * share : 0);
        s.late = false;
        status = search_step(&s, model, i);
        done += status == SOL_OK;
        bool others = done > 0 || i + 1 < n;
        if (status != SOL_E_MEMORY || !others) continue; /* others may fit */
        LOG_WARN("steps of %lld rows are left out: %s", (long long)s.site.n_rows, sol_last_error());
        status = SOL_OK;
    }
    report->seconds = 1e-9 * (double)(clock_ns() - start);
    return status;
}

void tune_report_free(struct tune_report *report)
{
    free(report->results);
    free(report->steps);
    *report = (struct tune_report){0};
}
