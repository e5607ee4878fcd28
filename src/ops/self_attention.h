/* What self_attention and its backward op share: cases, costs, the forward reference. */
#ifndef OPS_SELF_ATTENTION_H
#define OPS_SELF_ATTENTION_H

#include "ops/cases.h"

enum { SELF_ATTENTION_DIM_MAX = 1024 };

/* Pairs of a query and a key that it sees, of one head. */
double self_attention_pairs(int64_t sequences, int64_t length, int64_t window);
void self_attention_reference(const struct self_attention_args *args);

struct self_attention_case {
    struct case_shape shape; /* length, query heads of a key head, key heads, sequences, head_dim */
    struct case_range window;
    bool sinks;
};
extern const struct self_attention_case self_attention_cases[];
extern const int self_attention_n_cases;
/* Number c->index of them, its sizes in *p; NULL: there is none. */
const struct self_attention_case *self_attention_draw(struct case_maker *c, struct op_problem *p);
void self_attention_make(struct case_maker *c, const struct op_problem *p, bool sinks,
                         struct self_attention_args *args);

#endif
