/* Comparisons and the store: stored runs as records, what calibration found, and results. */
#ifndef COMPARE_STORE_H
#define COMPARE_STORE_H

#include "compare/compare.h"
#include "store/store.h"

/* The run that `text` names (store_find_for). Speeds come as sol bench
 * wrote them, or as metrics in ns/token with their kernels; metrics of another kind follow as
 * "NAME, UNIT". `id` gets the run's.
 */
enum sol_status compare_store_read(struct store *store, const char *text, struct records *out,
                                   char id[STORE_ID_SIZE]);

/* What differs on this machine between two runs of the same thing (see noise_limit), by kind of
 * metric: "wall", "user", "cpu", "test" or "other". 0 when it was not calibrated. */
enum sol_status compare_store_delta(struct store *store, const char *kind, double *delta);
enum sol_status compare_store_set_delta(struct store *store, const char *kind, double delta,
                                        const char *command, const struct compare_result *from);

/* What starts of the same thing differ by on this machine, as far as --calibrate and benchmarks of
 * several starts have shown it, by kind of test; what is old counts less (stats/start_noise.h). */
enum sol_status compare_store_noise(struct store *store, const char *kind, struct start_noise *out);
enum sol_status compare_store_add_noise(struct store *store, const char *kind,
                                        const struct start_noise *noise);
/* Keeps the report as a run of the kind "compare". */
enum sol_status compare_store_keep(struct store *store, const struct compare_result *result,
                                   int argc, char *const *argv, char id[STORE_ID_SIZE]);

#endif
