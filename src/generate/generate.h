/* From a prompt to the tokens that follow it: what everything that writes text has in common. Each
 * text is one sequence of an engine; any number of them share one. */
#ifndef GENERATE_GENERATE_H
#define GENERATE_GENERATE_H

#include "generate/constraint.h"
#include "generate/speculation.h"
#include "infer/engine.h"
#include "infer/sampler.h"

/* A sampler for this model. Rows that are no token are never drawn, control tokens, which are no
 * text, only with `control`, those that end a text always. */
enum sol_status generate_sampler(const struct model *model, const struct sampler_params *params,
                                 bool control, struct sampler **out);

/* The same without control tokens and without those that end a text: for benchmarks. */
enum sol_status generate_endless_sampler(const struct model *model,
                                         const struct sampler_params *params, struct sampler **out);

bool generate_is_stop(const struct model *model, int32_t token); /* it ends a text */

/* Appends `n` tokens, at least one, to a sequence and hands back the logits of the last, valid
 * until the engine's next call. Errors as engine_eval: a token outside the vocabulary, or no room,
 * changes nothing. With `step` above 0, so many tokens at a time with a progress line, and an error
 * may come between them. */
enum sol_status generate_prefill(struct engine *engine, int32_t sequence, const int32_t *tokens,
                                 int64_t n, int64_t step, const float **logits);

enum generate_end {
    GENERATE_GOES_ON,
    GENERATE_STOP_TOKEN, /* the model says that it has finished */
    GENERATE_LENGTH,     /* `limit` tokens */
    GENERATE_CONTEXT,    /* the sequence is full */
    GENERATE_WHOLE,      /* the constraint's text is at its end, and nothing can follow */
};

/* One text being written. The caller sets what is above the line, and draws the first token from
 * the prompt's logits with generate_first. */
struct generation {
    struct engine *engine;
    struct sampler *sampler; /* of this text alone */
    int32_t sequence;
    int64_t limit;                 /* tokens at most */
    int64_t context;               /* positions that the sequence has (engine_params) */
    struct constraint *constraint; /* of this text alone; NULL: any text */
    struct draft *draft; /* of this text alone, with the prompt; NULL: a step for each token */
    /* ---- */
    struct speculation speculation;
    int64_t count; /* tokens so far, the one that ends the text not among them */
    int32_t token; /* the newest, or that one */
    enum generate_end end;
};

/* Nothing is drawn with a limit of 0. */
enum sol_status generate_first(struct generation *g, const float *logits);
/* Computes the newest token and draws the one that follows. Only while g->end says that it goes on.
 * With a draft some calls compute several, and others none; until the text is at its end, the
 * engine may hold more of it than was drawn. After an error `g` says what it did. */
enum sol_status generate_next(struct generation *g);

#endif
