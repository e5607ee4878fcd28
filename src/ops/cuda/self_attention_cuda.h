/* What variants of self_attention share that are not one architecture's: the arguments of their
 * kernels, and the gradients of sinks. */
#ifndef OPS_CUDA_SELF_ATTENTION_CUDA_H
#define OPS_CUDA_SELF_ATTENTION_CUDA_H

#include "ops/op.h"
#include "ops/train_args.h"
#include "self_attention/self_attention_any_args.h"

struct self_attention_any_args self_attention_for_kernel(const struct self_attention_args *args);
/* delta: self_attention_delta_bytes of memory, which a kernel fills before others read it. */
struct self_attention_any_args
self_attention_backward_for_kernel(const struct self_attention_backward_args *args, float *delta);
size_t self_attention_delta_bytes(const void *args, int workers); /* of the backward op */

/* A kernel of self_attention/self_attention_any.cu, where there are sinks; behind delta's. */
void self_attention_put_sinks(struct gpu_stream *stream, const struct self_attention_any_args *k);

#endif
