/* One benchmark of training, with what it is for. */
#ifndef CLI_TRAIN_BENCH_H
#define CLI_TRAIN_BENCH_H

#include "bench/train.h"
#include "cli/train_options.h"

/* What is done with the figures while the trainer is still there. `run`: their id in the store, or
 * NULL. */
typedef enum sol_status train_show_fn(void *arg, const struct train_report *report,
                                      const char *run);

struct train_bench_how {
    const char *settings; /* of --against, or NULL */
    const char *label;    /* of the run in the store, or NULL */
    bool says_memory;     /* the model and what it takes, before the first step */
    plan_choice_fn on_choice;
    /* Behind on_choice's last call, before anything runs: an error ends it. NULL: nothing is asked.
     */
    enum sol_status (*check)(void *arg);
    train_show_fn *show;
    void *arg; /* of all three */
};

/* Limits were measured before (train_measure_limits). Figures that do not count are shown and kept
 * all the same. */
enum sol_status train_bench_measure(struct train_command *command,
                                    const struct train_recipe *recipe,
                                    const struct train_bench_how *how);

#endif
