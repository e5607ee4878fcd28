/* all_gather by NCCL. */
#include "ops/cuda/collective_nccl.h"

COLLECTIVE_NCCL(all_gather_nccl_cuda, GPU_ALL_GATHER);
