/* What the parts of `sol train` share. */
#ifndef CLI_TRAIN_OPTIONS_H
#define CLI_TRAIN_OPTIONS_H

#include "base/options.h"
#include "bench/ceiling.h"
#include "cli/ranks.h"
#include "gpu/device.h"
#include "ops/plan.h"
#include "store/store.h"
#include "train/flags.h"
#include "train/trainer.h"

struct train_options {
    struct train_flags flags;
    struct string_list force, against, prompts;
    const char *backend, *kernel_source, *out, *optimizer;
    const char *data, *validation, *split, *tokenizer, *packing, *init_from, *core;
    const char *recompute;
    double val_percent, memory;
    int64_t threads, gpus, vocab, micro_batches, warmup, token_bytes;
    int64_t eval_every, eval_tokens, save_every, resume_from;
    int64_t core_every, core_max_per_task, sample_every;
    const char *store, *label;
    double budget; /* of tune */
    bool exact, reference, in_turn, resume, json, wide, quiet, no_store, no_limits;
    bool no_tuning, again, dry_run;
};

struct train_command {
    struct train_options o;
    struct chooser chooser;
    struct tuning tuning; /* what the chooser looks into; empty: nothing is known */
    struct gpu *gpu;
    struct ceiling ceiling; /* what products reach here; zeroes: it was not measured */
    struct store *store;    /* NULL: nothing is kept */
    struct ranks ranks;
    struct train_thread *others; /* the other ranks of --gpus; NULL: none */
    int argc;
    char **argv;
};

extern const char *const train_recompute_names[RECOMPUTE_LEVELS];
bool train_is_bf16(const struct train_command *command);
bool train_updates(const struct train_command *command); /* not with --optimizer none */
/* SOL_E_UNSUPPORTED where the device has not that --precision. */
enum sol_status train_check_precision(const struct train_command *command);
/* What the options say of a trainer for the recipe. */
void train_params_of(const struct train_command *command, const struct train_recipe *recipe,
                     struct trainer_params *out);

/* Measures the ceiling, before a trainer takes the device's memory. */
enum sol_status train_measure_limits(struct train_command *command,
                                     const struct train_recipe *recipe);

/* `sol train bench`, whose flags have all been given values by now: shown, and kept in the store.
 */
enum sol_status train_bench_one(struct train_command *command);
/* The same with --against: a row for each of its settings. */
enum sol_status train_against(struct train_command *command);

/* `sol train tune`, with flags as for a benchmark. */
enum sol_status train_tune(struct train_command *command);

/* The other ranks of `command`, which becomes rank 0 of --gpus; each does `run`. */
enum sol_status train_threads_start(struct train_command *command,
                                    enum sol_status (*run)(struct train_command *command));
/* Behind ranks_close of rank 0. */
void train_threads_join(struct train_command *command);

/* `sol train --data ...` */
enum sol_status train_pretrain(struct train_command *command);

#endif
