/* Runs an EAGLE-3 head (model/eagle_head.h) beside an engine of one sequence.
 *
 * Its row at position p joins what the target found at p and the token at p + 1, and foresees the
 * token at p + 2. So the rows of a step are worth a row each once the token behind is known: keys
 * and values of a step's rows but the last go into the head's cache when the step is on its way,
 * and that of the last with the first row of the next step. A guess begins there, and goes on with
 * what the layer itself left instead of what the target found; those rows of the cache are written
 * again when the target has been there. Going back needs nothing: a position is written before it
 * is read, but for the one before which an engine was restored from a snapshot, and what a
 * session's file brought: the head knows of these what the cache holds there. */
#ifndef INFER_EAGLE_H
#define INFER_EAGLE_H

#include "infer/engine.h"
#include "model/eagle_head.h"

struct eagle;

/* What the head wants of the engine. */
void eagle_engine_params(struct engine_params *params, const struct eagle_head *head);

/* The engine, with nothing in it, was made with that, and has one sequence. Both outlive the
 * result, which follows the engine's steps from now on, on its device, by its chooser. */
enum sol_status eagle_create(struct engine *engine, const struct eagle_head *head,
                             struct eagle **out);
void eagle_destroy(struct eagle *eagle); /* before the engine; takes NULL */

struct eagle_guess {
    int32_t token; /* -1: none */
    float sure;    /* its share of the draw (op sample) */
};

/* Guess number `at` of those that follow the engine's text, drawn by `draw`, in place 0 and without
 * a list, from what the head foresees behind `before`: behind the newest token, which follows what
 * the engine holds (at 0), or behind guess number at - 1. None where the head does not know what
 * the model found in the last token, and where not one logit is a number. The positions of `before`
 * and of the guess are within the engine's context. */
enum sol_status eagle_guess(struct eagle *eagle, int64_t at, int32_t before,
                            const struct sample_draw *draw, struct eagle_guess *out);
/* [draft_vocab] of the last guess, on the host; for tests. */
enum sol_status eagle_logits(struct eagle *eagle, float *logits);

size_t eagle_memory(const struct eagle *eagle); /* bytes that it took, with weights on a GPU */

#endif
