/* Steps that evaluate guesses beside the newest token (generate/draft.h), and draw as many tokens
 * from them as were guessed right and one more. Tokens are drawn one after the other, each from the
 * logits behind those before it, by the same sampler as without guesses: so text and random numbers
 * are the same wherever logits do not depend on the rows of a step (docs/design/
 * numerics-and-batches.md). On a GPU the tokens of all rows are drawn there at once, each with the
 * random number of its turn, where its sampler can be asked for that and may draw anything. */
#ifndef GENERATE_SPECULATION_H
#define GENERATE_SPECULATION_H

#include "generate/draft.h"
#include "infer/engine.h"

struct speculation_counts {
    int64_t steps; /* with guesses and without */
    int64_t guessed, accepted;
};

/* Of one text, on one sequence of an engine that nobody else uses meanwhile. */
struct speculation {
    struct engine *engine;
    int32_t sequence;
    struct draft *draft; /* of this text alone; NULL: no guesses, a step a token */
    /* ---- */
    int32_t guesses[DRAFT_MOST];
    int64_t n_guesses, next; /* of the last step; the row that is drawn from next; 0: none is */
    const float *logits;     /* its rows'; NULL: tokens were drawn on a GPU */
    int32_t tokens[DRAFT_MOST + 1];
    double step_ns; /* that it took */
    struct speculation_counts counts;
};

/* What an engine must have room for, beside what it is asked for otherwise: `guesses` at a time.
 * Fewer are made where it has less. */
void speculation_engine_params(struct engine_params *params, int64_t guesses);

/* `draft`: with the text up to what the engine holds. */
void speculation_begin(struct speculation *s, struct engine *engine, int32_t sequence,
                       struct draft *draft);

/* Draws the token that follows `newest`, which the engine does not hold as it was drawn last.
 * `most`: tokens that are wanted at most from now on, at least 1. Where the sampler is restricted,
 * that must be for this draw. Errors as engine_eval_token. */
enum sol_status speculation_next(struct speculation *s, int32_t newest, int64_t most,
                                 struct sampler *sampler, int32_t *token);

/* Tokens that the engine would hold without guesses. */
int64_t speculation_position(const struct speculation *s);

/* The engine forgets what it holds beyond that. Before anything else is done with the sequence;
 * more than once is no error. */
enum sol_status speculation_end(struct speculation *s);

#endif
