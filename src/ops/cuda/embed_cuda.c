#include "embed/embed_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"

static void run(const struct op_context *context, const void *args)
{
    const struct embed_args *a = args;
    const struct embed_kernel_args k = {.n = a->table.cols,
                                        .token = a->batch->token,
                                        .table = a->table.data,
                                        .x = a->x,
                                        .type = (int32_t)a->table.dtype};
    gpu_put(context->gpu, "embed/embed.cu", "embed_any",
            &(struct gpu_launch){.grid = {(unsigned)a->m}, .block = {256}, .overlaps = true}, &k);
}

const struct op_variant embed_any_cuda = {
    .name = "embed_any_cuda",
    .summary = "a block a row, any table",
    .target = TARGET_CUDA,
    .run = run,
};
