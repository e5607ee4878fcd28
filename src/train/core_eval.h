/* CORE of a model: its accuracy on the tasks of a bundle, by an engine. Items are put to it many at
 * a time, and what the choices of one begin with is computed once. */
#ifndef TRAIN_CORE_EVAL_H
#define TRAIN_CORE_EVAL_H

#include "infer/engine.h"
#include "train/core_bundle.h"

struct core_task_result {
    const char *label; /* the bundle's */
    enum core_kind kind;
    uint32_t few_shot;
    size_t items, correct;
    size_t cropped; /* items whose prompts were longer than the context: the end is kept */
    double accuracy, low, high; /* and its 95 % interval (Clopper and Pearson) */
    double baseline;            /* accuracy of guessing */
    double centered;            /* (accuracy - baseline) / (1 - baseline) */
    double seconds;
};

/* Free with core_result_free. */
struct core_result {
    struct core_task_result *tasks; /* those that were finished */
    size_t count, items;            /* of all of them */
    int64_t rows;                   /* tokens that were computed */
    double core;                    /* mean of `centered`; NAN with no task */
    double low, high; /* 95 %: the halves of the tasks' intervals, as independent errors add up */
    double seconds;
    bool complete; /* all tasks */
};

struct core_eval_params {
    const struct core_bundle *bundle;
    size_t max_per_task; /* items; 0: all */
    bool progress;
};

/* Whether all items can be read, before work is begun that they are for. */
enum sol_status core_eval_check(const struct core_eval_params *params);

/* `with` are the engine's parameters, by core_scorer_prepare (core_score.h). SOL_E_INTERRUPTED with
 * the tasks that were finished; after another error there is no result. The model needs a
 * vocabulary with a token that begins a text. */
enum sol_status core_eval(struct engine *engine, const struct engine_params *with,
                          const struct core_eval_params *params, struct core_result *out);
void core_result_free(struct core_result *result);

#endif
