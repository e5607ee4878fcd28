/* all_gather by NCCL. */
#include "ops/cuda/collective_nccl.h"

static void run(const struct op_context *context, const void *args)
{
    collective_nccl_run(context, args, GPU_ALL_GATHER);
}

const struct op_variant all_gather_nccl_cuda = COLLECTIVE_NCCL(all_gather_nccl_cuda, run, NULL);
