/* Guesses of a head. It follows the engine by itself; the newest token alone, which no step has
 * had, it has to be told. */
#include <stdlib.h>

#include "base/clock.h"
#include "generate/draft_source.h"
#include "generate/worth.h"
#include "infer/eagle.h"

struct eagle_draft {
    struct draft draft;
    struct eagle *eagle;
    int64_t most;
    bool always;
    int32_t newest; /* -1: none */
    int64_t made;   /* for this step, of which not all may be checked */
    float sure[DRAFT_MOST];
    struct worth worth;
};

static struct eagle_draft *own(struct draft *d)
{
    return (struct eagle_draft *)d;
}

static void destroy(struct draft *d)
{
    free(own(d));
}

static void reset(struct draft *d)
{
    own(d)->newest = -1;
}

static void add(struct draft *d, const int32_t *tokens, int64_t n)
{
    if (n) own(d)->newest = tokens[n - 1];
}

/* One more; false: there is none. */
static enum sol_status make(struct eagle_draft *e, int32_t *guesses, bool *made)
{
    struct eagle_guess guess;
    const int64_t at = e->made;
    const uint64_t began = clock_ns();
    *made = false;
    SOL_TRY(eagle_guess(e->eagle, at, at ? guesses[at - 1] : e->newest, &guess));
    if (guess.token < 0) return SOL_OK;
    worth_took_guess(&e->worth, (double)(clock_ns() - began));
    guesses[at] = guess.token;
    e->sure[at] = guess.sure;
    e->made++;
    *made = true;
    return SOL_OK;
}

static enum sol_status guess(struct draft *d, int64_t most, int32_t *guesses, int64_t *n)
{
    struct eagle_draft *e = own(d);
    *n = e->made = 0;
    if (most > e->most) most = e->most;
    if (most < 1 || e->newest < 0) return SOL_OK;
    bool more = worth_begin(&e->worth) || e->always;
    while (more && e->made < most) {
        SOL_TRY(make(e, guesses, &more));
        more = more && e->made < most && (e->always || worth_another(&e->worth, e->sure, e->made));
    }
    *n = e->always ? e->made : worth_count(&e->worth, e->sure, e->made);
    return SOL_OK;
}

static void learn(struct draft *d, const struct draft_step *step)
{
    struct eagle_draft *e = own(d);
    for (int64_t i = 0; i < step->guessed && i <= step->right; i++)
        worth_learn(&e->worth, e->sure[i], i < step->right);
    worth_took_step(&e->worth, 1 + step->guessed, e->made, step->ns, 1 + step->right);
}

static const struct draft_source source = {
    .destroy = destroy, .reset = reset, .add = add, .guess = guess, .learn = learn};

enum sol_status draft_create_eagle(struct eagle *eagle, int64_t most, bool always,
                                   struct draft **out)
{
    *out = NULL;
    SOL_TRY(draft_check_most(most));
    struct eagle_draft *e = calloc(1, sizeof *e);
    if (!e) return status_set(SOL_E_MEMORY, "no memory for guesses");
    *e = (struct eagle_draft){
        .draft = {&source}, .eagle = eagle, .most = most, .always = always, .newest = -1};
    worth_init(&e->worth);
    *out = &e->draft;
    return SOL_OK;
}
