/* Looking up. A table has for every three tokens where they were followed by something last, and
 * each place the one before it, as compressors have. What three tokens are followed by is often
 * another each time, so the places are compared by how much before them is as at the end of the
 * text. Keys that meet in one entry cost tries, never right guesses: the text is compared. */
#include <stdlib.h>
#include <string.h>

#include "generate/draft_source.h"

/* How many guesses are tried first, and again behind a rest: enough to see whether they are worth
 * it, few enough to lose little. */
enum { LENGTH_FIRST = 4, REST_FIRST = 8, REST_MOST = 64 };
/* Places that are looked at, and tokens that are compared: a microsecond where all of both are
 * needed. */
enum { TRIES = 64, SAME_MOST = 32 };

struct lookup {
    struct draft draft;
    int64_t capacity, most, n;
    int32_t *text;   /* [capacity] */
    int32_t *places; /* [mask + 1] what follows the key is at text[place]; 0: nothing is known */
    int32_t *before; /* [capacity] of a place: the one before it with the same entry, or 0 */
    uint32_t mask;
    int64_t length;     /* guesses that are worth trying */
    int64_t rest, left; /* tokens without guesses behind the next wrong ones; still to come */
};

static struct lookup *own(struct draft *d)
{
    return (struct lookup *)d;
}

static void begin(struct lookup *d)
{
    d->n = 0;
    d->length = LENGTH_FIRST < d->most ? LENGTH_FIRST : d->most;
    d->rest = REST_FIRST;
    d->left = 0;
}

static void destroy(struct draft *draft)
{
    struct lookup *d = own(draft);
    free(d->before);
    free(d->places);
    free(d->text);
    free(d);
}

static void reset(struct draft *draft)
{
    struct lookup *d = own(draft);
    memset(d->places, 0, ((size_t)d->mask + 1) * sizeof *d->places);
    begin(d);
}

/* Of the tokens before `end`. */
static int32_t *place_of(const struct lookup *d, int64_t end)
{
    uint64_t hash = 0;
    for (int64_t i = end - DRAFT_KEY; i < end; i++)
        hash = (hash ^ (uint32_t)d->text[i]) * 0x9e3779b97f4a7c15u; /* 2^64 / the golden ratio */
    return &d->places[(uint32_t)(hash >> 32) & d->mask];
}

static void add(struct draft *draft, const int32_t *tokens, int64_t n)
{
    struct lookup *d = own(draft);
    for (int64_t i = 0; i < n; i++, d->n++) {
        if (d->left) d->left--;
        if (d->n >= d->capacity) continue;
        d->text[d->n] = tokens[i];
        if (d->n < DRAFT_KEY) continue;
        int32_t *place = place_of(d, d->n);
        d->before[d->n] = *place;
        *place = (int32_t)d->n;
    }
}

/* How many tokens before a place are those at the end of the text. */
static int64_t same_before(const struct lookup *d, int64_t place)
{
    int64_t same = 0;
    while (same < SAME_MOST && same < place &&
           d->text[place - 1 - same] == d->text[d->n - 1 - same])
        same++;
    return same;
}

/* Of equal ones the last; 0: there is none. */
static int64_t best_place(const struct lookup *d)
{
    int64_t best = 0, most = DRAFT_KEY - 1;
    int tries = 0;
    for (int64_t place = *place_of(d, d->n); place && tries < TRIES; place = d->before[place]) {
        const int64_t same = same_before(d, place);
        tries++;
        if (same <= most) continue;
        most = same;
        best = place;
    }
    return best;
}

static enum sol_status guess(struct draft *draft, const struct sampler *sampler, int64_t most,
                             int32_t *guesses, int64_t *n)
{
    (void)sampler;
    const struct lookup *d = own(draft);
    *n = 0;
    if (most > d->length) most = d->length;
    if (most < 1 || d->left || d->n <= DRAFT_KEY || d->n > d->capacity) return SOL_OK;
    const int64_t place = best_place(d);
    if (!place) return SOL_OK;
    for (int64_t i = 0; i < most; i++)
        guesses[i] = place + i < d->n ? d->text[place + i] : guesses[place + i - d->n];
    *n = most;
    return SOL_OK;
}

static void learn(struct draft *draft, const struct draft_step *step)
{
    struct lookup *d = own(draft);
    const int64_t guessed = step->guessed, right = step->right;
    if (!guessed) return;
    if (right == guessed) d->length *= 2;
    if (right < guessed) d->length = right ? right + 1 : d->length / 2;
    if (d->length > d->most) d->length = d->most;
    if (right) d->rest = REST_FIRST;
    if (d->length) return;
    d->left = d->rest;
    d->length = d->most < 2 ? d->most : 2;
    if (d->rest < REST_MOST) d->rest *= 2;
}

static const struct draft_source source = {
    .destroy = destroy, .reset = reset, .add = add, .guess = guess, .learn = learn};

enum sol_status draft_create(int64_t capacity, int64_t most, struct draft **out)
{
    uint32_t entries = 64;
    *out = NULL;
    SOL_TRY(draft_check_most(most));
    if (capacity < 1 || capacity > 1 << 30)
        return status_set(SOL_E_ARGUMENT,
                          "guesses for a text of %lld tokens; 1 to 2^30 are possible",
                          (long long)capacity);
    while (entries < 2 * capacity) entries *= 2;
    struct lookup *d = calloc(1, sizeof *d);
    if (d) {
        d->text = malloc((size_t)capacity * sizeof *d->text);
        d->places = calloc(entries, sizeof *d->places);
        d->before = malloc((size_t)capacity * sizeof *d->before);
    }
    if (!d || !d->text || !d->places || !d->before) {
        if (d) destroy(&d->draft);
        return status_set(SOL_E_MEMORY, "no memory for guesses of a text of %lld tokens",
                          (long long)capacity);
    }
    d->draft.source = &source;
    d->capacity = capacity;
    d->most = most;
    d->mask = entries - 1;
    begin(d);
    *out = &d->draft;
    return SOL_OK;
}
