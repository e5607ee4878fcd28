#include <stdio.h>

#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "rmsnorm/rmsnorm_args.h"

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct rmsnorm_args *a = args;
    (void)device;
    if (!a->gain) snprintf(why, OP_REASON_MAX, "no gain");
    return a->gain != NULL;
}

static void run(const struct op_context *context, const void *args)
{
    const struct rmsnorm_args *a = args;
    const struct rmsnorm_kernel_args k = {
        .n = a->n, .x = a->x.data, .rows = a->rows, .gain = a->gain, .y = a->y.data, .eps = a->eps};
    gpu_put(context->stream, "rmsnorm/rmsnorm.cu", "rmsnorm_f32",
            &(struct gpu_launch){
                .grid = {(unsigned)a->m}, .block = {RMSNORM_THREADS}, .overlaps = true},
            &k);
}

const struct op_variant rmsnorm_f32_cuda = {
    .name = "rmsnorm_f32_cuda",
    .summary = "a block a row",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
    .images = {"rmsnorm/rmsnorm.cu"},
};
