/* The ops by name, for those that call them: plan_call(plan, &op_rmsnorm, &(struct
 * rmsnorm_args){...}). */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "ops/args.h"
#include "ops/op.h"
#include "ops/plan.h"

#define SOL_OP(name) extern const struct op op_##name;
#include "ops/ops.list"
#undef SOL_OP

#endif
