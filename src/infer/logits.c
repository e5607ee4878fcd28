/* See logits.h. */
#include "infer/logits.h"

#include <math.h>

/* 333 rows of 201088 tokens. */
static const int64_t buffer_bytes = 256 << 20;

struct softmax softmax_of(const float *logits, int64_t n)
{
    struct softmax s = {.max = -INFINITY, .top = -1};
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] > s.max) {
            s.max = logits[i];
            s.top = i;
        }
    }
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - s.max);
    s.log_sum = log(sum); /* NaN when a logit is NaN or infinite: the caller looks */
    return s;
}

int64_t logits_rows(const struct model *model, int64_t rows)
{
    const int64_t fits = buffer_bytes / (model->config.vocab * (int64_t)sizeof(float));
    if (rows > fits) rows = fits;
    return rows < 1 ? 1 : rows;
}
