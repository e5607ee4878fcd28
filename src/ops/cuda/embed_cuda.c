#include "embed/embed_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/pack_cuda.h"

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return few_rows_any(&((const struct embed_args *)args)->table, why);
}

static void run(const struct op_context *context, const void *args)
{
    const struct embed_args *a = args;
    const struct embed_kernel_args k = {.n = a->table.cols,
                                        .token = a->batch->token,
                                        .table = a->table.data,
                                        .scales = a->table.scales,
                                        .x = a->x.data,
                                        .type = tensor_kernel_type(&a->table)};
    gpu_put(context->stream, "embed/embed.cu", "embed_any",
            &(struct gpu_launch){
                .grid = {(unsigned)a->m,
                         (unsigned)((a->table.cols + EMBED_THREADS - 1) / EMBED_THREADS)},
                .block = {EMBED_THREADS},
                .overlaps = true},
            &k);
}

const struct op_variant embed_any_cuda = {
    .name = "embed_any_cuda",
    .summary = "a thread an element, any table, packed or not",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
    .images = {"embed/embed.cu"},
};
