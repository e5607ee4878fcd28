/* What a benchmark of training shows: memory before the first step, speed, and the time by op. */
#ifndef CLI_TRAIN_REPORT_H
#define CLI_TRAIN_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "bench/train.h"

enum sol_status train_report_memory(const struct train_report *report, FILE *to);
/* `run`: its id in the store; NULL: it is not kept. */
enum sol_status train_report_print(const struct train_report *report, const char *run, FILE *to);
/* NULL without memory. `settings`: those of --against that it has, or NULL. */
json_t *train_report_json(const struct train_report *report, const char *settings, const char *run);
/* One object a line of the memory table, and of the ops: what runs of both kinds keep. */
json_t *train_report_memory_json(const struct train_report *report);
json_t *train_report_ops_json(const struct train_op_times *times);
/* {"peak_flops_per_s", "of", "mfu", "mfu_causal", "sheet_flops_per_s", "sheet_mfu"} */
json_t *train_report_speed_json(const struct train_speed *speed);

/* What the store keeps of a training run beside its history: the same figures, and the folder. */
json_t *train_report_run_json(const struct train_report *report, const char *folder);

#endif
