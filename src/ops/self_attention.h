/* What op self_attention and its gradient share: which tokens see which, and the cases. */
#ifndef OPS_SELF_ATTENTION_H
#define OPS_SELF_ATTENTION_H

#include "ops/cases.h"

/* The first token that token t of a sequence sees. */
static inline int64_t self_attention_first(int64_t window, int64_t t)
{
    return window && t >= window ? t - window + 1 : 0;
}

/* Behind the last token of `length` that sees token t. */
static inline int64_t self_attention_end(int64_t window, int64_t length, int64_t t)
{
    return window && length - t > window ? t + window : length;
}

/* Pairs of a token and one that it sees, of one sequence and head. */
static inline double self_attention_pairs(int64_t window, int64_t length)
{
    double n = (double)length, w = window && window < length ? (double)window : n;
    return w * (w + 1) / 2 + (n - w) * w;
}

struct self_attention_shape {
    int64_t sequences, length, n_heads, n_kv_heads, head_dim, window;
    bool sinks;
};

/* Number c->index of the cases; false behind the last one. */
bool self_attention_case(struct case_maker *c, struct self_attention_shape *out);
/* Of a problem, of c->sequences sequences as timed ones are. */
struct self_attention_shape self_attention_problem_shape(const struct case_maker *c,
                                                         const struct op_problem *p);
/* Arguments of the shape. Nonfinite ones have NaN in one row of q and, without a window, in the
 * first of the last sequence's k or v, which all of its tokens see. Infinities would only show
 * which sign their products have. */
void self_attention_make(struct case_maker *c, const struct self_attention_shape *shape,
                         struct self_attention_args *a);

#endif
