/* How well a model predicts a text, and how far two ways of computing it are apart. */
#ifndef INFER_PERPLEXITY_H
#define INFER_PERPLEXITY_H

#include <stdbool.h>
#include <stdint.h>

#include "infer/engine.h"

struct perplexity_params {
    int64_t context; /* tokens a window; the engine's context must be at least that */
    int64_t stride;  /* from one window's start to the next; 0: context. A smaller one gives the
                        tokens more context and takes longer: each is still scored once. */
    int64_t step;    /* rows per engine step: at most max_batch and max_outputs of the engines */
    bool llama;      /* llama.cpp's method: whole windows only, the second half of each is scored */
    bool same_experts; /* a reference on the CPU has the experts that the engine chose, so that near
                          ties of a router do not count; not in a team */
    int32_t bos;       /* llama: replaces the first token of every window; -1: nothing does */
    bool progress;
};

/* Defaults for `model`: context 512, whole windows, no bos. */
void perplexity_params_init(struct perplexity_params *params);

/* Sets what a measurement with `params` needs: context, one sequence, and as many rows of logits
 * per step as a bounded buffer holds; then params->step to match. */
void perplexity_prepare(const struct model *model, struct perplexity_params *params,
                        struct engine_params *engine);

/* Nats unless said otherwise. A measurement that was interrupted covers what was done. */
struct perplexity_result {
    int64_t scored;    /* tokens predicted */
    int64_t evaluated; /* rows computed */
    int64_t windows;
    double nll;        /* mean per token */
    double nll_error;  /* standard error of that mean */
    double perplexity; /* exp(nll) */
    double perplexity_error;
    double bits_per_byte; /* 0 for a model without a vocabulary */
    double seconds;
    bool compared; /* the fields below are there */
    double reference_nll;
    double
        difference_error; /* standard error of nll - reference_nll, which is a paired difference */
    double kl_mean, kl_max; /* KL(reference || this) per token */
    double top1;            /* share of positions with the same likeliest token */
    double top_margin; /* where it is another one: how far the reference's first is ahead of its
                          second at most, in standard deviations of its logits; 0: nowhere */
    /* With same_experts: the share of choices of a row in a layer that are not the reference's own;
     * how far they are behind its own at most, in standard deviations of the router's logits. */
    double other_experts, experts_behind;
};

/* Scores `tokens` with `engine` (sequence 0, which is reset). With a `reference` (or NULL), an
 * engine over the same model and prepared the same way, both are run and compared. Errors: too few
 * tokens (SOL_E_ARGUMENT), logits that are not finite (as engine_eval), interruption (result is
 * filled). */
enum sol_status perplexity_measure(struct engine *engine, struct engine *reference,
                                   const int32_t *tokens, int64_t n,
                                   const struct perplexity_params *params,
                                   struct perplexity_result *result);

#endif
