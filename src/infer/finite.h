/* Logits that are no numbers, and why. */
#ifndef INFER_FINITE_H
#define INFER_FINITE_H

#include "base/threads.h"
#include "model/model.h"

/* SOL_OK where all of logits[rows][vocab] are finite, else as finite_explain. */
enum sol_status finite_check(const struct model *model, struct pool *pool, const float *logits,
                             int64_t rows);

/* Whether all of x[n] are finite. */
bool finite_row(const float *x, int64_t n);

/* The error for a step of `model` whose logits were not finite. Reads all weights of its files
 * again, wherever they are in use. SOL_E_FORMAT names the first tensor that holds NaN or an
 * infinity; SOL_E_MISMATCH where all are finite, so that numbers grew out of range on the way or a
 * kernel is wrong. */
enum sol_status finite_explain(const struct model *model);

#endif
