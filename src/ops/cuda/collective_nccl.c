#include "ops/cuda/collective_nccl.h"

#include <stdio.h>

#include "comm/communicator.h"
#include "ops/args.h"

const unsigned collective_nccl_typed[2] = {1, 0};

bool collective_nccl_usable(char why[OP_REASON_MAX])
{
    const char *reason;
    if (gpu_collective_usable(&reason)) return true;
    snprintf(why, OP_REASON_MAX, "%.*s", OP_REASON_MAX - 1, reason);
    return false;
}

int collective_nccl_roundings(const void *args)
{
    const struct collective_args *a = args;
    return (int)a->ranks - 1;
}

void collective_nccl_run(const struct op_context *context, const void *args,
                         enum gpu_collective what)
{
    const struct collective_args *a = args;
    if (a->ranks > 1)
        gpu_put_collective(context->stream, communicator_gpu_ranks(context->communicator), what,
                           a->x.dtype == DTYPE_BF16, a->x.data, a->m * a->n);
}
