/* reduce_scatter by NCCL. */
#include "ops/cuda/collective_nccl.h"

static void run(const struct op_context *context, const void *args)
{
    collective_nccl_run(context, args, GPU_REDUCE_SCATTER);
}

const struct op_variant reduce_scatter_nccl_cuda =
    COLLECTIVE_NCCL(reduce_scatter_nccl_cuda, run, collective_nccl_roundings);
