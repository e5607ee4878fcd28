/* What a row of logits says of the token that comes next. */
#ifndef INFER_LOGITS_H
#define INFER_LOGITS_H

#include <stdint.h>

#include "model/model.h"

/* log p[i] = logits[i] - max - log_sum, in nats; `top` is the likeliest, the first of equal ones.
 * log_sum is not a number where a logit is not finite. */
struct softmax {
    double max, log_sum;
    int64_t top;
};
struct softmax softmax_of(const float *logits, int64_t n);

/* Nats for `token`. */
static inline double softmax_nll(const struct softmax *s, const float *logits, int64_t token)
{
    return s->log_sum + s->max - (double)logits[token];
}

/* Rows of logits, at least one, of at most `rows` that an engine should have room for: their
 * buffer stays within 256 MiB. */
int64_t logits_rows(const struct model *model, int64_t rows);

#endif
