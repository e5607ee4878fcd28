/* Gradients of micro-batches added up in a tree: m0 + m1, m2 + m3, then the sums of those. With
 * ranks that take neighbouring micro-batches the sums have the same bits for 1, 2, 4, 8 ... of
 * them:
 * --exact. Takes the gradients' memory once for each level of the tree. */
#ifndef TRAIN_TREE_SUM_H
#define TRAIN_TREE_SUM_H

#include "ops/plan.h"

struct tree_sum;

struct tree_sum_params {
    const struct chooser *chooser;
    struct matrix parts[2]; /* float32: what a micro-batch adds to, and what is zero after each */
    int64_t ranks;
    int64_t rounds; /* micro-batches of a rank, at most */
};

int tree_sum_levels(int64_t rounds);
/* Host memory alone. */
enum sol_status tree_sum_create(const struct tree_sum_params *params, struct tree_sum **out);
void tree_sum_destroy(struct tree_sum *sum); /* takes NULL */
/* Behind each micro-batch of all ranks. */
enum sol_status tree_sum_add(struct tree_sum *sum, const struct op_context *context);
/* Before the update: the parts become the sums, on all ranks. */
enum sol_status tree_sum_end(struct tree_sum *sum, const struct op_context *context);
/* Back to no micro-batch. */
void tree_sum_drop(struct tree_sum *sum);

#endif
