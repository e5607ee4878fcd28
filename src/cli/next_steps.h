/* The next steps of commands that are about runs. */
#ifndef CLI_NEXT_STEPS_H
#define CLI_NEXT_STEPS_H

#include <stdbool.h>

#include "base/next.h"
#include "compare/compare.h"
#include "store/store.h"

/* What was asked of sol compare. `runs`: ids of the stored sides, "" for a file's. */
struct comparison_call {
    int argc;
    char *const *argv;
    const char *store_option; /* of --store; may be NULL */
    char runs[2][STORE_ID_SIZE];
    double max_seconds; /* live */
};

/* Of a result: the command that would decide where it is open, else what explains it. `store` may
 * be NULL. */
void next_of_comparison(const struct comparison_call *call, struct store *store,
                        struct compare_result *result);

/* Whether the working directory is in a tree with a sol-opt.json: what is written there becomes
 * part of what sol opt records. */
bool next_in_prepared_tree(void);

/* Of advice: `words` say what to do about it; the command shows where it came from, or begins an
 * iteration where the working directory is in a tree with a sol-opt.json. `run`: id, NULL where
 * nothing is stored. */
void next_of_advice(struct next *next, const char *words, const char *run,
                    const char *store_option);

#endif
