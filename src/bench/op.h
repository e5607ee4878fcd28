/* One op's calls timed without a model, on the CPU or a GPU: problems of any size with random
 * weights, routing and cache (make_problem). Every repetition goes through several sets of buffers,
 * together larger than the cache where a call touches enough. */
#ifndef BENCH_OP_H
#define BENCH_OP_H

#include <jansson.h>

#include "base/table.h"
#include "ops/plan.h"

struct case_maker; /* ops/cases.h */

#define BENCH_OP_HELP                                                                              \
    "time this op alone, as gpt-oss-20b calls it for one row, or with sizes of your own, for "     \
    "example gemm:m=2048,n=2880,k=4096 or attention:m=8,sequences=8,depth=4000; sizes: m n k "     \
    "groups top_k head_dim window; also dtype=, of grouped_gemm results=, scales=, gated=, "       \
    "signs= and weights=, sequences= and depth= (tokens that each holds), "                        \
    "skew= (0: tokens spread evenly over experts), check=VARIANT (compares with it), "             \
    "variant=VARIANT (times it, as --force for all of them); "                                     \
    "'all' times every op; may be repeated"

/* Times `spec` with the variant that `chooser` chooses, and appends an object to `rows`
 * (schemas/bench-op.json). SOL_E_ARGUMENT says what is wrong with a spec. */
enum sol_status bench_op(const struct chooser *chooser, const char *spec, json_t *rows);

/* A call that make_case of the caller's makes, timed as often; every repetition goes through all
 * sets of buffers. */
enum { BENCH_OP_REPETITIONS = 15 };
struct bench_op_call {
    const struct op *op;
    void (*make)(const void *arg, struct case_maker *c, void *args);
    const void *arg;
};
struct bench_op_times {
    double ns[BENCH_OP_REPETITIONS]; /* of one call */
    struct op_cost cost;
    const char *variant;
};
enum sol_status bench_op_time(const struct chooser *chooser, const struct bench_op_call *call,
                              struct bench_op_times *out);
/* What one call puts on a GPU, in its order, and how long each takes: the median, of an event on
 * either side. On a CPU it is the variant itself, which is no launch. `count` is how much there is,
 * of which the first BENCH_OP_KERNELS are in the list. */
enum { BENCH_OP_KERNELS = 64 };
struct bench_op_kernels {
    const char *variant, *choice; /* choice: "" where the variant has none */
    int count, launches;
    struct {
        char name[64];
        double ns;
    } list[BENCH_OP_KERNELS];
};
enum sol_status bench_op_kernels(const struct chooser *chooser, const struct bench_op_call *call,
                                 struct bench_op_kernels *out);
/* Such rows as a table. */
enum sol_status bench_op_print(const json_t *rows, enum table_format format, FILE *to);

#endif
