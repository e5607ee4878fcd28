/* Arguments of the kernels of attention, shared by host and device. */
#ifndef KERNELS_ATTENTION_ATTENTION_ARGS_H
#define KERNELS_ATTENTION_ATTENTION_ARGS_H

#include "cache_args.h"

struct attention_kernel_args {
    struct cache_args cache;
    int64_t n_heads, window;
    const int32_t *position, *sequence; /* [rows] */
    const float *q;                     /* [rows][n_heads][head_dim] */
    const float *sinks;                 /* [n_heads] */
    float *out;                         /* as q */
    float *partial; /* attention_decode: [rows][n_heads][splits][head_dim + 2] when splits > 1 */
    float scale;
    int32_t splits; /* blocks that share the positions of a row */
};
SOL_STATIC_ASSERT(sizeof(struct attention_kernel_args) == 128, "host and device agree");

#endif
