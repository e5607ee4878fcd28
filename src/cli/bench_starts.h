/* sol bench --starts: the same benchmark in several processes. Each but the last runs as a process
 * of its own that prints its results as JSON; the last is the one that was started, which adds them
 * to its own. One after the other, so that only one has the model in memory. */
#ifndef CLI_BENCH_STARTS_H
#define CLI_BENCH_STARTS_H

#include <jansson.h>

#include "bench/bench.h"
#include "store/store.h"

enum { BENCH_STARTS_MAX = 100 };

struct bench_starts {
    json_t *outputs[BENCH_STARTS_MAX]; /* owned: the records of each */
    int count;
};

/* How many starts this process is one of, where bench_starts_run started it; else 0. */
int bench_starts_share(void);

/* Runs this program with `argv` n - 1 times. When one fails: its status and its last words. */
enum sol_status bench_starts_run(struct bench_starts *starts, int n, int argc, char *const *argv);
void bench_starts_free(struct bench_starts *starts);

/* Adds what they measured in test number `index` to this process's own result of it. `starts` must
 * live longer. */
enum sol_status bench_starts_merge(const struct bench_starts *starts, size_t index,
                                   struct bench_result *result);

/* Keeps what the starts of a result say about this machine's noise, unless it was disturbed. */
enum sol_status bench_starts_learn(struct store *store, const struct bench_result *result);

#endif
