/* Guesses of what a text goes on with. Whether they are right a step of the model says
 * (generate/speculation.h). There are two sources:
 *
 * Looking up where the text's last tokens stood before: prompt lookup, also called an n-gram draft.
 * What is written often repeats what was read: code that is changed, a text that is quoted or
 * corrected. The guesses cost a look into a table.
 *
 * A head that was trained for it (model/eagle_head.h), which knows what the model found in the text
 * so far. Each guess costs a pass through it. */
#ifndef GENERATE_DRAFT_H
#define GENERATE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    DRAFT_MOST = 16, /* guesses at a time */
    DRAFT_KEY = 3,   /* tokens that are looked up */
};

struct draft;
struct eagle;
struct sampler;

/* By looking up, for texts of up to `capacity` tokens, and 1 to DRAFT_MOST guesses at a time. */
enum sol_status draft_create(int64_t capacity, int64_t most, struct draft **out);
/* By a head that follows the engine's steps, and is the caller's. As many as are worth their time
 * (generate/worth.h), or always `most`. */
enum sol_status draft_create_eagle(struct eagle *eagle, int64_t most, bool always,
                                   struct draft **out);
void draft_destroy(struct draft *draft); /* takes NULL */

/* Another text begins, of which nothing is known. Looked up, as many guesses are worth trying as at
 * the beginning; what those of a head take, and how often they are right, stays known. */
void draft_reset(struct draft *draft);
/* The text goes on with these. What is beyond the capacity is not kept, and nothing guessed then. A
 * head knows the text from the engine, but for the newest token. */
void draft_add(struct draft *draft, const int32_t *tokens, int64_t n);
/* What may follow: *n guesses, at most `most` (which may be 0 or less). Looked up they are what
 * followed where the last tokens stood before: at the place with most of them, of several the last,
 * and DRAFT_KEY of them at least. Where it is so near that the text ends before the guesses do,
 * they repeat. None where these tokens are new, and for a while after guesses that were wrong. A
 * head guesses where that is worth its time, and knows what the model found in the last token; it
 * draws with the random numbers that `sampler` will draw the tokens with, which so are more often
 * the same. */
enum sol_status draft_guess(struct draft *draft, const struct sampler *sampler, int64_t most,
                            int32_t guesses[DRAFT_MOST], int64_t *n);
/* What became of the guesses that draft_guess gave last, so that the next ones are fewer or more.
 */
struct draft_step {
    int64_t guessed, right;
    double ns; /* that the step took; the host's draws count where there was nothing to check */
};
void draft_learn(struct draft *draft, const struct draft_step *step);

#endif
