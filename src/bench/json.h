/* Results of a benchmark as records for programs: JSON, JSONL, CSV and SQL. Private to the reports.
 */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#include "bench/report.h"

enum sol_status bench_write_json(const struct bench_report *report, bool lines, FILE *to);
enum sol_status bench_write_csv(const struct bench_report *report, FILE *to);
enum sol_status bench_write_sql(const struct bench_report *report, FILE *to);

/* One result's record, complete; NULL without memory. A new reference. */
json_t *bench_record_json(const struct bench_report *report, const struct bench_result *result);

#endif
