/* A tensor map as kernels take it, within their argument struct (the driver's CUtensorMap):
 * gpu_put_map (src/gpu/kernel.h) fills it. */
#ifndef KERNELS_TENSOR_MAP_ARGS_H
#define KERNELS_TENSOR_MAP_ARGS_H

#include "types.h"

#ifdef __cplusplus
struct alignas(64) tensor_map {
    uint64_t opaque[16];
};
#else
struct tensor_map {
    _Alignas(64) uint64_t opaque[16];
};
#endif
SOL_STATIC_ASSERT(sizeof(struct tensor_map) == 128, "the driver's size");

#endif
