/* One op's calls timed on a GPU, without a model: products of any shape, with random weights and
 * routing. Every repetition goes through several sets of buffers, together larger than the cache.
 */
#ifndef BENCH_OP_H
#define BENCH_OP_H

#include "base/table.h"
#include "ops/plan.h"

#define BENCH_OP_HELP                                                                              \
    "time this op alone on a GPU: gemm, moe_up or moe_down with sizes, for example "               \
    "gemm:m=2048,n=2880,k=4096 or moe_up:m=2048,n=2880,k=2880,groups=32,top_k=4; also dtype= "     \
    "(bf16, mxfp4, q8_0), skew= (0: tokens spread evenly over experts), check=VARIANT (compares "  \
    "with "                                                                                        \
    "it), and --force; may be repeated"

/* Times `spec` with the variant that `chooser` (whose device is a GPU) chooses, and adds a line to
 * a table of bench_op_table. SOL_E_ARGUMENT says what is wrong with a spec. */
enum sol_status bench_op(const struct chooser *chooser, const char *spec, struct table *table);
enum sol_status bench_op_table(struct table **out);

#endif
