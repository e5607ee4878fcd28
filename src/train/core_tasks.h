/* The tasks of CORE (DCLM, arXiv 2406.11794) as nanochat's core_eval.py puts them to a model: an
 * item behind a few others with their answers, and whether the model's likeliest answer is the
 * right one. The model is the caller's.
 *
 * A task's file has a JSON object per line. Multiple choice: "query", "choices" (texts), "gold"
 * (the right one's index). Schema: "context_options", "continuation", "gold". Language modelling:
 * "context", "continuation". */
#ifndef TRAIN_CORE_TASKS_H
#define TRAIN_CORE_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "tok/tokenizer.h"

enum core_kind { CORE_MULTIPLE_CHOICE, CORE_SCHEMA, CORE_LANGUAGE_MODELING };

struct core_options {
    enum core_kind kind;
    uint32_t few_shot;     /* items with their answers before each */
    const char *delimiter; /* between a question and its answer; " " in most tasks */
    size_t max_items;      /* 0: all */
};

struct core_task;

/* Items are shuffled as nanochat does (seed 1337), then max_items are kept. Errors name file and
 * line. */
enum sol_status core_task_open(const char *path, const struct core_options *options,
                               struct core_task **out);
void core_task_close(struct core_task *task); /* takes NULL */
size_t core_task_count(const struct core_task *task);

/* The texts of item `index`: one per choice; of language modelling two, without and with the
 * answer. */
struct core_prompts {
    char **texts;
    size_t count;
};
enum sol_status core_task_prompts(const struct core_task *task, size_t index,
                                  struct core_prompts *out);
void core_prompts_free(struct core_prompts *prompts);

/* Sequences to run; tokens [begin, end) of each are the answer, begin >= 1. One for language
 * modelling. What the model says of the answer is the caller's to fill in. */
struct core_sequence {
    struct token_list ids;
    size_t begin, end;
    double nll;  /* of the answer's tokens together, in nats */
    bool likely; /* each of them is the one that the model finds likeliest */
};

struct core_example {
    struct core_sequence *sequences;
    size_t count;
    enum core_kind kind;
    size_t gold;
    bool cropped; /* some lost their beginning */
};

/* `bos` begins each sequence; of one longer than max_tokens (0: any) the end is kept, as nanochat
 * does. */
enum sol_status core_task_example(const struct core_task *task, size_t index,
                                  const struct tokenizer *tokenizer, int32_t bos, size_t max_tokens,
                                  struct core_example *out);
void core_example_free(struct core_example *example);

/* Nats per token of an answer; not a number where it has none. */
double core_sequence_loss(const struct core_sequence *sequence);
/* Whether the answer with the lowest loss is the right one; of language modelling, whether every
 * token of the answer is the likeliest. */
bool core_example_right(const struct core_example *example);

/* The share of accuracy beyond guessing; `baseline` in percent. CORE is the mean of it over the
 * tasks. */
static inline double core_centered(double accuracy, double baseline)
{
    return (accuracy - 0.01 * baseline) / (1.0 - 0.01 * baseline);
}

#endif
