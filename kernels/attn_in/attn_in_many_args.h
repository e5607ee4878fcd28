/* Arguments of attn_in_norm, shared by host and device: what many rows need before their products.
 */
#ifndef KERNELS_ATTN_IN_ATTN_IN_MANY_ARGS_H
#define KERNELS_ATTN_IN_ATTN_IN_MANY_ARGS_H

#include "cache_args.h"

enum { ATTN_IN_NORM_THREADS = 256, ATTN_IN_NORM_HELD_MAX = 4096 }; /* of a block; values of a row */

struct attn_in_norm_args {
    struct cache_args cache;
    int64_t hidden, padded; /* padded: a multiple of 8, the rest is 0 */
    const float *x;         /* [m][hidden], rows of 16-byte pieces */
    const float *norm, *inv_freq;
    const int32_t *position, *sequence;
    uint16_t *out;       /* [m][padded] bf16 */
    float *turns;        /* [m][head_dim / 2] pairs: cosine and sine */
    int32_t *cache_rows; /* [m] of the first head: cache_row */
    float eps, rope_scale;
};
SOL_STATIC_ASSERT(sizeof(struct attn_in_norm_args) == 152, "host and device agree");

#endif
