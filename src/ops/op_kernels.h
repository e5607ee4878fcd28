/* The device code that decides how fast an op is on a GPU, as a hash for each op. What was measured
 * of an op there is good while its hash is the same. */
#ifndef OPS_OP_KERNELS_H
#define OPS_OP_KERNELS_H

#include "ops/op.h"

enum {
    OP_KERNELS_HASH = 17,
#define SOL_OP(name) +1
    OP_COUNT = 0
#include "ops/ops.list"
#undef SOL_OP
};

struct op_kernels {
    char of[OP_COUNT][OP_KERNELS_HASH]; /* in the order of op_table; "": the op has no kernels */
};

/* Of the op's variants that this GPU can run, by name, and of what they launch (op_variant.images);
 * for a composite also of the ops that it is made of. The order of lists does not count. SOL_E_IO
 * where edited kernels cannot be read. */
enum sol_status op_kernels_hash(const struct gpu *gpu, struct op_kernels *out);
const char *op_kernels_of(const struct op_kernels *kernels, const struct op *op);

#endif
