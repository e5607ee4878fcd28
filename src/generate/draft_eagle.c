/* Guesses of a head. It follows the engine by itself; the newest token alone, which no step has
 * had, it has to be told. */
#include <stdlib.h>

#include "generate/draft_source.h"
#include "generate/worth.h"
#include "infer/eagle.h"
#include "infer/sampler.h"

struct eagle_draft {
    struct draft draft;
    struct eagle *eagle;
    int64_t most;
    bool always;
    int32_t newest; /* -1: none */
    struct worth worth;
    const struct sampler *sampler; /* while guesses are made: the caller's, as are they */
    int32_t *guesses;
};

/* As found with the built-in model's head (docs/LOG.md): what a head foresees is flatter than what
 * the model does, so that drawn a little colder more of its guesses are right; and of the likeliest
 * token its share at half the temperature says best how often it is. */
static const double colder = 0.9, sharper = 0.5;

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

static enum sol_status make(void *arg, int64_t at, float *sure, bool *made)
{
    struct eagle_draft *e = arg;
    struct eagle_guess guess;
    struct sample_draw draw = sampler_foresee(e->sampler, at);
    draw.inverse_temperature /= draw.key ? colder : sharper;
    SOL_TRY(eagle_guess(e->eagle, at, at ? e->guesses[at - 1] : e->newest, &draw, &guess));
    *made = guess.token >= 0;
    *sure = guess.sure;
    e->guesses[at] = guess.token;
    return SOL_OK;
}

static enum sol_status guess(struct draft *d, const struct sampler *sampler, int64_t most,
                             int32_t *guesses, int64_t *n)
{
    struct eagle_draft *e = own(d);
    *n = 0;
    if (most > e->most) most = e->most;
    if (e->newest < 0) return SOL_OK;
    e->sampler = sampler;
    e->guesses = guesses;
    return worth_guess(&e->worth, most, e->always, make, e, n);
}

static void learn(struct draft *d, const struct draft_step *step)
{
    worth_checked(&own(d)->worth, step->guessed, step->right, step->ns);
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
