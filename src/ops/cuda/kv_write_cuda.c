#include "gpu/kernel.h"
#include "kv_write/kv_write_args.h"
#include "ops/args.h"
#include "ops/cuda/cache_cuda.h"
#include "ops/op.h"

static void run(const struct op_context *context, const void *args)
{
    const struct kv_write_args *a = args;
    const struct kv_write_kernel_args k = {.cache = cache_for_kernel(&a->kv),
                                           .position = a->batch->position,
                                           .sequence = a->batch->sequence,
                                           .k = a->k.data,
                                           .v = a->v.data};
    gpu_put(context->stream, "kv_write/kv_write.cu", "kv_write_any",
            &(struct gpu_launch){
                .grid = {(unsigned)a->m}, .block = {KV_WRITE_THREADS}, .overlaps = true},
            &k);
}

const struct op_variant kv_write_any_cuda = {
    .name = "kv_write_any_cuda",
    .summary = "a block a row",
    .target = TARGET_CUDA,
    .run = run,
    .images = {"kv_write/kv_write.cu"},
};
