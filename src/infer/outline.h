/* The plan of a step that nobody runs: no weights, no memory. For its calls, their costs and what
 * ranks send each other. */
#ifndef INFER_OUTLINE_H
#define INFER_OUTLINE_H

#include "infer/engine.h"

/* Rows of a step: one of each of `sequences` that generate, and runs of `run` tokens of `prompts`
 * others. Where experts are, rows are spread over them as by chance. */
struct outline_step {
    int64_t sequences, depth; /* depth: tokens that each has already */
    int64_t prompts, run, prompt_depth;
    int64_t outputs; /* rows of logits */
};

struct outline;

/* Of `model` only shapes count: opened for later, a rank's part, with a GPU from
 * model_upload_outline. Both stay the caller's and must outlive it. `params` with room for the step
 * (engine_params_settle was called). */
enum sol_status outline_create(const struct model *model, const struct engine_params *params,
                               const struct outline_step *step, struct outline **out);
void outline_destroy(struct outline *outline); /* takes NULL */
const struct plan *outline_plan(const struct outline *outline);
/* Of an engine that makes such steps alone, beyond the weights. */
size_t outline_bytes(const struct outline *outline);

#endif
