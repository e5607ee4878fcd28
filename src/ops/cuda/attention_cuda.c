#include <math.h>
#include <stdio.h>

#include "attention/attention_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/cache_cuda.h"
#include "ops/op.h"

enum { WARP = 32, WARPS_MAX = 16, DIM_MAX = 128 }; /* of the kernel */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attention_args *a = args;
    (void)device;
    if (a->kv.head_dim > DIM_MAX)
        snprintf(why, OP_REASON_MAX, "head_dim %lld is over %d", (long long)a->kv.head_dim,
                 DIM_MAX);
    else if (a->n_heads / a->kv.n_kv_heads > WARPS_MAX)
        snprintf(why, OP_REASON_MAX, "more than %d query heads a key head", WARPS_MAX);
    else
        return true;
    return false;
}

static void run(const struct op_context *context, const void *args)
{
    const struct attention_args *a = args;
    const struct attention_kernel_args k = {.cache = cache_for_kernel(&a->kv),
                                            .n_heads = a->n_heads,
                                            .window = a->window,
                                            .position = a->batch->position,
                                            .sequence = a->batch->sequence,
                                            .q = a->q,
                                            .sinks = a->sinks,
                                            .out = a->out,
                                            .scale = 1 / sqrtf((float)a->kv.head_dim)};
    unsigned warps = (unsigned)(a->n_heads / a->kv.n_kv_heads);
    gpu_put(context->gpu, "attention/attention.cu", "attention_any",
            &(struct gpu_launch){.grid = {(unsigned)a->m, (unsigned)a->kv.n_kv_heads},
                                 .block = {warps * WARP},
                                 .shared_bytes = warps * (unsigned)a->kv.head_dim * 4,
                                 .overlaps = true},
            &k);
}

const struct op_variant attention_any_cuda = {
    .name = "attention_any_cuda",
    .summary = "a warp a query head, a lane a position, one pass",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
};
