/* attention of a step in which texts go on by a token each while prompts come: the kernels of few
 * rows take those rows (attention_cuda.c), the ones of many rows all others
 * (attention_prefill_cuda.c). */
#ifndef OPS_CUDA_ATTENTION_TEXTS_H
#define OPS_CUDA_ATTENTION_TEXTS_H

#include "ops/args.h"
#include "ops/op.h"

/* Whether they may be the whole step. */
bool attention_texts_fit(const struct attention_args *args);
/* Whether there may be enough of them; then at most DECODE_ROWS_ALONE are taken. */
bool attention_texts_apart(const struct attention_args *args);
size_t attention_texts_bytes(const struct attention_args *args); /* of the workspace */
void attention_texts_put(const struct op_context *context, const struct attention_args *args,
                         void *workspace);

#endif
