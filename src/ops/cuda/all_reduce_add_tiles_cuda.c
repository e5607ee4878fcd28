/* all_reduce_add of many rows, whose parts pass in bf16. */
#include <stdio.h>

#include "comm/communicator.h"
#include "gpu/collective.h"
#include "gpu/peers.h"
#include "ops/args.h"
#include "ops/op.h"

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct all_reduce_add_args *a = args;
    const bool several = a->ranks > 1;
    if (several && gpu_tiles_serve(a->part.data, a->x.data, a->m * a->n))
        return gpu_ranks_reach(device->gpu, (int)a->ranks, why, OP_REASON_MAX);
    snprintf(why, OP_REASON_MAX,
             several ? "its numbers are no whole pieces of 16 bytes" : "one rank");
    return false;
}

static void run(const struct op_context *context, const void *args)
{
    const struct all_reduce_add_args *a = args;
    gpu_put_tiles(context->stream, gpu_ranks_peers(communicator_gpu_ranks(context->communicator)),
                  a->part.data, a->x.data, a->m * a->n);
}

const struct op_variant all_reduce_add_tiles_cuda = {
    .name = "all_reduce_add_tiles_cuda",
    .summary = "parts pass in bf16, a tile at a time, right into the other GPUs' memory",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
    .images = {GPU_TILES_IMAGE},
};
