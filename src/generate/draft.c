#include "generate/draft.h"

#include "generate/draft_source.h"

enum sol_status draft_check_most(int64_t most)
{
    if (most >= 1 && most <= DRAFT_MOST) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "%lld guesses at a time; 1 to %d are possible",
                      (long long)most, (int)DRAFT_MOST);
}

void draft_destroy(struct draft *d)
{
    if (d) d->source->destroy(d);
}

void draft_reset(struct draft *d)
{
    d->source->reset(d);
}

void draft_add(struct draft *d, const int32_t *tokens, int64_t n)
{
    d->source->add(d, tokens, n);
}

enum sol_status draft_guess(struct draft *d, const struct sampler *sampler, int64_t most,
                            int32_t guesses[DRAFT_MOST], int64_t *n)
{
    return d->source->guess(d, sampler, most, guesses, n);
}

void draft_learn(struct draft *d, const struct draft_step *step)
{
    if (d->source->learn) d->source->learn(d, step);
}
