/* OUT/log.jsonl: what happened at each step, a line each (schemas/train-step.json). */
#ifndef TRAIN_RUN_LOG_H
#define TRAIN_RUN_LOG_H

#include "train/run.h"

struct run_log;

/* What happened from update `first_step` on is dropped: it is made again. */
enum sol_status run_log_open(const char *folder, int64_t first_step, struct run_log **out);
enum sol_status run_log_step(struct run_log *log, const struct train_step *step);
enum sol_status run_log_evaluation(struct run_log *log, const struct train_evaluation *evaluation);
enum sol_status run_log_core(struct run_log *log, int64_t step, const struct core_result *result);
enum sol_status run_log_sample(struct run_log *log, const struct train_sample *sample);
void run_log_close(struct run_log *log); /* takes NULL */

/* A line, as text without its end: malloc'ed, NULL without memory. */
char *run_log_step_text(const struct train_step *step);
char *run_log_evaluation_text(const struct train_evaluation *evaluation);
char *run_log_core_text(int64_t step, const struct core_result *result);
char *run_log_sample_text(const struct train_sample *sample);

#endif
