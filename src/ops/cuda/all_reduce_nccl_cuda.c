/* all_reduce by NCCL. */
#include "ops/cuda/collective_nccl.h"

static void run(const struct op_context *context, const void *args)
{
    collective_nccl_run(context, args, GPU_ALL_REDUCE);
}

const struct op_variant all_reduce_nccl_cuda =
    COLLECTIVE_NCCL(all_reduce_nccl_cuda, run, collective_nccl_roundings);
