/* See tuned.h. */
#include "train/tuned.h"

#include <string.h>

#include "train/trainer.h"

/* The entry that a call is served by; NULL: the usual rules serve it. */
static const struct tuning_entry *deciding(const struct chooser *chooser, const struct op *op,
                                           const void *args, const char *variant,
                                           const char *choice)
{
    struct op_problem problem;
    if (!chooser->tuning || chooser->reference || chooser_is_forced(chooser, op)) return NULL;
    op->problem(args, &problem);
    const struct tuning_entry *e = tuning_find(chooser->tuning, op, &problem, chooser->loosest);
    if (!e || tuning_is_usual(e)) return NULL;
    return strcmp(e->variant, variant) == 0 && strcmp(e->choice, choice) == 0 ? e : NULL;
}

bool train_tuned_step(const struct chooser *chooser, const struct plan_step *step)
{
    return deciding(chooser, step->op, step->args, step->variant, step->choice) != NULL;
}

/* Served by the same kernel instead of the same one. */
static bool alike(const struct tuning_entry *a, const struct tuning_entry *b)
{
    return a->op == b->op && strcmp(a->variant, b->variant) == 0 &&
           strcmp(a->choice, b->choice) == 0 && strcmp(a->usual, b->usual) == 0 &&
           strcmp(a->usual_choice, b->usual_choice) == 0;
}

static void add(struct train_tuned *t, const struct tuning_entry *e)
{
    int i = 0;
    while (i < t->count && !alike(t->ops[i].entry, e)) i++;
    if (i == TRAIN_TUNED_MAX) return; /* counted in `tuned` all the same */
    if (i == t->count) t->ops[t->count++] = (struct train_tuned_op){.entry = e};
    t->ops[i].calls++;
}

void train_tuned_see(void *arg, const struct op *op, const void *args, int chosen)
{
    struct train_tuned *t = arg;
    const int choice = chooser_choice(t->chooser, op, chosen, args);
    const struct tuning_entry *e = deciding(t->chooser, op, args, op_variant_name(op, chosen),
                                            op_choice_name(op, chosen, choice));
    t->calls++;
    if (!e) return;
    t->tuned++;
    add(t, e);
}

void train_tuned_settle(struct train_tuned *t, const struct trainer *trainer)
{
    if (!trainer_params(trainer)->chooser.tuning) t->count = 0, t->tuned = 0;
}
