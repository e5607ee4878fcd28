/* The experts of one row or two in two kernels, exact (kernels/moe/moe_row.cu): those of a routing,
 * or those that logits choose. */
#ifndef OPS_CUDA_MOE_ROW_CUDA_H
#define OPS_CUDA_MOE_ROW_CUDA_H

#include "gpu/device.h"
#include "ops/args.h"
#include "ops/op.h"

bool moe_row_serves(const struct moe_args *a, char why[OP_REASON_MAX]);
/* Bytes of what passes between the two. */
size_t moe_row_act(const struct moe_args *a);

/* From sm_90 on: behind the kernel that has written a->normed and `halves` [m][n_experts][2], whose
 * sums are logits. a->routing is written. */
bool moe_row_chooses(const struct moe_args *a, char why[OP_REASON_MAX]);
void moe_row_choose(struct gpu_stream *stream, const struct moe_args *a, const float *halves,
                    void *act);

#endif
