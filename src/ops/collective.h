/* What the ops of collective_args.h share: their contract's parts, and the host's ways. */
#ifndef OPS_COLLECTIVE_H
#define OPS_COLLECTIVE_H

#include "ops/cases.h"
#include "ops/collective_args.h"

/* Numbers of a part that the host passes on at a time. */
enum { COLLECTIVE_PART = 1 << 18 };

void collective_problem(const void *args, struct op_problem *out);
/* What goes in and out of a rank's memory, and the sums: `passes` over the numbers of all blocks.
 */
struct op_cost collective_cost(const struct collective_args *a, int64_t blocks, double passes,
                               bool sums);
/* `blocks`: of m rows that x has. */
void collective_make(struct case_maker *c, const struct op_problem *p, int64_t blocks, void *args);
void collective_make_blocks(struct case_maker *c, const struct op_problem *p, void *args);
/* Rows of a block, n, ranks: of ops on blocks. */
extern const struct case_shape collective_block_cases[2];

/* parts[0][n] = the sum of parts [ranks][n], in the order of collective_args.h; the other parts are
 * lost. */
void collective_sum(struct pool *pool, float *parts, int64_t ranks, int64_t n);
/* x [n] = the sum: everybody gets everything and adds it up. `room` as below. */
void collective_add_up(const struct op_context *context, float *x, int64_t ranks, int64_t n);
/* x [ranks][n]: block r of rank r = the sum, with the others' numbers passed on whole. `room`
 * [2 * ranks][least(n, COLLECTIVE_PART)] */
void collective_reduce_scatter(const struct op_context *context, float *x, int64_t ranks,
                               int64_t n);
void collective_all_gather(const struct op_context *context, float *x, int64_t ranks, int64_t n);
size_t collective_room(int64_t ranks, int64_t n);
/* That, of a problem's numbers of a block: what references take. */
size_t collective_workspace(const void *args, int workers);

#endif
