/* Comparing two programs, or two runs that were kept: the metrics, their shifts and verdicts, what
 * differed in the surroundings, and which kernels moved.
 *
 * "old" is the first of the two, "new" the second; every shift is that of the time from old to new,
 * so that above 0 means slower whatever way a metric is written. */
#ifndef COMPARE_COMPARE_H
#define COMPARE_COMPARE_H

#include <jansson.h>

#include "base/next.h"
#include "compare/blame.h"
#include "compare/records.h"
#include "compare/verdict.h"
#include "stats/start_noise.h"

struct compare_metric {
    char *name;
    const char *unit; /* "t/s", "s" or "" */
    bool deciding;    /* named before the run; the others are exploratory */
    bool rate;        /* higher is better */
    double *values[2];
    size_t count[2];         /* the same when live: values[0][i] and values[1][i] are a pair */
    struct figure figure[2]; /* of the values; of a stored run the one that all its readers show */
    size_t outliers[2];      /* Tukey's, of the logarithms; labelled, never left out */
    struct shift shift;      /* of the logarithm of the time; of stored runs that of the figures */
    double margin; /* live: differences below it are those of the same thing here, 0.03 = 3 %; 0:
                    * not looked at, the smallest effect that counts is */
    char *noise;   /* why a figure is unsure, so that nothing is decided; or NULL */
    struct sign_flip flip; /* live only */
    double p_holm;         /* among the deciding or among the exploratory ones */
    bool timed;            /* a time or a speed of work, so that a speed-up means something */
    int gpus[2];           /* that did it together; 0: not known */
    struct communication_figure communication[2]; /* `ranks` is 0 where it is not known */
    enum verdict verdict;
    size_t needed; /* pairs or starts, where inconclusive; 0: cannot be said */
};

struct compare_blame {
    char *test;
    struct blame blame;
};

struct compare_difference {
    char *what, *old_value, *new_value;
    bool machine; /* of the machine, not a setting of the program */
};

struct compare_result {
    bool live;      /* else historical */
    char *names[2]; /* commands, or what was given for the stored runs */
    enum verdict verdict;
    struct next next;               /* what to do now; made by whoever knows the command */
    char *reason;                   /* of invalid, incorrect, failed; else NULL */
    double delta;                   /* smallest effect that counts, 0.01 = 1 % */
    const char *delta_source;       /* "1 % floor", "calibration", "--delta" */
    struct compare_metric *metrics; /* deciding ones first; without values when no pair was made */
    size_t n_metrics;
    struct compare_difference *differences;
    size_t n_differences;
    struct compare_blame *blames;
    size_t n_blames;
    /* live */
    size_t pairs,
        starts;      /* in the statistics; process starts, warm-up and repeated ones included */
    size_t repeated; /* pairs that were measured again because the machine held them back */
    bool precise;    /* stopped because the interval was narrow enough, not at a cap */
    double seconds, other_cores;
};

struct compare_params {
    double delta;        /* > 0 */
    bool delta_is_given; /* by the user: then nothing larger counts as the same */
    const char *delta_source;
    uint64_t seed;            /* of random sign flips */
    const char *const *tests; /* historical: those that decide; all when there are none */
    size_t n_tests;
    bool across_machines; /* historical: runs of different machines are no reason for `invalid` */
    /* historical: what starts differ by here, of prompts and of generation */
    struct start_noise prompt_noise, generation_noise;
};

void compare_result_free(struct compare_result *result); /* takes a zeroed one */

/* ---- parts, for the two ways to compare ---- */

/* Adds a metric; *out is valid until the next one is added. */
enum sol_status compare_add_metric(struct compare_result *result, const char *name,
                                   const char *unit, bool deciding, bool rate,
                                   struct compare_metric **out);
void compare_drop_metric(struct compare_result *result, size_t index);
/* Appends a value > 0 to one side. */
enum sol_status compare_add_value(struct compare_metric *metric, int side, double value);
/* Shift, p and outliers of a metric, by pairs when the result is live. */
enum sol_status compare_measure(const struct compare_result *result, struct compare_metric *metric);
/* The sign-flip test of the mean, for pairs; slow beyond SIGN_FLIP_EXACT, so only at the end. */
enum sol_status compare_flip(struct compare_metric *metric, uint64_t seed);
/* How many times as fast as the old one the new one is, and what each GPU does of that beside one
 * of the old; NaN where the numbers of GPUs are the same or not known, or the metric is no time. */
double compare_speed_up(const struct compare_metric *metric);
double compare_efficiency(const struct compare_metric *metric);
/* Below how much the deciding metrics that are the same are so, as a fraction. */
double compare_same_within(const struct compare_result *result);
/* Holm within deciding and exploratory metrics, verdicts of all and of the whole. A verdict that
 * was set before (invalid, incorrect, failed) stays. */
enum sol_status compare_conclude(struct compare_result *result);
/* After compare_conclude: every deciding metric is known precisely enough, and not just beside
 * delta, so that no more pairs are needed. */
bool compare_is_decided(const struct compare_result *result);
/* Takes from the record of a side what is known of its GPUs. */
void compare_note_gpus(struct compare_metric *metric, int side, const struct record *record);
/* Sets verdict and reason, the first one wins. */
enum sol_status compare_spoil(struct compare_result *result, enum verdict verdict, const char *fmt,
                              ...) SOL_PRINTF(3, 4);
enum sol_status compare_add_difference(struct compare_result *result, const char *what,
                                       const char *old_value, const char *new_value, bool machine);
/* Settings and machine facts in which two records differ, each once. */
enum sol_status compare_record_differences(struct compare_result *result, const struct record *a,
                                           const struct record *b);
/* Kernel by kernel, from records of `n` runs a side (paired when live). */
enum sol_status compare_blame_test(struct compare_result *result, const struct record *const *a,
                                   const struct record *const *b, size_t n);

/* ---- stored runs ---- */

/* "prompt" or "generation", of a test's name: a prompt with tokens behind it is generation. */
const char *compare_noise_kind(const char *test);

/* Tests of the same name, start against start. `names` are for the report. */
enum sol_status compare_historical(const struct compare_params *params, const char *const names[2],
                                   const struct records *a, const struct records *b,
                                   struct compare_result *out);

#endif
