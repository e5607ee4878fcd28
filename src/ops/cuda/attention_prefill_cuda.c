/* Attention of many rows on an H100's tensor cores: kernels/attention/attention_prefill.cu. */
#include <math.h>
#include <stdio.h>

#include "attention/attention_args.h"
#include "attention/attention_prefill_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/cache_cuda.h"
#include "ops/op.h"

enum { ALIGN = 256 };

static bool aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

/* Where the parts of the workspace lie; `base` may be NULL. Returns the size. */
static size_t lay_out(const struct attention_args *a, char *base, struct attention_prefill_args *k)
{
    const size_t sizes[] = {ALIGN, (size_t)a->m * sizeof(struct prefill_tile),
                            (size_t)(a->m * a->n_heads) * sizeof(int32_t),
                            (size_t)2 * PREFILL_BLOCKS * PREFILL_GROUPS * PREFILL_PART *
                                sizeof(float)};
    size_t at[5] = {0};
    for (int i = 0; i < 4; i++) at[i + 1] = at[i] + (sizes[i] + ALIGN - 1) / ALIGN * ALIGN;
    if (k) {
        k->totals = (int32_t *)(base + at[0]);
        k->tiles = (struct prefill_tile *)(base + at[1]);
        k->again = (int32_t *)(base + at[2]);
        k->partial = (float *)(base + at[3]);
    }
    return at[4];
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attention_args *a = args;
    const struct kv_layer *kv = &a->kv;
    const struct gpu_info *gpu = gpu_info(device->gpu);
    if (gpu->major != 9 || gpu->minor != 0)
        snprintf(why, OP_REASON_MAX, "made for compute capability 9.0 alone");
    else if (kv->head_dim != PREFILL_DIM || a->n_heads != PREFILL_HEADS * kv->n_kv_heads)
        snprintf(why, OP_REASON_MAX, "made for head_dim %d and %d query heads a key head",
                 PREFILL_DIM, PREFILL_HEADS);
    else if (kv->dtype == DTYPE_F32)
        snprintf(why, OP_REASON_MAX, "a cache in f32; it reads f16 and bf16");
    else if (!aligned(a->q) || !aligned(a->out) || !aligned(kv->k) || !aligned(kv->v))
        snprintf(why, OP_REASON_MAX, "an operand at an address that is no multiple of 16");
    else if (kv_elements(kv) / PREFILL_DIM > INT32_MAX / 2 || a->m * a->n_heads > INT32_MAX)
        snprintf(why, OP_REASON_MAX, "a cache or batch that needs larger indices");
    else
        return true;
    return false;
}

static bool suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attention_args *a = args;
    (void)device;
    bool single = a->m <= DECODE_ROWS && a->m <= 2 * a->kv.n_sequences;
    if (single)
        snprintf(why, OP_REASON_MAX,
                 "hardly more rows than sequences; it takes 24 of one together");
    return !single;
}

static size_t workspace(const void *args, int workers)
{
    (void)workers;
    return lay_out(args, NULL, NULL);
}

/* A cache as boxes of one block each: keys [64 dimensions][32], values [32][64 dimensions]. */
static void put_maps(struct gpu *gpu, const struct kv_layer *kv, struct attention_prefill_args *k)
{
    uint64_t positions = (uint64_t)kv_elements(kv) / PREFILL_DIM;
    gpu_put_map(gpu,
                &(struct gpu_tensor){.element = GPU_BF16,
                                     .rank = 2,
                                     .data = kv->k,
                                     .sizes = {KV_BLOCK, positions * PREFILL_DIM / KV_BLOCK},
                                     .strides = {KV_BLOCK * 2},
                                     .box = {KV_BLOCK, PREFILL_DIM},
                                     .swizzled = true},
                &k->k);
    gpu_put_map(gpu,
                &(struct gpu_tensor){.element = GPU_BF16,
                                     .rank = 2,
                                     .data = kv->v,
                                     .sizes = {PREFILL_DIM, positions},
                                     .strides = {PREFILL_DIM * 2},
                                     .box = {PREFILL_DIM, KV_BLOCK},
                                     .swizzled = true},
                &k->v);
}

static void run(const struct op_context *context, const void *args)
{
    const struct attention_args *a = args;
    const bool f16 = a->kv.dtype == DTYPE_F16;
    int sms = gpu_info(context->gpu)->sm_count;
    unsigned blocks = (unsigned)(sms < PREFILL_BLOCKS ? sms : PREFILL_BLOCKS);
    struct attention_prefill_args k = {
        .cache = cache_for_kernel(&a->kv),
        .position = a->batch->position,
        .sequence = a->batch->sequence,
        .q = a->q,
        .sinks = a->sinks,
        .out = a->out,
        .m = (int32_t)a->m,
        .n_heads = (int32_t)a->n_heads,
        .window = (int32_t)a->window,
        .scale = 1 / sqrtf((float)a->kv.head_dim),
        .blocks = (int32_t)blocks,
    };
    lay_out(a, context->workspace, &k);
    put_maps(context->gpu, &a->kv, &k);
    gpu_put(context->gpu, "attention/attention_prefill_work.cu", "attention_prefill_tiles",
            &(struct gpu_launch){.block = {PREFILL_LIST_THREADS}, .overlaps = true}, &k);
    gpu_put(context->gpu, "attention/attention_prefill.cu",
            f16 ? "attention_prefill_f16" : "attention_prefill_bf16",
            &(struct gpu_launch){.grid = {blocks},
                                 .block = {PREFILL_THREADS},
                                 .shared_bytes = PREFILL_SHARED,
                                 .overlaps = true},
            &k);
    gpu_put(
        context->gpu, "attention/attention_prefill_work.cu",
        f16 ? "attention_prefill_finish_f16" : "attention_prefill_finish_bf16",
        &(struct gpu_launch){.grid = {blocks}, .block = {PREFILL_FINISH_THREADS}, .overlaps = true},
        &k);
}

const struct op_variant attention_prefill_cuda = {
    .name = "attention_prefill_cuda",
    .summary = "24 rows and 8 heads together on wgmma, queries and weights in the cache's dtype",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .can_run = can_run,
    .suits = suits,
    .workspace = workspace,
    .run = run,
};
