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

static struct attention_kernel_args for_kernel(const struct attention_args *a)
{
    return (struct attention_kernel_args){.cache = cache_for_kernel(&a->kv),
                                          .n_heads = a->n_heads,
                                          .window = a->window,
                                          .position = a->batch->position,
                                          .sequence = a->batch->sequence,
                                          .q = a->q,
                                          .sinks = a->sinks,
                                          .out = a->out,
                                          .scale = 1 / sqrtf((float)a->kv.head_dim)};
}

static void run(const struct op_context *context, const void *args)
{
    const struct attention_args *a = args;
    const struct attention_kernel_args k = for_kernel(a);
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

/* ---- few rows: attention_decode.cu ---- */

enum {
    DIM = 64,
    HEADS = 8,
    DECODE_ROWS = 128,
    DECODE_THREADS = 256,
    DECODE_WARPS = DECODE_THREADS / WARP,
    /* struct block_memory: queries, and for each warp a block of keys, of values, and its weights
     */
    DECODE_SHARED =
        DIM * HEADS * 4 + DECODE_WARPS * (2 * DIM * KV_BLOCK * 2 + KV_BLOCK * HEADS * 4),
    BLOCKS_WANTED = 264, /* two for each SM of an H100 */
    SPLITS_MAX = 64,
};

/* Chosen without the positions, which change from step to step: a split with nothing to do is
 * cheap. */
static int32_t splits_of(const struct attention_args *a)
{
    int64_t blocks = a->m * a->kv.n_kv_heads, splits = (BLOCKS_WANTED + blocks - 1) / blocks;
    int64_t longest =
        a->window && a->window + KV_BLOCK < a->kv.capacity ? a->window + KV_BLOCK : a->kv.capacity;
    int64_t useful = (longest / KV_BLOCK + DECODE_WARPS - 1) / DECODE_WARPS;
    splits = splits < useful ? splits : useful;
    return (int32_t)(splits < 1 ? 1 : splits < SPLITS_MAX ? splits : SPLITS_MAX);
}

static bool can_run_decode(const void *args, const struct op_device *device,
                           char why[OP_REASON_MAX])
{
    const struct attention_args *a = args;
    (void)device;
    if (a->kv.head_dim != DIM)
        snprintf(why, OP_REASON_MAX, "head_dim %lld; it is for %d", (long long)a->kv.head_dim, DIM);
    else if (a->n_heads / a->kv.n_kv_heads > HEADS)
        snprintf(why, OP_REASON_MAX, "more than %d query heads a key head", HEADS);
    else if (a->kv.dtype == DTYPE_F32)
        snprintf(why, OP_REASON_MAX, "a cache in f32; it reads f16 and bf16");
    else if (a->m > DECODE_ROWS)
        snprintf(why, OP_REASON_MAX, "%lld rows; it is for up to %d", (long long)a->m, DECODE_ROWS);
    else
        return true;
    return false;
}

static size_t workspace_decode(const void *args, int workers)
{
    const struct attention_args *a = args;
    (void)workers;
    return (size_t)(a->m * a->n_heads * splits_of(a)) * (DIM + 2) * sizeof(float);
}

static void run_decode(const struct op_context *context, const void *args)
{
    const struct attention_args *a = args;
    struct attention_kernel_args k = for_kernel(a);
    k.splits = splits_of(a);
    k.partial = context->workspace;
    gpu_put(context->gpu, "attention/attention_decode.cu",
            a->kv.dtype == DTYPE_F16 ? "attention_decode_f16" : "attention_decode_bf16",
            &(struct gpu_launch){
                .grid = {(unsigned)a->m, (unsigned)a->kv.n_kv_heads, (unsigned)k.splits},
                .block = {DECODE_THREADS},
                .shared_bytes = DECODE_SHARED,
                .overlaps = true},
            &k);
    if (k.splits == 1) return;
    gpu_put(context->gpu, "attention/attention_decode.cu", "attention_merge",
            &(struct gpu_launch){
                .grid = {(unsigned)a->m, (unsigned)a->n_heads}, .block = {WARP}, .overlaps = true},
            &k);
}

const struct op_variant attention_decode_cuda = {
    .name = "attention_decode_cuda",
    .summary = "positions split over blocks and warps, eight query heads together",
    .target = TARGET_CUDA,
    .can_run = can_run_decode,
    .workspace = workspace_decode,
    .run = run_decode,
};
