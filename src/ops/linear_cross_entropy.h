/* What the forms of linear_cross_entropy share. */
#ifndef OPS_LINEAR_CROSS_ENTROPY_H
#define OPS_LINEAR_CROSS_ENTROPY_H

#include "ops/args.h"
#include "ops/op.h"

/* `count` rows of a matrix without gaps; of one without data none. */
struct matrix linear_loss_rows(const struct matrix *m, int64_t first, int64_t count);
/* out = x y + add, either transposed; add without data: nothing is added. */
void linear_loss_product(struct plan *plan, bool transpose_a, bool transpose_b, struct matrix x,
                         struct matrix y, struct matrix add, struct matrix out);

/* Sizes that a form may have, ascending, as its choices are numbered: how many rows or columns of
 * logits it holds. */
struct linear_loss_sizes {
    const int64_t *size;
    int count;
};
/* Whether it makes a difference among so many rows or columns, and needs no endless list. */
bool linear_loss_serves(const struct linear_loss_sizes *sizes, int64_t of, int choice);
/* The largest that serves and whose logits, `other` for each row or column, take at most `bytes`;
 * the first that serves where all take more. */
int linear_loss_usual(const struct linear_loss_sizes *sizes, int64_t of, double other,
                      double bytes);
/* Sets of matrices that forms take in bf16 on a GPU: x, W and dx. */
extern const unsigned linear_loss_typed[];
bool linear_loss_can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX]);

#endif
