#include "cli/draft_options.h"

#include "base/status.h"

enum sol_status drafting_open(const struct draft_options *o, const struct model *model,
                              struct engine_params *params, struct drafting *out)
{
    *out = (struct drafting){0};
    if (!o->model && o->always)
        return status_set(SOL_E_ARGUMENT, "--draft-always is for guesses of a --draft-model");
    if (!o->model) return SOL_OK;
    if (!o->most)
        return status_set(SOL_E_ARGUMENT,
                          "--draft-model is asked for guesses by --draft N; add --draft 4");
    if (params->team)
        return status_set(SOL_E_UNSUPPORTED,
                          "--draft-model guesses beside a model on one device; leave --gpus out");
    SOL_TRY(eagle_head_open(o->model, &model->config, &out->head));
    eagle_engine_params(params, out->head);
    return SOL_OK;
}

enum sol_status drafting_start(const struct draft_options *o, struct engine *engine,
                               struct drafting *d)
{
    if (!o->most) return SOL_OK;
    if (!d->head) return draft_create(engine_params_of(engine)->context, o->most, &d->draft);
    SOL_TRY(eagle_create(engine, d->head, &d->eagle));
    return draft_create_eagle(d->eagle, o->most, o->always, &d->draft);
}

void drafting_close(struct drafting *d)
{
    draft_destroy(d->draft);
    eagle_destroy(d->eagle);
    eagle_head_close(d->head);
    *d = (struct drafting){0};
}
