/* all_reduce by a kernel of its own, between GPUs of one process; all_reduce_add and all_gather of
 * small blocks by the same. */
#include <stdio.h>

#include "comm/communicator.h"
#include "gpu/collective.h"
#include "gpu/peers.h"
#include "ops/args.h"
#include "ops/op.h"

extern const struct op_variant fill_cuda;

static bool reaches(int64_t ranks, size_t bytes, const struct op_device *device,
                    char why[OP_REASON_MAX])
{
    if (bytes > gpu_peers_most()) {
        snprintf(why, OP_REASON_MAX, "more than %zu KiB", gpu_peers_most() >> 10);
        return false;
    }
    return gpu_ranks_reach(device->gpu, (int)ranks, why, OP_REASON_MAX);
}

/* Every rank sends everything to all others: the more there are, the sooner others are faster. */
static bool is_small(int64_t ranks, size_t bytes, char why[OP_REASON_MAX])
{
    const size_t most = gpu_peers_most() / (size_t)(ranks > 2 ? ranks - 1 : 1);
    if (bytes <= most) return true;
    snprintf(why, OP_REASON_MAX, "%d ranks send more than %zu KiB to each other", (int)ranks,
             most >> 10);
    return false;
}

static size_t bytes_of(const struct collective_args *a)
{
    return (size_t)(a->m * a->n) * dtype_info(a->x.dtype)->block_bytes;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct collective_args *a = args;
    return a->ranks <= 1 || reaches(a->ranks, bytes_of(a), device, why);
}

static bool suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct collective_args *a = args;
    (void)device;
    return is_small(a->ranks, bytes_of(a), why);
}

static const struct gpu_peers *peers_of(const struct op_context *context)
{
    return gpu_ranks_peers(communicator_gpu_ranks(context->communicator));
}

static void run(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    if (a->ranks > 1)
        gpu_put_one_shot(context->stream, peers_of(context), a->x.dtype == DTYPE_BF16, a->x.data,
                         NULL, a->m * a->n);
}

static const unsigned typed[] = {1, 0};

const struct op_variant all_reduce_one_shot_cuda = {
    .name = "all_reduce_one_shot_cuda",
    .summary = "each GPU sends its numbers to all others, and adds up in the reference's order",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .suits = suits,
    .typed = typed,
    .run = run,
    .images = {GPU_PEERS_IMAGE},
};

/* Of each block all but its owner have zeros. */
static void run_gather(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    if (a->ranks == 1) return;
    for (int64_t r = 0; r < a->ranks; r++)
        if (r != communicator_rank(context->communicator))
            fill_cuda.run(
                context,
                &(struct fill_args){.m = a->m, .n = a->n, .x = matrix_rows(&a->x, r * a->m, a->m)});
    for (int64_t r = 0; r < a->ranks; r++) {
        const struct collective_args block = {
            .ranks = a->ranks, .m = a->m, .n = a->n, .x = matrix_rows(&a->x, r * a->m, a->m)};
        run(context, &block);
    }
}

const struct op_variant all_gather_one_shot_cuda = {
    .name = "all_gather_one_shot_cuda",
    .summary = "blocks are added up with zeros, each as all_reduce_one_shot_cuda does",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .suits = suits,
    .typed = typed,
    .run = run_gather,
    .images = {GPU_PEERS_IMAGE, "train/map.cu"},
};

/* ---- onto another matrix ---- */

static size_t bytes_to_add(const struct all_reduce_add_args *a)
{
    return (size_t)(a->m * a->n) * sizeof(float);
}

static bool can_run_add(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct all_reduce_add_args *a = args;
    if (a->ranks > 1) return reaches(a->ranks, bytes_to_add(a), device, why);
    snprintf(why, OP_REASON_MAX, "one rank");
    return false;
}

static bool suits_add(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct all_reduce_add_args *a = args;
    (void)device;
    return is_small(a->ranks, bytes_to_add(a), why);
}

static void run_add(const struct op_context *context, const void *args)
{
    const struct all_reduce_add_args *a = args;
    gpu_put_one_shot(context->stream, peers_of(context), false, a->part.data, a->x.data,
                     a->m * a->n);
}

const struct op_variant all_reduce_add_one_shot_cuda = {
    .name = "all_reduce_add_one_shot_cuda",
    .summary = "each GPU sends its part to all others, and adds up in the reference's order",
    .target = TARGET_CUDA,
    .can_run = can_run_add,
    .suits = suits_add,
    .run = run_add,
    .images = {GPU_PEERS_IMAGE},
};
