/* A comparison as tables and as JSON. */
#ifndef COMPARE_REPORT_H
#define COMPARE_REPORT_H

#include <stdio.h>

#include "base/table.h"
#include "compare/compare.h"

/* Text or Markdown. */
enum sol_status compare_report_write(const struct compare_result *result, enum table_format format,
                                     FILE *to);

/* {"mode", "verdict", "exit_status", "reason", "old", "new", "delta_percent", "delta_source",
 *  "pairs", "starts", "repeated_pairs", "precise", "seconds", "other_cores",
 *  "metrics": [{"name", "unit", "role", "better", "old", "new", "n_old", "n_new", "change_percent",
 *               "ci95_percent", "p", "p_holm", "p_sign_flip", "verdict", "needed", "outliers_old",
 *               "outliers_new", "samples_old", "samples_new"}],
 *  "differences": [{"what", "old", "new", "machine"}],
 *  "blame": [{"test", "old_ns_per_token", "new_ns_per_token", "delta_ns_per_token", "kernels_ns",
 *             "gaps_ns", "clock_ns", "residual_ns", "culprit",
 *             "parts": [{"op", "old_variant", "new_variant", "old_ns", "new_ns", "delta_ns",
 *                        "p"}]}],
 *  "next"}. Percentages are of the metric as it is shown: above 0 is more tokens per second, or
 * more seconds. NULL without memory. */
json_t *compare_report_json(const struct compare_result *result);

#endif
