/* sol train tune: the fastest kernels for the steps of a model in training, kept in the record that
 * sol tune keeps. */
#include <stdio.h>

#include "check/tune_train.h"
#include "cli/train_tuning.h"
#include "cli/tune_report.h"

static enum sol_status check(const struct train_command *c)
{
    if (c->o.reference || c->o.exact)
        return status_set(SOL_E_ARGUMENT, "%s leaves nothing to choose from",
                          c->o.reference ? "--reference" : "--exact");
    return SOL_OK;
}

/* The steps are those of the trainer that `sol train` would make. */
static enum sol_status search(const struct train_command *c, const struct train_recipe *recipe,
                              struct tune_show *show, struct tuning *found,
                              struct tune_report *report)
{
    struct tune_train_params params = {.update = train_updates(c),
                                       .seconds = c->o.budget,
                                       .list_only = c->o.dry_run,
                                       .again = c->o.again};
    train_params_of(c, recipe, &params.trainer);
    return tune_show_end(show, found, tune_train(&params, found, report));
}

enum sol_status train_tune(struct train_command *c)
{
    struct train_recipe recipe;
    struct tuning found = {0};
    struct tune_report report = {0};
    char model[64];
    const struct op_device device = train_device(c);
    struct tune_show show = {
        .report = &report, .model = model, .dry_run = c->o.dry_run, .json = c->o.json};
    SOL_TRY(check(c));
    SOL_TRY(recipe_settle(&c->o.flags, c->o.vocab, &recipe));
    snprintf(model, sizeof model, "%s d%lld", recipe.flags.recipe,
             (long long)recipe.config.n_layers);
    enum sol_status status = tune_show_begin(&show, &device, &found);
    if (status == SOL_OK) status = search(c, &recipe, &show, &found, &report);
    tune_report_free(&report);
    tuning_clear(&found);
    return status;
}
