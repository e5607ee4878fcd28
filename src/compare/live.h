/* Compares two commands by running them in turn: A B, B A, A B, ... Each two make a pair, so that
 * what changes slowly on the machine reaches both alike. */
#ifndef COMPARE_LIVE_H
#define COMPARE_LIVE_H

#include "base/options.h"
#include "compare/compare.h"

enum {
    COMPARE_PAIRS_MAX = 1000,
    COMPARE_SECONDS = 60, /* the usual budget is a time: how long a pair takes is not known */
};

struct compare_live_params {
    const char *commands[2];
    const struct compare_params *common;
    /* Metrics that decide: wall, user, cpu (user and system), test:NAME, regex:PATTERN, json:PATH;
     * the last two with "rate:" before them when higher is better. None: every test that both
     * print as benchmark JSON, else wall. */
    const struct string_list *metrics;
    const struct string_list *expect; /* OP or OP=VARIANT that the new command's JSON must name */
    size_t min_pairs, max_pairs;      /* min_pairs >= COMPARE_PAIRS_MIN */
    double max_seconds;               /* no pair begins later, once there are min_pairs */
    double timeout_s;                 /* of one start of a command */
    size_t warmup;                    /* starts of each before the first pair */
    bool same_output;
    const char *ignore_lines; /* extended regular expression; such lines may differ; or NULL */
};

void compare_live_params_init(struct compare_live_params *params);

/* A verdict, `failed` included, is SOL_OK. Errors: a metric that cannot be read (SOL_E_ARGUMENT,
 * SOL_E_FORMAT), Ctrl-C (SOL_E_INTERRUPTED; no process of the commands is left). */
enum sol_status compare_live(const struct compare_live_params *params, struct compare_result *out);

#endif
