/* What a model says of CORE's answers: examples become sequences of an engine, as many at a time as
 * it has room for. Sequences of one example that begin alike share that: it is computed once and
 * copied. */
#ifndef TRAIN_CORE_SCORE_H
#define TRAIN_CORE_SCORE_H

#include "infer/engine.h"
#include "train/core_tasks.h"

/* The longest prompt: what is `wanted`, or with 0 the model's context, up to 4096. */
int64_t core_scorer_context(const struct model *model, int64_t wanted);
/* Sets an engine's context, sequences, cache and rows of logits. */
void core_scorer_prepare(const struct model *model, int64_t context, struct engine_params *engine);

struct core_scorer;

/* For an engine with those parameters, all whose sequences are reset. Prompts have at most
 * `context` tokens. SOL_E_UNSUPPORTED where no token of the model begins a text. */
enum sol_status core_scorer_create(struct engine *engine, const struct engine_params *params,
                                   struct core_scorer **out);
void core_scorer_destroy(struct core_scorer *scorer); /* takes NULL */

/* Called with each item, in order, when all its answers are scored. */
typedef void (*core_scored_fn)(void *arg, size_t index, const struct core_example *example);
/* After an error the scorer is of no more use. */
enum sol_status core_score_task(struct core_scorer *scorer, const struct core_task *task,
                                core_scored_fn scored, void *arg);
int64_t core_scorer_rows(const struct core_scorer *scorer); /* tokens that were computed */

#endif
