/* Arguments of the kernels of kv_write, shared by host and device. */
#ifndef KERNELS_KV_WRITE_KV_WRITE_ARGS_H
#define KERNELS_KV_WRITE_KV_WRITE_ARGS_H

#include "cache_args.h"

enum { KV_WRITE_THREADS = 256 }; /* of a block */

struct kv_write_kernel_args {
    struct cache_args cache;
    const int32_t *position, *sequence; /* [rows] */
    const float *k, *v;                 /* [rows][n_kv_heads][head_dim] */
};
SOL_STATIC_ASSERT(sizeof(struct kv_write_kernel_args) == 96, "host and device agree");

#endif
