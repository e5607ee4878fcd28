/* What the variants by NCCL share. */
#ifndef OPS_CUDA_COLLECTIVE_NCCL_H
#define OPS_CUDA_COLLECTIVE_NCCL_H

#include "gpu/collective.h"
#include "ops/op.h"

bool collective_nccl_usable(char why[OP_REASON_MAX]);
void collective_nccl_run(const struct op_context *context, const void *args,
                         enum gpu_collective what);

/* x in float32 or bf16. */
extern const unsigned collective_nccl_typed[2];
/* A sum passes from rank to rank, rounded by each but the first. */
int collective_nccl_roundings(const void *args);

#define COLLECTIVE_NCCL(variant, runs, rounds)                                                     \
    {                                                                                              \
        .name = #variant, .summary = "NVIDIA's NCCL, where it is installed",                       \
        .target = TARGET_CUDA, .usable = collective_nccl_usable, .typed = collective_nccl_typed,   \
        .roundings = rounds, .run = runs,                                                          \
    }

#endif
