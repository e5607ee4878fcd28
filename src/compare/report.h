/* A comparison as tables and as JSON. */
#ifndef COMPARE_REPORT_H
#define COMPARE_REPORT_H

#include <stdio.h>

#include "base/table.h"
#include "compare/compare.h"

/* A shift of the logarithm of the time as a change of the metric, in percent of what is shown. */
double compare_change_percent(const struct compare_metric *metric, double shift);

/* The verdict in words: "b2 is 16.8 % slower than b1 in pp512". */
void compare_sentence(const struct compare_result *result, char *text, size_t size);

/* Text or Markdown. */
enum sol_status compare_report_write(const struct compare_result *result, enum table_format format,
                                     FILE *to);

/* {"mode", "verdict", "sentence", "exit_status", "reason", "old", "new", "delta_percent",
 * "delta_source", "pairs", "starts", "repeated_pairs", "precise", "seconds", "other_cores",
 *  "metrics": [{"name", "unit", "role", "better", "old", "new", "n_old", "n_new", "change_percent",
 *               "ci95_percent", "p", "p_holm", "p_sign_flip", "verdict", "needed", "outliers_old",
 *               "outliers_new", "samples_old", "samples_new", "timed", "gpus_old", "gpus_new",
 *               "speed_up", "efficiency", "exposed_ns_old", "exposed_ns_new",
 *               "exposed_share_old", "exposed_share_new"}],
 *  "differences": [{"what", "old", "new", "machine"}],
 *  "blame": [{"test", "old_ns_per_token", "new_ns_per_token", "delta_ns_per_token", "kernels_ns",
 *             "gaps_ns", "clock_ns", "residual_ns", "culprit",
 *             "parts": [{"op", "old_variant", "new_variant", "old_ns", "new_ns", "delta_ns",
 *                        "p"}]}],
 *  "first", "next"}. Percentages are of the metric as it is shown: above 0 is more tokens per
 * second, or more seconds. NULL without memory. */
json_t *compare_report_json(const struct compare_result *result);

/* A result from that JSON, as it is stored, to be shown again; some texts stay `json`'s. Freed with
 * compare_result_free. SOL_E_FORMAT when it is damaged. */
enum sol_status compare_report_read(const json_t *json, struct compare_result *out);

#endif
