/* How many guesses of a head are worth making and checking. A row more in a step pays where the
 * chance that it counts is larger than what else would be written in the time that it takes, in
 * tokens. Times, chances and the speed of writing are learned while text is written; what is
 * decided by them changes how long a text takes, never what it says. */
#ifndef GENERATE_WORTH_H
#define GENERATE_WORTH_H

#include <stdbool.h>
#include <stdint.h>

#include "generate/draft.h"

enum { WORTH_BINS = 10 };

struct worth_time {
    double ns; /* 0: not known yet */
    int64_t seen;
};

struct worth {
    struct worth_time steps[DRAFT_MOST + 2], guess; /* steps by rows */
    struct {
        double right, tried;
    } bins[WORTH_BINS]; /* guesses by how sure the head was */
    double tokens, ns;  /* what was written lately, and in what time */
    double gain;        /* of a step with guesses over steps without, lately, in tokens */
    int64_t rest, left; /* steps without guesses when they gain nothing; still to come */
    bool trial;         /* the first step behind a rest */
};

void worth_init(struct worth *w);

/* Whether to begin a step with a guess; asked once a step. */
bool worth_begin(struct worth *w);
/* Whether to make one more behind n > 0 guesses, of which the head was so sure. */
bool worth_another(const struct worth *w, const float *sure, int64_t n);
/* How many of n guesses to check. */
int64_t worth_count(const struct worth *w, const float *sure, int64_t n);

/* What it learns from: a guess took so long; it was checked, and right or not; a step of `rows`
 * took so long, behind `made` guesses, and gave so many tokens. */
void worth_took_guess(struct worth *w, double ns);
void worth_learn(struct worth *w, float sure, bool right);
void worth_took_step(struct worth *w, int64_t rows, int64_t made, double ns, int64_t tokens);

#endif
