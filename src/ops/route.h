/* route where somebody else has chosen. */
#ifndef OPS_ROUTE_H
#define OPS_ROUTE_H

#include "ops/args.h"

/* What route writes, on the CPU, with these experts, [m][top_k], whatever the logits say: weights
 * are the softmax over the logits of those, in their order. */
void route_given(const struct route_args *args, const int32_t *experts);

#endif
