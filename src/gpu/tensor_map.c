/* Tensor maps: descriptions of tensors for the copy engine, made on the host. */
#include "tensor_map_args.h"

#include <stdio.h>
#include <string.h>

#include "gpu/gpu_private.h"

/* CUtensorMapSwizzle, CUtensorMapL2promotion */
enum { SWIZZLE_64 = 2, SWIZZLE_128 = 3, L2_PROMOTION_256 = 3 };

void gpu_put_map(struct gpu *gpu, const struct gpu_tensor *t, struct tensor_map *map)
{
    static const uint32_t steps[5] = {1, 1, 1, 1, 1};
    struct cuda_tensor_map encoded;
    memset(map, 0, sizeof *map);
    if (gpu->put_status != SOL_OK) return;
    uint32_t row_bytes = t->box[0] * (t->element == GPU_U32 ? 4 : 2);
    int swizzle = !t->swizzled ? 0 : row_bytes == 64 ? SWIZZLE_64 : SWIZZLE_128;
    cuda_result result = gpu->cuda->tensor_map_tiled(
        &encoded, (int)t->element, t->rank, (void *)(uintptr_t)t->data, t->sizes, t->strides,
        t->box, steps, 0, swizzle, L2_PROMOTION_256, 0);
    gpu->put_status = cuda_status(gpu->cuda, result, "a tensor map");
    if (gpu->put_status == SOL_OK)
        memcpy(map, &encoded, sizeof *map);
    else
        snprintf(gpu->put_message, sizeof gpu->put_message, "%s", sol_last_error());
}
