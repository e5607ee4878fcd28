/* See tune_search.h.
 *
 * Two plans are made and looked at, not run as they are: one with every composite composed, whose
 * primitives are searched first, and the usual one, whose composites follow, with the primitives
 * within them as they were found. */
#include "check/tune_search_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/progress.h"
#include "ops/ops.h"
#include "ops/problem.h"

/* ---- problems ---- */

static bool same_problem(const struct op_problem *a, const struct op_problem *b)
{
    return a->rows == b->rows && op_problem_same(a, b);
}

int tune_calls_in(const struct plan *plan, const struct tune_problem *f)
{
    int calls = 0;
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        struct op_problem problem;
        if (step->op != f->calls.op) continue;
        step->op->problem(step->args, &problem);
        calls += same_problem(&problem, &f->problem);
    }
    return calls;
}

static struct tune_problem *find_problem(struct tune_collection *c, const struct op *op,
                                         const struct op_problem *problem)
{
    for (int i = 0; i < c->count; i++)
        if (c->list[i].calls.op == op && same_problem(&c->list[i].problem, problem))
            return &c->list[i];
    return NULL;
}

static void collect(void *arg, const struct op *op, const void *args, int chosen)
{
    struct tune_collection *c = arg;
    struct op_problem problem;
    if (c->composites != (op->compose != NULL) || op->collective) return;
    op->problem(args, &problem);
    struct tune_problem *f = find_problem(c, op, &problem);
    if (!f && c->count == TUNE_PROBLEMS_MAX) return; /* a step has some sixty */
    if (!f) {
        f = &c->list[c->count++];
        *f = (struct tune_problem){.problem = problem,
                                   .calls.op = op,
                                   .usual_v = chosen,
                                   .usual_choice = chooser_choice(c->chooser, op, chosen, args)};
    }
    f->count++;
    if (f->calls.n < TUNE_SETS_MAX) f->calls.args[f->calls.n++] = args;
}

static enum sol_status make_collection(struct tune_search *s, const struct chooser *chooser,
                                       bool composites, struct tune_collection **out)
{
    struct tune_collection *c = *out = calloc(1, sizeof *c);
    if (!c) return status_set(SOL_E_MEMORY, "no memory for the list of problems");
    c->chooser = chooser;
    c->composites = composites;
    return s->make_plan(s->arg, chooser, collect, c, &c->plan);
}

static void free_collection(struct tune_collection *c)
{
    if (c) plan_destroy(c->plan);
    free(c);
}

/* Every composite composed, but for those that the user forces. */
static enum sol_status compose_all(struct chooser *chooser)
{
    for (int i = 0; i < op_table_count; i++) {
        const struct op *op = op_table[i];
        if (!op->compose || chooser_is_forced(chooser, op)) continue;
        if (chooser->n_forces == CHOOSER_FORCES_MAX)
            return status_set(SOL_E_ARGUMENT, "--force is given too often for tuning");
        chooser->forces[chooser->n_forces].op = op;
        chooser->forces[chooser->n_forces].choice = -1;
        chooser->forces[chooser->n_forces++].variant = op_variant_name(op, op->n_variants);
    }
    return SOL_OK;
}

/* ---- candidates ---- */

static bool serves_all(const struct tune_search *s, const struct tune_calls *calls, int v,
                       int choice)
{
    char why[OP_REASON_MAX];
    for (int i = 0; i < calls->n; i++)
        if (!chooser_can_run(&s->usual, calls->op, v, calls->args[i], why) ||
            !op_choice_serves(calls->op, v, calls->args[i], &s->usual.device, choice))
            return false;
    return true;
}

/* What gives other bits in each run nobody gets unasked, however fast it is. */
static bool may_win(const struct tune_search *s, const struct op *op, int v, int choice)
{
    if (v >= op->n_variants) return true; /* composed */
    const struct op_variant *variant = op->variants[v];
    return variant->numerics <= s->usual.loosest && !(variant->varies >> choice & 1);
}

/* Not the references, which are made to be read. Returns how many. */
static int list_candidates(const struct tune_search *s, const struct tune_problem *f,
                           struct tune_candidate out[TUNE_CANDIDATES_MAX], int *usual)
{
    const struct op *op = f->calls.op;
    int n = 0, variants = op->n_variants + (op->compose != NULL);
    *usual = -1;
    for (int v = 0; v < variants; v++) {
        for (int c = 0; c < op_choice_count(op, v) && n < TUNE_CANDIDATES_MAX; c++) {
            if (!may_win(s, op, v, c) || !serves_all(s, &f->calls, v, c)) continue;
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

void tune_take(struct tuning_entry *e, const struct tune_candidate *candidate, double ns)
{
    name(e->variant, op_variant_name(e->op, candidate->v));
    name(e->choice, op_choice_name(e->op, candidate->v, candidate->choice));
    e->ns = ns;
}

static void fill_entry(const struct tune_search *s, const struct tune_problem *f,
                       struct tuning_entry *e)
{
    const struct op *op = f->calls.op;
    *e = (struct tuning_entry){.op = op, .problem = f->problem, .loosest = s->usual.loosest};
    tuning_range(f->problem.rows, &e->rows_from, &e->rows_to);
    name(e->usual, op_variant_name(op, f->usual_v));
    name(e->usual_choice, op_choice_name(op, f->usual_v, f->usual_choice));
    memcpy(e->variant, e->usual, sizeof e->variant);
    memcpy(e->choice, e->usual_choice, sizeof e->choice);
}

/* ---- one problem ---- */

struct renewal {
    struct tune_search *search;
    struct plan *plan;
    const void *args;
};

static enum sol_status renew(void *arg)
{
    const struct renewal *r = arg;
    return r->search->make_step(r->search->arg, r->plan, r->args);
}

/* The fastest, and up to a few that are nearly as fast. */
static void note_close(struct tune_problem *f, const struct tune_candidate *candidates, int n,
                       const struct tune_choice *choice)
{
    f->close[0] = candidates[choice->fastest];
    f->close_ns[0] = choice->ns;
    f->n_close = 1;
    for (int i = 0; i < n && f->n_close < TUNE_CLOSE_MAX; i++) {
        if (i == choice->fastest || !(choice->each[i] > 0)) continue;
        if (choice->each[i] > TUNE_CLOSE * choice->ns) continue;
        f->close[f->n_close] = candidates[i];
        f->close_ns[f->n_close++] = choice->each[i];
    }
}

static enum sol_status measure(struct tune_search *s, struct plan *plan, struct tune_problem *f,
                               struct tune_result *r, struct tune_candidate *candidates, int usual)
{
    struct tune_choice choice;
    struct renewal renewal = {s, plan, f->calls.args[0]};
    s->site.renew = renew;
    s->site.renew_arg = &renewal;
    SOL_TRY(renew(&renewal));
    const enum sol_status measured =
        tune_measure(&s->site, &f->calls, candidates, r->candidates, usual, &choice);
    s->site.renew_arg = NULL;
    SOL_TRY(measured);
    for (int i = 0; i < r->candidates; i++) {
        r->wrong += candidates[i].wrong;
        r->large += candidates[i].large;
    }
    s->report->wrong += r->wrong;
    tune_take(&r->entry, &candidates[choice.fastest], choice.ns);
    note_close(f, candidates, r->candidates, &choice);
    r->entry.usual_ns = choice.usual_ns;
    r->gain = choice.gain;
    r->low = choice.low;
    r->high = choice.high;
    r->state = choice.fastest == usual ? TUNE_KEPT : TUNE_FASTER;
    return tuning_add(s->found, &r->entry);
}

/* The same problem in a step of other rows: a prompt's head has one row too. */
static const struct tune_result *measured_before(const struct tune_search *s,
                                                 const struct tune_problem *f)
{
    for (size_t i = 0; i < s->report->count; i++) {
        const struct tune_result *r = &s->report->results[i];
        bool timed = r->state == TUNE_KEPT || r->state == TUNE_FASTER;
        if (timed && r->entry.op == f->calls.op && same_problem(&r->entry.problem, &f->problem))
            return r;
    }
    return NULL;
}

/* What the record has of exactly this problem: a search that was made is not made again. */
static const struct tuning_entry *known_entry(const struct tune_search *s,
                                              const struct tune_problem *f)
{
    const struct tuning_entry *e =
        tuning_find(s->found, f->calls.op, &f->problem, s->usual.loosest);
    return e && !s->again && e->problem.rows == f->problem.rows ? e : NULL;
}

static void fill_known(struct tune_result *r, const struct tuning_entry *known)
{
    r->state = TUNE_KNOWN;
    r->entry = *known;
    r->gain = known->usual_ns / known->ns - 1;
}

static enum sol_status search_problem(struct tune_search *s, struct plan *plan,
                                      struct tune_problem *f, int calls)
{
    struct tune_candidate candidates[TUNE_CANDIDATES_MAX];
    int usual, n = list_candidates(s, f, candidates, &usual);
    if (n < 2 || chooser_is_forced(&s->usual, f->calls.op)) return SOL_OK;
    const struct tune_result *before = measured_before(s, f);
    const struct tuning_entry *known = before ? NULL : known_entry(s, f);
    struct tune_result result = before ? *before : (struct tune_result){0}, *r;
    SOL_TRY(add_result(s->report, &r));
    *r = result;
    r->step = s->step;
    r->step_rows = s->step_rows;
    r->calls = calls;
    if (before) return SOL_OK;
    r->candidates = n;
    f->result = s->report->count - 1;
    fill_entry(s, f, &r->entry);
    if (known) fill_known(r, known);
    if (known || s->list_only) return SOL_OK;
    s->late = s->late || clock_ns() > s->end_ns;
    r->state = TUNE_NOT_REACHED;
    return s->late ? SOL_OK : measure(s, plan, f, r, candidates, usual);
}

/* ---- one step ---- */

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

/* Whether a comparison, some 50 runs of the step, still fits into its time, or takes little. */
static enum sol_status fits(const struct tune_search *s, const struct pair *p, bool *out)
{
    static const double runs = 50, little = 5e9;
    double ns;
    SOL_TRY(tune_time_plan(p->site, p->plans[0], 1, &ns));
    *out = runs * ns < little || (double)clock_ns() + runs * ns < (double)s->end_ns;
    return SOL_OK;
}

/* The whole step, as usual and as tuned; or not at all. */
static enum sol_status compare_steps(struct tune_search *s, struct tune_step *step)
{
    bool compares;
    struct pair p = {.site = &s->site, .plans = {s->composites->plan}};
    struct tune_choice choice;
    SOL_TRY(s->make_step(s->arg, p.plans[0], NULL));
    SOL_TRY(fits(s, &p, &compares));
    if (!compares) return SOL_OK;
    enum sol_status made = s->make_plan(s->arg, &s->site.chooser, NULL, NULL, &p.plans[1]);
    if (made == SOL_E_MEMORY) return SOL_OK; /* both at once are more than there is */
    SOL_TRY(made);
    enum sol_status status = tune_warm_up(&s->site, p.plans[0]);
    if (status == SOL_OK) status = tune_warm_up(&s->site, p.plans[1]);
    if (status == SOL_OK) status = tune_plan_times(&s->site, p.plans[0], &p.times);
    if (status == SOL_OK) status = tune_select(time_step, &p, 2, 0, TUNE_LEAST_GAIN, &choice);
    if (status == SOL_OK) {
        step->usual_ns = choice.usual_ns;
        step->ns = choice.ns;
        step->low = choice.low;
        step->high = choice.high;
    }
    plan_destroy(p.plans[1]);
    return status;
}

static void name_step(const struct tune_search *s, char label[48])
{
    if (s->step)
        snprintf(label, 48, "tune, %s", s->step);
    else
        snprintf(label, 48, "tune, %lld rows", (long long)s->step_rows);
}

static enum sol_status search_problems(struct tune_search *s)
{
    struct tune_collection *const lists[] = {s->primitives, s->composites};
    struct progress progress;
    char label[48];
    enum sol_status status = SOL_OK;
    uint64_t total = (uint64_t)s->primitives->count + (uint64_t)s->composites->count, done = 0;
    name_step(s, label);
    progress_start(&progress, label, "problems", total);
    for (int k = 0; k < 2; k++)
        for (int i = 0; status == SOL_OK && i < lists[k]->count; i++) {
            struct tune_problem *f = &lists[k]->list[i];
            /* A primitive is in the usual plan where its composite is composed. */
            const int calls = k ? f->count : tune_calls_in(s->composites->plan, f);
            status = search_problem(s, lists[k]->plan, f, calls);
            progress_update(&progress, ++done);
        }
    progress_end(&progress);
    return status;
}

/* What the calls that were timed are faster by. */
static double expected_gain(const struct tune_search *s, size_t first)
{
    double ns = 0;
    for (size_t i = first; i < s->report->count; i++) {
        const struct tune_result *r = &s->report->results[i];
        if (r->state == TUNE_FASTER) ns += r->calls * (r->entry.usual_ns - r->entry.ns);
    }
    return ns;
}

static enum sol_status search_and_compare(struct tune_search *s)
{
    const size_t first = s->report->count;
    enum sol_status status = search_problems(s);
    if (status == SOL_OK && !s->list_only && !s->late) status = tune_in_step(s);
    struct tune_step *step = &s->report->steps[s->report->n_steps++];
    *step = (struct tune_step){
        .name = s->step, .rows = s->step_rows, .expected_ns = expected_gain(s, first)};
    const bool worth = step->expected_ns > 0 && !s->list_only;
    return status == SOL_OK && worth ? compare_steps(s, step) : status;
}

enum sol_status tune_search_step(struct tune_search *s)
{
    struct chooser composed = s->usual;
    s->late = false;
    enum sol_status status = compose_all(&composed);
    if (status == SOL_OK) status = tune_site_open(&s->site);
    if (status == SOL_OK) status = make_collection(s, &composed, false, &s->primitives);
    if (status == SOL_OK) status = make_collection(s, &s->usual, true, &s->composites);
    if (status == SOL_OK) status = search_and_compare(s);
    free_collection(s->primitives);
    free_collection(s->composites);
    s->primitives = s->composites = NULL;
    tune_site_close(&s->site);
    return status;
}

void tune_report_free(struct tune_report *report)
{
    free(report->results);
    free(report->steps);
    *report = (struct tune_report){0};
}
