/* all_reduce by NCCL. */
#include "ops/cuda/collective_nccl.h"

#include "ops/collective_args.h"

static void run_either(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    collective_nccl_run(context, args, a->mean ? GPU_ALL_MEAN : GPU_ALL_REDUCE);
}

const struct op_variant all_reduce_nccl_cuda =
    COLLECTIVE_NCCL(all_reduce_nccl_cuda, run_either, collective_nccl_roundings);
