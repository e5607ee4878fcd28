/* What follows from a benchmark's result and the machine's limits; all of its figure of speed.
 * Private to the reports and the store's records of a benchmark. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "bench/bench.h"
#include "bench/ceiling.h"

double bench_gigabytes_per_s(const struct bench_result *result);
double bench_gigaflops(const struct bench_result *result);

/* The speed with its limit: the least time a token's work could take here, that of its bytes or of
 * its arithmetic, whichever is more. In ns per token, and as tokens per second. */
struct figure bench_speed(const struct ceiling *ceiling, const struct bench_result *result);
struct figure bench_rate(const struct ceiling *ceiling, const struct bench_result *result);
/* Which of the two it is: "memory", "arithmetic"; "" where limits were not measured. */
const char *bench_bound(const struct ceiling *ceiling, const struct bench_result *result);

/* What the bytes and what the arithmetic would take of the time, in percent; NaN where limits were
 * not measured. */
double bench_memory_percent(const struct ceiling *ceiling, const struct bench_result *result);
double bench_arithmetic_percent(const struct ceiling *ceiling, const struct bench_result *result);

/* The least time for a kernel's work in a step, ns; NaN where limits were not measured. */
double bench_kernel_limit_ns(const struct ceiling *ceiling, const struct bench_kernel *kernel);

/* Percentile of the times of generation steps, ns; NaN where there were none. */
double bench_step_ns(const struct bench_result *result, double part);

/* More than 5 % faster than the measured limit allows: the limit was measured on a busier machine,
 * or the work is miscounted; in either case the figures cannot be used. */
bool bench_impossible(const struct ceiling *ceiling, const struct bench_result *result);

bool bench_too_few(const struct bench_result *result); /* fewer than BENCH_REPETITIONS */
bool bench_disturbed(const struct bench_result *result);
/* What is to be known before the speed is used: "other programs kept 1.2 cores busy", "its 95 %
 * interval is +-8 %". "" when there is nothing. Returns `text`. */
char *bench_noise(const struct bench_result *result, char text[160]);
size_t bench_outliers(const struct bench_result *result);
size_t bench_repeated(const struct bench_result *result);

/* "gpt-oss 20.9B". Returns `text`. */
char *bench_model_type(const struct model *model, char text[48]);

#endif
