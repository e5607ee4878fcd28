/* Rows of a batch by rising token, for cases of ops that add rows up by token. */
#ifndef OPS_TOKEN_ORDER_H
#define OPS_TOKEN_ORDER_H

#include "ops/cases.h"

/* order[0..m-1]: those of one token by rising row. */
static inline void token_order(const int32_t *token, int64_t m, int32_t *order)
{
    for (int64_t i = 0; i < m; i++) {
        int64_t at = i;
        while (at > 0 && token[order[at - 1]] > token[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = (int32_t)i;
    }
}

/* Few tokens many times, as in a text. */
static inline int32_t *case_tokens(struct case_maker *c, struct batch *batch, int64_t m,
                                   int64_t vocab)
{
    int32_t *order = ARENA_NEW(c->arena, int32_t, m);
    for (int64_t i = 0; batch && order && i < m; i++) {
        const double u = rng_uniform(c->rng);
        batch->token[i] = (int32_t)((double)vocab * u * u * u * u * (1 - 1e-9));
    }
    if (batch && order) token_order(batch->token, m, order);
    return order;
}

#endif
