/* all_reduce by NCCL. */
#include "ops/cuda/collective_nccl.h"

COLLECTIVE_NCCL(all_reduce_nccl_cuda, GPU_ALL_REDUCE);
