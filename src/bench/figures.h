/* What follows from a benchmark's result and the machine's limits; of the median repetition.
 * Private to the reports and the store's records of a benchmark. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "bench/bench.h"
#include "bench/ceiling.h"

double bench_gigabytes_per_s(const struct bench_result *result);
double bench_gigaflops(const struct bench_result *result);

/* Percent of the limits; NaN where they were not measured. */
double bench_memory_percent(const struct ceiling *ceiling, const struct bench_result *result);
double bench_arithmetic_percent(const struct ceiling *ceiling, const struct bench_result *result);

/* The least time for the work of a repetition here, in ns: that of its bytes or of its arithmetic,
 * whichever is more. NaN where limits were not measured. */
double bench_limit_ns(const struct ceiling *ceiling, const struct bench_result *result);
double bench_kernel_limit_ns(const struct ceiling *ceiling, const struct bench_kernel *kernel);

/* Percentile of the times of generation steps, ns; NaN where there were none. */
double bench_step_ns(const struct bench_result *result, double part);

/* Energy of the whole processor over all timed repetitions, per token; NaN where unreadable. */
double bench_joules_per_token(const struct bench_result *result);

/* More than 5 % faster than the measured limit allows: the limit was measured on a busier machine,
 * or the work is miscounted; in either case the figures cannot be used. */
bool bench_impossible(const struct ceiling *ceiling, const struct bench_result *result);

bool bench_too_few(const struct bench_result *result); /* fewer than BENCH_REPETITIONS */
bool bench_disturbed(const struct bench_result *result);
size_t bench_outliers(const struct bench_result *result);
size_t bench_repeated(const struct bench_result *result);

/* "gpt-oss 20.9B". Returns `text`. */
char *bench_model_type(const struct model *model, char text[48]);

#endif
