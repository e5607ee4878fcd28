/* Cases of attn_out for an op that goes on with the experts that it chooses. */
#ifndef OPS_ATTN_OUT_H
#define OPS_ATTN_OUT_H

#include "ops/args.h"
#include "ops/cases.h"

/* One whose logits are so far apart that no rounding changes which experts win. */
void attn_out_clear_case(struct case_maker *c, const struct op_problem *p, enum dtype router,
                         struct attn_out_args *a);

#endif
