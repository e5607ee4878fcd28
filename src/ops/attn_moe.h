/* The second half of attn_moe, whose arguments go on where those of the first end. */
#ifndef OPS_ATTN_MOE_H
#define OPS_ATTN_MOE_H

#include "ops/args.h"

struct moe_args attn_moe_second(const struct attn_moe_args *a);

#endif
