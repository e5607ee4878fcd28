/* A training run that somebody else defined: first weights, batches and flags from files; losses,
 * gradients and weights into one. So anyone can hold the trainer to another's numbers. */
#ifndef TRAIN_REPLAY_H
#define TRAIN_REPLAY_H

#include "train/trainer.h"

/* The folder has config.json ("flags": a text in base_train's names, "vocab_size", "steps", and
 * where wanted "eval_steps", a list of numbers of updates), init.safetensors (nanochat's names) and
 * batches.safetensors (x, y [steps * micro-batches, B, T] and where wanted eval.x, eval.y [B, T];
 * I32 or I64). Written to `out`, in float32: train.loss [steps] before each update; for each S of
 * eval_steps, after S updates, eval.S.loss, eval.S.nll [B, T], grad.S.NAME of the eval batch's mean
 * loss, and w.S.NAME. */
struct train_replay_params {
    const char *folder, *out;
    bool bf16;   /* activations and products; else float32 */
    int threads; /* 0: all cores */
    struct chooser chooser;
    plan_choice_fn on_choice; /* of the trainer's plans, or NULL */
    void *on_choice_arg;
};

struct train_replay_result {
    int64_t steps, micro_batches, sequences, length;
    double first_loss, last_loss;
};

enum sol_status train_replay(const struct train_replay_params *params,
                             struct train_replay_result *result);

#endif
