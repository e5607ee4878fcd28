/* reduce_scatter by NCCL. */
#include "ops/cuda/collective_nccl.h"

COLLECTIVE_NCCL(reduce_scatter_nccl_cuda, GPU_REDUCE_SCATTER);
