/* A training run: batches from a corpus, updates, evaluations, checkpoints, and samples, a
 * line of JSON for each in OUT/log.jsonl. What a checkpoint holds goes on with the same bits. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "train/checkpoint.h"
#include "train/loader.h"
#include "train/op_times.h"
#include "train/probe.h"

/* One update. */
struct train_step {
    int64_t step, steps; /* from 0; of the whole run */
    double loss, smooth; /* of its batch before the update; their running mean */
    double lr;           /* what the schedule multiplies rates with */
    double norm;         /* of the gradients, before they were clipped */
    double seconds;      /* since the last one */
    int64_t tokens;      /* of it */
    uint64_t epoch;
};

struct train_evaluation {
    int64_t step;
    double nll; /* nats per target */
    double bpb; /* NAN: no vocabulary says how many bytes a token has */
    int64_t targets;
};

/* How the model goes on with a prompt. */
struct train_sample {
    int64_t step;
    const char *prompt, *text;
};

struct train_run_params {
    const struct train_recipe *recipe;
    struct trainer *trainer;                  /* with the weights to start from */
    const struct corpus *corpus, *validation; /* validation NULL: none */
    const struct tokenizer *tokenizer;        /* NULL: tokens alone */
    const char *tokenizer_path;               /* a tokenizer.json for checkpoints, or NULL */
    int packing;                              /* enum packing_kind; -1: by the data */
    const char *out;                  /* folder of checkpoints and log; NULL: nothing is kept */
    int64_t first_step;               /* updates that were made already */
    const json_t *state;              /* of the checkpoint that this goes on from, or NULL */
    int64_t eval_every, eval_tokens;  /* 0: at the end alone; tokens of an evaluation */
    int64_t save_every;               /* 0: at the end alone */
    int64_t timed_step;               /* the update whose ops are timed, with the same bits */
    struct train_op_times *op_times;  /* of it; stays as it is until then. NULL: none are */
    const struct probe_params *probe; /* NULL: neither CORE nor samples */
    int64_t core_every, sample_every; /* 0: at the end alone */
    void (*on_step)(void *arg, const struct train_step *step);
    void (*on_evaluation)(void *arg, const struct train_evaluation *evaluation);
    void (*on_core)(void *arg, int64_t step, const struct core_result *result);
    void (*on_sample)(void *arg, const struct train_sample *sample);
    void (*on_save)(void *arg, const char *path);
    void *arg;
};

/* Where data cannot be read a checkpoint is saved before the error is handed back, and every error
 * names the last one. Stops with SOL_E_MISMATCH at a loss that is no number: the last checkpoint is
 * what was kept, and the message names it. After Ctrl-C a checkpoint is saved, and
 * SOL_E_INTERRUPTED returned. */
enum sol_status train_run(const struct train_run_params *params);

#endif
