/* Results of a benchmark into the store. */
#ifndef BENCH_STORE_H
#define BENCH_STORE_H

#include "bench/report.h"
#include "store/store.h"

/* Begins the run of `report`, whose `run` becomes `id` (also in later reports). */
enum sol_status bench_store_begin(struct store *store, const struct bench_report *report,
                                  const char *label, int argc, char *const *argv,
                                  char id[STORE_ID_SIZE]);

/* Adds a test: its times in ns/token, with warm-ups, as a metric named like the test; "NAME: step
 * p50|p90|p99" in ns; "NAME: peak memory" in bytes; "NAME: energy" in J/token where known. */
enum sol_status bench_store_result(struct store *store, const struct bench_report *report,
                                   const struct bench_result *result);

/* Ends the run: the tests' limits, their kernels, why they are noisy (bench_noise), and the JSON
 * records as {"records": [...]}. Partial with a reason, invalid where a result is (bench_invalid).
 */
enum sol_status bench_store_finish(struct store *store, const struct bench_report *report,
                                   const char *partial_reason);

/* Of an op by its name: "attention", "matmul", "moe"...: see store_kernel. */
const char *bench_category_of(const char *op);

#endif
