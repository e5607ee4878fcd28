/* How many guesses of a head are worth making and checking. A row more in a step pays where the
 * chance that it counts is larger than what else would be written in the time that it takes, in
 * tokens. Times, chances and the speed of writing are learned while text is written. So how many
 * rows steps have follows the clock: what is written is the same where logits do not depend on the
 * rows of a step (generate/speculation.h). */
#ifndef GENERATE_WORTH_H
#define GENERATE_WORTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "generate/draft.h"

enum { WORTH_BINS = 10, WORTH_LAST = 5 };

struct worth_time {
    double last[WORTH_LAST]; /* ns; the middle one counts */
    int64_t seen;            /* with those that do not count */
};

struct worth {
    struct worth_time steps[DRAFT_MOST + 2]; /* by rows */
    struct worth_time first, guess; /* the first of a step waits for what the head does with the
                                     * rows of the one before; the others */
    struct {
        double right, tried;
    } bins[WORTH_BINS];     /* guesses by how sure the head was */
    double tokens, ns;      /* what was written lately, and in what time */
    double gain;            /* of a step with guesses over steps without, lately, in tokens */
    int64_t rest, left;     /* steps without guesses when they gain nothing; still to come */
    float sure[DRAFT_MOST]; /* of this step's guesses, of which not all may be checked */
    int64_t made;
    int64_t awake; /* steps that are trials, as they come behind a rest; still to come */
    int64_t begun; /* steps with guesses, others than those */
    enum worth_trial { WORTH_NO_TRIAL, WORTH_CHECK_MORE, WORTH_GUESS_MORE } trial;
};

void worth_init(struct worth *w);

/* Whether to begin a step with a guess; asked once a step. */
bool worth_begin(struct worth *w);
/* Whether to make one more behind n > 0 guesses, of which the head was so sure; not beyond
 * DRAFT_MOST. */
bool worth_another(struct worth *w, const float *sure, int64_t n);
/* How many of n guesses to check. Now and then it is one more than seems worth it, or nothing would
 * be learned of it. */
int64_t worth_count(const struct worth *w, const float *sure, int64_t n);

/* What it learns from: guess number `at` took so long; it was checked, and right or not; a step of
 * `rows` took so long, behind `made` guesses, and gave so many tokens. */
void worth_took_guess(struct worth *w, int64_t at, double ns);
void worth_learn(struct worth *w, float sure, bool right);
void worth_took_step(struct worth *w, int64_t rows, int64_t made, double ns, int64_t tokens);

/* All of that for a step. Guesses are made by `guess`: number `at`, how sure the head is of it, or
 * *made false where there is none. At most `most` (0 to DRAFT_MOST); `always`: so many, worth it or
 * not. *n: how many to check. */
typedef enum sol_status (*worth_guess_fn)(void *arg, int64_t at, float *sure, bool *made);
enum sol_status worth_guess(struct worth *w, int64_t most, bool always, worth_guess_fn guess,
                            void *arg, int64_t *n);
/* Behind it: how many were checked and right, in a step that took so long. */
void worth_checked(struct worth *w, int64_t checked, int64_t right, double ns);

/* What a step of so many rows is thought to take, in ns; 0: nothing is known yet. */
double worth_step_ns(const struct worth *w, int64_t rows);

#endif
