#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "rope/rope_args.h"

static void run(const struct op_context *context, const void *args)
{
    const struct rope_args *a = args;
    const struct rope_kernel_args k = {.n_heads = a->n_heads,
                                       .head_dim = a->head_dim,
                                       .position = a->batch->position,
                                       .inv_freq = a->inv_freq,
                                       .x = a->x.data,
                                       .scale = a->scale};
    gpu_put(
        context->stream, "rope/rope.cu", typed_narrow(&a->x) ? "rope_bf16" : "rope_f32",
        &(struct gpu_launch){.grid = {(unsigned)a->m}, .block = {ROPE_THREADS}, .overlaps = true},
        &k);
}

static const unsigned typed[] = {1, 0};

const struct op_variant rope_cuda = {
    .name = "rope_cuda",
    .summary = "a block a row, angles in double",
    .target = TARGET_CUDA,
    .typed = typed,
    .run = run,
    .images = {"rope/rope.cu"},
};
