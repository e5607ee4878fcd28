/* Kernels that alone take the same time need not do so in a step: one asks for its weights while
 * the kernel before it still runs, and another does not. So where a problem is a good part of a
 * step on a GPU, the candidates that are close to the fastest are tried in the step. */
#include "base/clock.h"
#include "base/interrupt.h"
#include "check/tune_search_private.h"

static const double share = 0.01,                /* of the step, which a problem has at least */
    least = 0.001,                               /* of the step, to be gained at least */
    runs_for_each = 9 + 2 * 15, enough_ns = 1e9; /* tune_select.c's; that is not waited for */

/* Plans of the step, which differ in one problem's kernel. */
struct trial {
    struct tune_search *search;
    struct plan *plans[TUNE_CLOSE_MAX];
    int n, times;
};

static enum sol_status time_trial(void *arg, int candidate, double *ns)
{
    struct trial *t = arg;
    SOL_TRY(interrupt_check());
    return tune_time_plan(&t->search->site, t->plans[candidate], t->times, ns);
}

/* The record has the entry meanwhile. */
static enum sol_status make_plan_with(struct tune_search *s, const struct tuning_entry *e,
                                      struct plan **out)
{
    *out = NULL;
    SOL_TRY(tuning_add(s->found, e));
    SOL_TRY(s->make_plan(s->arg, &s->site.chooser, NULL, NULL, out));
    return tune_warm_up(&s->site, *out);
}

static enum sol_status make_trial(struct trial *t, const struct tune_problem *f)
{
    struct tune_search *s = t->search;
    const struct tuning_entry *found = &s->report->results[f->result].entry;
    enum sol_status status = SOL_OK;
    while (t->n < f->n_close && status == SOL_OK) {
        struct tuning_entry e = *found;
        tune_take(&e, &f->close[t->n], f->close_ns[t->n]);
        status = make_plan_with(s, &e, &t->plans[t->n]);
        if (t->plans[t->n]) t->n++;
    }
    const enum sol_status put_back = tuning_add(s->found, found);
    return status == SOL_OK ? put_back : status;
}

/* Another one than the fastest alone. */
static enum sol_status take(struct tune_search *s, const struct tune_problem *f,
                            const struct tune_choice *choice)
{
    struct tune_result *r = &s->report->results[f->result];
    const struct tune_candidate *best = &f->close[choice->fastest];
    const bool usual = best->v == f->usual_v && best->choice == f->usual_choice;
    tune_take(&r->entry, best, usual ? r->entry.usual_ns : f->close_ns[choice->fastest]);
    r->state = usual ? TUNE_KEPT : TUNE_FASTER;
    r->gain = r->low = r->high = r->entry.usual_ns / r->entry.ns - 1;
    r->step_gain = choice->gain;
    return tuning_add(s->found, &r->entry);
}

static enum sol_status try_problem(struct tune_search *s, const struct tune_problem *f)
{
    struct trial t = {.search = s};
    struct tune_choice choice = {0};
    enum sol_status status = make_trial(&t, f);
    if (status == SOL_OK) status = tune_plan_times(&s->site, t.plans[0], &t.times);
    if (status == SOL_OK) status = tune_select(time_trial, &t, t.n, 0, least, &choice);
    for (int i = 0; i < t.n; i++) plan_destroy(t.plans[i]);
    if (status == SOL_E_MEMORY) return SOL_OK; /* all at once are more than there is */
    return status == SOL_OK && choice.fastest ? take(s, f, &choice) : status;
}

static bool has_time(const struct tune_search *s, const struct tune_problem *f, double step_ns)
{
    const double ns = runs_for_each * f->n_close * step_ns;
    return ns < enough_ns || (double)clock_ns() + ns < (double)s->end_ns;
}

static enum sol_status try_all(struct tune_search *s, struct plan *step)
{
    struct tune_collection *const lists[] = {s->primitives, s->composites};
    double step_ns;
    SOL_TRY(s->make_step(s->arg, step, NULL));
    SOL_TRY(tune_warm_up(&s->site, step));
    SOL_TRY(tune_time_plan(&s->site, step, 1, &step_ns));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < lists[k]->count; i++) {
            const struct tune_problem *f = &lists[k]->list[i];
            if (f->n_close < 2 || !has_time(s, f, step_ns)) continue;
            if (tune_calls_in(step, f) * f->close_ns[0] < share * step_ns) continue;
            SOL_TRY(try_problem(s, f));
        }
    return SOL_OK;
}

/* Steps of training change what they read, and those of a processor are too noisy. */
enum sol_status tune_in_step(struct tune_search *s)
{
    struct plan *step;
    if (s->step || !s->site.context->stream) return SOL_OK;
    enum sol_status status = s->make_plan(s->arg, &s->site.chooser, NULL, NULL, &step);
    if (status == SOL_E_MEMORY) return SOL_OK;
    if (status == SOL_OK) status = try_all(s, step);
    if (step) plan_destroy(step);
    return status;
}
