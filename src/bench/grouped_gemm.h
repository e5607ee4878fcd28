/* grouped_gemm timed on shapes of groups, and NVIDIA's libraries beside it. */
#ifndef BENCH_GROUPED_GEMM_H
#define BENCH_GROUPED_GEMM_H

#include <jansson.h>

#include "bench/ceiling.h"
#include "bench/grouped_peers.h"
#include "store/store.h"

extern const char *const grouped_layout_names[SCALES_COUNT]; /* of enum scale_layout */

/* What is timed. */
struct grouped_bench {
    struct grouped_sizes_list sizes;
    enum dtype format, c_type;
    enum scale_layout scales;
    enum grouped_gemm_values values;
    bool gated;
    bool resident; /* weights are in tiles before anything is timed */
};

struct grouped_result {
    struct grouped_bench bench;
    struct bench_op_times times;
    struct figure figure; /* ns, with its limit where one was measured */
    struct grouped_peer_times peers[GROUPED_PEERS];
    bool profiled;
    struct bench_op_kernels kernels; /* of a call, where profiled */
};

/* With the variant that the chooser chooses; on a GPU where the libraries are there, also the
 * peers. */
enum sol_status grouped_bench_run(const struct chooser *chooser, const struct grouped_bench *bench,
                                  const struct ceiling *ceiling, struct grouped_result *out);
/* Which kernels a call launches, into a result of grouped_bench_run. */
enum sol_status grouped_bench_profile(const struct chooser *chooser, struct grouped_result *result);
/* The geometric mean of medians, in ns; `peer` GROUPED_PEERS: of the op. NaN where one is missing.
 */
double grouped_bench_mean(const struct grouped_result *results, size_t count,
                          enum grouped_peer peer);

/* schemas/gemm-bench.json */
json_t *grouped_bench_json(const struct grouped_result *results, size_t count, const char *run);
enum sol_status grouped_bench_print(const struct grouped_result *results, size_t count,
                                    enum table_format format, FILE *to);
/* That weights were packed, which peers are missing or no graph, and why: a line each. */
void grouped_bench_print_notes(const struct grouped_result *results, size_t count, FILE *to);
/* The kernels of results that are profiled, and in words how many launches a call is. */
enum sol_status grouped_bench_print_kernels(const struct grouped_result *results, size_t count,
                                            enum table_format format, FILE *to);
/* The result as metrics of run `id`: the time in ns, and a peer's as "NAME: cublas". NAME is the
 * shape's, followed by ", gated" and ", resident" where it is so. */
enum sol_status grouped_bench_keep(struct store *store, const char *id,
                                   const struct grouped_result *result);

#endif
