/* Results of a benchmark as tables and as JSON. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdio.h>

#include "base/table.h"
#include "bench/bench.h"
#include "bench/ceiling.h"
#include "bench/rating.h"

enum bench_format { BENCH_TEXT, BENCH_MARKDOWN, BENCH_CSV, BENCH_JSON, BENCH_JSONL, BENCH_SQL };

struct bench_report {
    const struct model *model;
    const struct bench_params *params;
    const struct ceiling *ceiling; /* all zero: not measured, then there are no percentages */
    const char *version;
    double load_s, upload_s;            /* opening the model; copying it to the GPU, 0 on the CPU */
    const char *run;                    /* id in the store; NULL: not stored */
    const struct rating_table *ratings; /* a user's; may be NULL */
    const struct bench_result *results;
    size_t n_results;
};

/* "text" or "table", "md", "csv", "json", "jsonl", "sql". */
bool bench_format_from_name(const char *name, enum bench_format *out);

/* Text and Markdown: machine and limits, the table, with params->ops also the kernels, then notes.
 * CSV: one table, with params->ops that of the kernels. JSON: an array of records named as in
 * llama-bench's JSON where it has the same thing; JSONL: a record a line. SQL: llama-bench's table,
 * ready for sqlite3. */
enum sol_status bench_report_write(const struct bench_report *report, enum bench_format format,
                                   FILE *to);

/* Why the result must not be used, or NULL: its kernels are not those of the plan, or it is faster
 * than the machine can be. */
const char *bench_invalid(const struct bench_report *report, const struct bench_result *result);

/* What computes: the GPU's name, or the processor's. */
const char *bench_device(const struct bench_report *report);

/* The rating that applies to a result, or NULL. */
const struct rating *bench_rating(const struct bench_report *report,
                                  const struct bench_result *result);

#endif
