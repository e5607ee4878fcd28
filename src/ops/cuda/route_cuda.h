/* The second half of route, for what chooses experts by itself. */
#ifndef OPS_CUDA_ROUTE_CUDA_H
#define OPS_CUDA_ROUTE_CUDA_H

#include "ops/args.h"
#include "ops/op.h"

/* Behind the kernel that has written r->expert: the tables of its slots in the order of experts, by
 * route/route.cu. */
void route_sort(struct gpu_stream *stream, int64_t m, int64_t n_experts, int64_t top_k,
                const struct routing *r);

#endif
