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

/* Guesses what follows `newest`, which follows what the engine holds: `most` tokens, each the
 * likeliest behind those before it; *n may be less. Positions from that of `newest` to the last
 * guess's are within the engine's context. */
enum sol_status eagle_guess(struct eagle *eagle, int32_t newest, int64_t most, int32_t *guesses,
                            int64_t *n);
/* [draft_vocab] of the last guess, on the host; for tests. */
enum sol_status eagle_logits(struct eagle *eagle, float *logits);

size_t eagle_memory(const struct eagle *eagle); /* bytes that it took, with weights on a GPU */

#endif
