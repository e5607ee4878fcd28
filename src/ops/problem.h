/* The sizes of a problem (struct op_problem) by name: for people, for tuning records, and for those
 * who make up one. */
#ifndef OPS_PROBLEM_H
#define OPS_PROBLEM_H

#include "ops/op.h"

/* All but the dtype. The first is rows. Some are no numbers but one of a few words, the first of
 * which stands for 0: such words, ending with NULL; NULL for numbers. */
enum { OP_SIZES = 15 };
const char *op_size_name(int i);
const char *const *op_size_words(int i);
int64_t *op_size(struct op_problem *problem, int i);

/* Equal but for the rows. */
bool op_problem_same(const struct op_problem *a, const struct op_problem *b);
/* "16 x bf16 n=4096 k=2880"; equal words are one problem. */
void op_problem_describe(const struct op_problem *problem, char *text, size_t size);

#endif
