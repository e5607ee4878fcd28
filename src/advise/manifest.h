/* Gates: which kernels a run must show, which it must not, and how much of the time some may take.
 * From options, or from a manifest that was learned from a good run. A violated gate makes the run
 * invalid.
 *
 * A manifest is JSON; "kernel" is an exact name, "match" an extended regular expression (POSIX)
 * that is searched in names and categories, "count" is calls per token, "share" the range of kernel
 * time:
 *     {"format": "sol manifest", "version": 1,
 *      "kernels": [{"kernel": "rmsnorm_f32_block", "count": 49, "share": [0.01, 0.04]}, ...],
 *      "forbid": ["dequantize"],
 *      "max_share": [{"match": "quantize|transpose", "share": 0.10}]} */
#ifndef ADVISE_MANIFEST_H
#define ADVISE_MANIFEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "advise/rules.h"
#include "sol/status.h"
#include "store/store.h"
#include "trace/summary.h"

/* Exit status of a command whose run is invalid; the same as that of `sol compare`. */
enum { MANIFEST_EXIT_INVALID = 13 };

/* All calls of one kernel. */
struct gate_kernel {
    const char *name, *category;
    double calls, per_token; /* per_token NaN where tokens are not known */
    double time_ns;
};

struct manifest; /* a set of gates */
enum sol_status manifest_create(struct manifest **out);
void manifest_destroy(struct manifest *manifest); /* takes NULL */

/* "REGEX" or "REGEX=COUNT/token": ran at all, or so often per token. SOL_E_ARGUMENT, with what is
 * wrong, for a bad expression. */
enum sol_status manifest_expect(struct manifest *manifest, const char *text);
enum sol_status manifest_forbid(struct manifest *manifest, const char *regex);
/* "REGEX=10%" */
enum sol_status manifest_max_share(struct manifest *manifest, const char *text);

/* Adds what the file holds. SOL_E_FORMAT with the place for a file that is no manifest; unknown
 * members are ignored. */
enum sol_status manifest_read(struct manifest *manifest, const char *path);
enum sol_status manifest_parse(struct manifest *manifest, const char *text, size_t size,
                               const char *name);
bool manifest_empty(const struct manifest *manifest);

/* Writes what these kernels are as a manifest: exact names, counts per token where known, shares
 * with room for noise (half to twice, kernels under 2 % may take any). */
enum sol_status manifest_learn(const struct gate_kernel *kernels, size_t n, FILE *to);

/* *violations is an array of *n, owned by the manifest until it is checked again or destroyed. */
enum sol_status manifest_check(struct manifest *manifest, const struct gate_kernel *kernels,
                               size_t n, const struct rules_violation **violations,
                               size_t *n_violations);

/* Kernels of a summary (of the steps) as gates see them; `tokens` that it covers, 0: not known.
 * *out is to be freed; the names are the timeline's. */
enum sol_status gate_kernels_of_summary(const struct timeline *t, const struct trace_summary *s,
                                        double tokens, struct gate_kernel **out, size_t *n);
/* Kernels of a stored run: those of one name (or variant, or op) together. `phase` NULL: all. */
enum sol_status gate_kernels_of_record(const struct store_kernel *kernels, size_t n_kernels,
                                       const char *phase, struct gate_kernel **out, size_t *n);

#endif
