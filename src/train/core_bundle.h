/* A folder of CORE's tasks as nanochat's eval_bundle lays it out:
 *   core.yaml            "icl_tasks": for each "label", "icl_task_type" (multiple_choice, schema or
 *                        language_modeling), "dataset_uri", "num_fewshot", and where it is no blank
 *                        "continuation_delimiter"; other keys are passed over
 *   eval_meta_data.csv   "Random baseline" in percent for each "Eval Task"
 *   eval_data/           what dataset_uri names; formats: core_tasks.h
 * Of YAML it takes what such files are written in: a list of maps of plain or quoted texts; of a
 * list as value the first. */
#ifndef TRAIN_CORE_BUNDLE_H
#define TRAIN_CORE_BUNDLE_H

#include "train/core_tasks.h"

struct core_entry {
    char *label, *path, *delimiter; /* path: of the items */
    struct core_options options;    /* max_items 0 */
    double baseline;                /* percent that guessing gets, below 100 */
};

struct core_bundle {
    struct core_entry *entries; /* in the order of core.yaml, at least one */
    size_t count;
};

/* Reads no items. Errors name file and line. */
enum sol_status core_bundle_open(const char *folder, struct core_bundle **out);
void core_bundle_close(struct core_bundle *bundle); /* takes NULL */

const char *core_kind_name(enum core_kind kind); /* as in core.yaml */

#endif
