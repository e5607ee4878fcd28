/* What can be said of a model in training beyond its loss: CORE, and how it goes on with prompts.
 * An engine (src/infer) reads the weights where the trainer has them; there is no other forward
 * pass. */
#ifndef TRAIN_PROBE_H
#define TRAIN_PROBE_H

#include "base/options.h"
#include "train/core_eval.h"
#include "train/trainer.h"

enum { PROBE_SAMPLE_TOKENS = 16 };

struct probe_params {
    const struct tokenizer *tokenizer;
    const struct core_bundle *core; /* NULL: none */
    size_t core_max_per_task;       /* 0: all */
    bool samples;
    const struct string_list *prompts; /* beside those that probe.c has; NULL: none */
};

struct probe;

/* Whether all that it will read is there. */
enum sol_status probe_check(const struct probe_params *params);
/* Bytes beside the trainer's that a probe of such a trainer will take. */
enum sol_status probe_memory(const struct probe_params *params,
                             const struct trainer_params *trainer, size_t *out);
/* `params` and the trainer must stay. */
enum sol_status probe_create(const struct probe_params *params, struct trainer *trainer,
                             struct probe **out);
void probe_destroy(struct probe *probe); /* takes NULL */

/* Free with core_result_free. */
enum sol_status probe_core(struct probe *probe, struct core_result *out);

/* The bytes of the likeliest tokens behind a prompt. */
typedef enum sol_status (*probe_sample_fn)(void *arg, const char *prompt, const char *text);
/* Of a prompt that leaves no room in the context the end counts. */
enum sol_status probe_samples(struct probe *probe, probe_sample_fn each, void *arg);

#endif
