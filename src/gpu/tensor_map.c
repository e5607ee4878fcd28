/* Tensor maps: descriptions of tensors for the copy engine, made on the host. */
#include "tensor_map_args.h"

#include <string.h>

#include "gpu/gpu_private.h"

/* CUtensorMapSwizzle, CUtensorMapL2promotion */
enum { SWIZZLE_64 = 2, SWIZZLE_128 = 3, L2_PROMOTION_256 = 3 };

static enum sol_status encode(const struct gpu *gpu, const struct gpu_tensor *t,
                              struct tensor_map *map)
{
    static const uint32_t steps[5] = {1, 1, 1, 1, 1};
    struct cuda_tensor_map encoded;
    uint32_t row_bytes = t->box[0] * (t->element == GPU_U32 ? 4 : 2);
    int swizzle = !t->swizzled ? 0 : row_bytes == 64 ? SWIZZLE_64 : SWIZZLE_128;
    GPU_TRY(gpu,
            tensor_map_tiled(&encoded, (int)t->element, t->rank, (void *)(uintptr_t)t->data,
                             t->sizes, t->strides, t->box, steps, 0, swizzle, L2_PROMOTION_256, 0),
            "a tensor map");
    memcpy(map, &encoded, sizeof *map);
    return SOL_OK;
}

void gpu_put_map(struct gpu_stream *stream, const struct gpu_tensor *tensor, struct tensor_map *map)
{
    memset(map, 0, sizeof *map);
    if (stream->put_status == SOL_OK && !stream->rehearsing)
        gpu_keep(stream, encode(stream->gpu, tensor, map));
}
