/* See tune_train.h. */
#include "check/tune_train.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "gpu/device.h"

enum { STEPS = 2 }; /* a micro-step and an update */

struct train_search {
    struct tune_search search;
    struct trainer *trainer;
    bool update;           /* this step is one */
    int32_t *tokens;       /* [rows + 1] */
    void *values, *states; /* of a model that has learnt something: copies on the host */
};

static enum sol_status make_plan(void *arg, const struct chooser *chooser, plan_choice_fn on_choice,
                                 void *choice_arg, struct plan **out)
{
    const struct train_search *s = arg;
    return trainer_make_plan(s->trainer, s->update, chooser, on_choice, choice_arg, out);
}

static enum sol_status put_micro(const struct train_search *s)
{
    const struct micro_batch batch = {.x = s->tokens, .y = s->tokens + 1};
    SOL_TRY(trainer_micro(s->trainer, &batch, 1, false));
    return trainer_wait(s->trainer);
}

/* Between a model's memory and a copy on the host. */
static enum sol_status copy(const struct train_search *s, bool back, void *model, void *host,
                            size_t bytes)
{
    struct gpu_stream *stream = trainer_context(s->trainer)->stream;
    if (stream && back) return gpu_copy_in(stream, model, host, bytes);
    if (stream) return gpu_copy_out(stream, host, model, bytes);
    memcpy(back ? model : host, back ? host : model, bytes);
    return SOL_OK;
}

static enum sol_status copy_model(const struct train_search *s, bool back)
{
    const struct params *p = trainer_weights(s->trainer);
    SOL_TRY(copy(s, back, p->values, s->values, p->value_bytes));
    SOL_TRY(copy(s, back, p->states, s->states, p->state_bytes));
    return trainer_wait(s->trainer);
}

/* Makes a model that has learnt something, since first weights are zero here and there, and keeps
 * it. */
static enum sol_status begin(struct train_search *s)
{
    const struct params *p = trainer_weights(s->trainer);
    s->values = malloc(p->value_bytes);
    s->states = malloc(p->state_bytes);
    if (!s->values || !s->states)
        return status_set(SOL_E_MEMORY, "no memory for a copy of the weights");
    SOL_TRY(trainer_init(s->trainer));
    SOL_TRY(put_micro(s));
    SOL_TRY(trainer_update(s->trainer, 0, false));
    return copy_model(s, false);
}

static enum sol_status begin_again(const struct train_search *s)
{
    SOL_TRY(copy_model(s, true));
    return trainer_refresh(s->trainer, 1);
}

/* Calls that are timed run often, and the optimizer's change the weights each time: it begins anew
 * then. A composite's parts read what is in its scratch until the next one takes it. */
static enum sol_status make_step(void *arg, struct plan *plan, const void *args)
{
    const struct train_search *s = arg;
    if (s->update) SOL_TRY(begin_again(s));
    SOL_TRY(trainer_drop_gradients(s->trainer));
    SOL_TRY(put_micro(s));
    SOL_TRY(plan_run_until(plan, trainer_context(s->trainer), args));
    return trainer_wait(s->trainer);
}

static enum sol_status draw_tokens(struct train_search *s)
{
    const struct train_recipe *recipe = trainer_params(s->trainer)->recipe;
    const int64_t rows = trainer_sequences(s->trainer) * recipe->length;
    struct rng rng;
    rng_seed(&rng, 1);
    s->search.step_rows = rows;
    s->tokens = calloc((size_t)rows + 1, sizeof *s->tokens);
    if (!s->tokens) return status_set(SOL_E_MEMORY, "no memory for tokens");
    for (int64_t i = 0; i <= rows; i++)
        s->tokens[i] = (int32_t)rng_range(&rng, 0, recipe->config.vocab - 1);
    return SOL_OK;
}

static enum sol_status open_search(struct train_search *s, const struct tune_train_params *p)
{
    struct trainer_params params = p->trainer;
    params.chooser.tuning = NULL;
    SOL_TRY(trainer_create(&params, &s->trainer));
    s->search.usual = trainer_params(s->trainer)->chooser; /* with as many workers as there are */
    s->search.site.chooser = s->search.usual;
    s->search.site.chooser.tuning = s->search.found;
    s->search.site.context = trainer_context(s->trainer);
    SOL_TRY(trainer_scratch_room(s->trainer, &s->search.site.most_scratch));
    SOL_TRY(draw_tokens(s));
    return p->list_only ? SOL_OK : begin(s);
}

static enum sol_status search_steps(struct train_search *s, const struct tune_train_params *p)
{
    static const char *const names[STEPS] = {"micro-step", "update"};
    const uint64_t start = clock_ns();
    const int steps = p->update ? STEPS : 1;
    enum sol_status status = SOL_OK;
    for (int i = 0; status == SOL_OK && i < steps; i++) {
        /* What the first leaves of its time is the second's. */
        const double spent = 1e-9 * (double)(clock_ns() - start);
        const double share = (p->seconds - spent) / (steps - i);
        s->search.end_ns = clock_ns() + (uint64_t)(share > 0 ? 1e9 * share : 0);
        s->search.step = names[i];
        s->update = i == 1;
        status = tune_search_step(&s->search);
    }
    s->search.report->seconds = 1e-9 * (double)(clock_ns() - start);
    return status;
}

enum sol_status tune_train(const struct tune_train_params *params, struct tuning *found,
                           struct tune_report *report)
{
    struct train_search s = {.search = {.found = found,
                                        .report = report,
                                        .list_only = params->list_only,
                                        .again = params->again,
                                        .make_plan = make_plan,
                                        .make_step = make_step}};
    s.search.arg = &s;
    *report = (struct tune_report){0};
    report->steps = calloc(STEPS, sizeof *report->steps);
    if (!report->steps) return status_set(SOL_E_MEMORY, "no memory for the results");
    enum sol_status status = open_search(&s, params);
    if (status == SOL_OK) status = search_steps(&s, params);
    free(s.tokens);
    free(s.values);
    free(s.states);
    trainer_destroy(s.trainer);
    return status;
}
