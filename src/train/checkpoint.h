/* Checkpoints: a folder for each, which `sol run -m` takes as a model.
 *
 *   config.json             the model, as nanochat's meta files have it; gpt-oss as transformers
 * does model.safetensors       weights under nanochat's names, in the types that they are trained
 * in; of gpt-oss under transformers' names, in its layout, without loss optimizer.safetensors
 * NAME.exp_avg and NAME.exp_avg_sq, NAME.momentum and NAME.second_momentum for each parameter NAME
 * (gpt-oss: GGUF's names) train.json              the step, the flags, and what the run adds (where
 * its data is) tokenizer.json          a copy, where there is one
 *
 * A folder appears under its name complete or not at all: kills and full disks leave what was
 * there. A trainer that was loaded from one goes on with the same bits. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <jansson.h>

#include "train/trainer.h"

enum { CHECKPOINT_PATH = 4096 };

/* "FOLDER/step_000120" */
enum sol_status checkpoint_path(const char *folder, int64_t step, char path[CHECKPOINT_PATH]);
/* The highest step that `folder` has a checkpoint of; -1: none. */
int64_t checkpoint_latest(const char *folder);

struct checkpoint_parts {
    const struct train_recipe *recipe;
    int64_t step;          /* updates that were made */
    const json_t *state;   /* of the run, or NULL; borrowed */
    const char *tokenizer; /* a tokenizer.json, or NULL */
};
/* Waits for the trainer. `path` must not exist. All ranks call it, behind an update, and rank 0
 * writes; how it went for one the others do not know. */
enum sol_status checkpoint_save(struct trainer *trainer, const struct checkpoint_parts *parts,
                                const char *path);

struct checkpoint; /* what train.json says */

enum sol_status checkpoint_open(const char *path, struct checkpoint **out);
void checkpoint_close(struct checkpoint *checkpoint); /* takes NULL */
int64_t checkpoint_step(const struct checkpoint *checkpoint);
int64_t checkpoint_vocab(const struct checkpoint *checkpoint);
/* The flags that the run was started with; texts in it live as long as the checkpoint. */
const struct train_flags *checkpoint_flags(const struct checkpoint *checkpoint);
const json_t *checkpoint_state(const struct checkpoint *checkpoint); /* borrowed; may be NULL */

/* Weights, with which the trainer's update number `step` is the next; and with `states` what the
 * optimizer keeps. */
enum sol_status checkpoint_load(const char *path, struct trainer *trainer, int64_t step,
                                bool states);

#endif
