/* Attention of many rows on tensor cores: an H100's (kernels/attention/attention_prefill.cu), and
 * those that every card from sm_80 on has (attention_mma.cu). The kernels before and behind them
 * are the same. */
#include <math.h>
#include <stdio.h>

#include "attention/attention_args.h"
#include "attention/attention_prefill_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/attention.h"
#include "ops/cuda/attention_texts.h"
#include "ops/cuda/cache_cuda.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/op.h"

enum { ALIGN = 256 };

/* A kernel's sizes. */
struct kind {
    const char *image, *f16, *bf16;
    int groups, rows, keys; /* of a tile; of a step */
    int blocks_per_sm, blocks_max;
    unsigned threads, shared;
    bool copies_boxes; /* it gets tensor maps */
};
static const struct kind wgmma_kind = {.image = "attention/attention_prefill.cu",
                                       .f16 = "attention_prefill_f16",
                                       .bf16 = "attention_prefill_bf16",
                                       .groups = PREFILL_GROUPS,
                                       .rows = PREFILL_ROWS,
                                       .keys = PREFILL_KEYS,
                                       .blocks_per_sm = 1,
                                       .blocks_max = PREFILL_BLOCKS,
                                       .threads = PREFILL_THREADS,
                                       .shared = PREFILL_SHARED,
                                       .copies_boxes = true};
static const struct kind mma_kind = {.image = "attention/attention_mma.cu",
                                     .f16 = "attention_mma_f16",
                                     .bf16 = "attention_mma_bf16",
                                     .groups = MMA_PREFILL_GROUPS,
                                     .rows = MMA_PREFILL_ROWS,
                                     .keys = MMA_PREFILL_KEYS,
                                     .blocks_per_sm = MMA_PREFILL_BLOCKS_PER_SM,
                                     .blocks_max = MMA_PREFILL_BLOCKS,
                                     .threads = MMA_PREFILL_THREADS,
                                     .shared = MMA_PREFILL_SHARED};

/* Where the parts of the workspace lie; `base` may be NULL. Returns where that of the texts begins.
 */
static size_t lay_out(const struct attention_args *a, const struct kind *kind, char *base,
                      struct attention_prefill_args *k)
{
    const size_t sizes[] = {ALIGN, (size_t)a->m * sizeof(struct prefill_tile),
                            (size_t)(a->m * a->n_heads) * sizeof(int32_t),
                            (size_t)(2 * kind->blocks_max * kind->groups) * PREFILL_PART *
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
    (void)device;
    if (kv->head_dim != PREFILL_DIM || a->n_heads != PREFILL_HEADS * kv->n_kv_heads)
        snprintf(why, OP_REASON_MAX, "made for head_dim %d and %d query heads a key head",
                 PREFILL_DIM, PREFILL_HEADS);
    else if (kv->dtype == DTYPE_F32)
        snprintf(why, OP_REASON_MAX, "a cache in f32; it reads f16 and bf16");
    else if (!few_rows_aligned(a->q.data) || !few_rows_aligned(a->out.data) ||
             !few_rows_aligned(kv->k) || !few_rows_aligned(kv->v))
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
    bool single = attention_texts_fit(a) && attention_rows_apart(a);
    if (single)
        snprintf(why, OP_REASON_MAX, "few rows of each sequence; it takes many of one together");
    return !single;
}

static size_t workspace_of(const struct attention_args *a, const struct kind *kind)
{
    const size_t texts = attention_texts_apart(a) ? attention_texts_bytes(a) : 0;
    return lay_out(a, kind, NULL, NULL) + texts;
}

static size_t workspace(const void *args, int workers)
{
    (void)workers;
    return workspace_of(args, &wgmma_kind);
}

static size_t workspace_mma(const void *args, int workers)
{
    (void)workers;
    return workspace_of(args, &mma_kind);
}

/* A cache as boxes of one block each: keys [64 dimensions][32], values [32][64 dimensions]. */
static void put_maps(struct gpu_stream *stream, const struct kv_layer *kv,
                     struct attention_prefill_args *k)
{
    uint64_t positions = (uint64_t)kv_elements(kv) / PREFILL_DIM;
    gpu_put_map(stream,
                &(struct gpu_tensor){.element = GPU_BF16,
                                     .rank = 2,
                                     .data = kv->k,
                                     .sizes = {KV_BLOCK, positions * PREFILL_DIM / KV_BLOCK},
                                     .strides = {KV_BLOCK * 2},
                                     .box = {KV_BLOCK, PREFILL_DIM},
                                     .swizzled = true},
                &k->k);
    gpu_put_map(stream,
                &(struct gpu_tensor){.element = GPU_BF16,
                                     .rank = 2,
                                     .data = kv->v,
                                     .sizes = {PREFILL_DIM, positions},
                                     .strides = {PREFILL_DIM * 2},
                                     .box = {PREFILL_DIM, KV_BLOCK},
                                     .swizzled = true},
                &k->v);
}

static void run_kind(const struct op_context *context, const struct attention_args *a,
                     const struct kind *kind)
{
    const bool f16 = a->kv.dtype == DTYPE_F16;
    int most = gpu_stream_info(context->stream)->sm_count * kind->blocks_per_sm;
    unsigned blocks = (unsigned)(most < kind->blocks_max ? most : kind->blocks_max);
    struct attention_prefill_args k = {
        .cache = cache_for_kernel(&a->kv),
        .position = a->batch->position,
        .sequence = a->batch->sequence,
        .q = a->q.data,
        .sinks = a->sinks,
        .out = a->out.data,
        .narrow = matrix_is_narrow(&a->out),
        .m = (int32_t)a->m,
        .n_heads = (int32_t)a->n_heads,
        .window = (int32_t)a->window,
        .scale = 1 / sqrtf((float)a->kv.head_dim),
        .blocks = (int32_t)blocks,
        .tile_rows = kind->rows,
        .step_keys = kind->keys,
    };
    const size_t behind = lay_out(a, kind, context->workspace, &k);
    if (attention_texts_apart(a)) {
        k.texts = DECODE_ROWS_ALONE;
        attention_texts_put(context, a, (char *)context->workspace + behind);
    }
    if (kind->copies_boxes) put_maps(context->stream, &a->kv, &k);
    gpu_put(context->stream, "attention/attention_prefill_work.cu", "attention_prefill_tiles",
            &(struct gpu_launch){.block = {PREFILL_LIST_THREADS}, .overlaps = true}, &k);
    gpu_put(context->stream, kind->image, f16 ? kind->f16 : kind->bf16,
            &(struct gpu_launch){.grid = {blocks},
                                 .block = {kind->threads},
                                 .shared_bytes = kind->shared,
                                 .overlaps = true},
            &k);
    gpu_put(
        context->stream, "attention/attention_prefill_work.cu",
        f16 ? "attention_prefill_finish_f16" : "attention_prefill_finish_bf16",
        &(struct gpu_launch){.grid = {blocks}, .block = {PREFILL_FINISH_THREADS}, .overlaps = true},
        &k);
}

static void run(const struct op_context *context, const void *args)
{
    run_kind(context, args, &wgmma_kind);
}

static void run_mma(const struct op_context *context, const void *args)
{
    run_kind(context, args, &mma_kind);
}

const struct op_variant attention_prefill_cuda = {
    .name = "attention_prefill_cuda",
    .summary = "24 rows and 8 heads together on wgmma, queries and weights in the cache's dtype",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .suits = suits,
    .narrow = 1 << 1, /* out */
    .workspace = workspace,
    .run = run,
    .images = {"attention/attention_prefill_work.cu", "attention/attention_prefill.cu",
               "attention/attention_decode.cu"},
};

const struct op_variant attention_mma_cuda = {
    .name = "attention_mma_cuda",
    .summary = "16 rows and 8 heads together on mma.sync, rounded alike",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .suits = suits,
    .narrow = 1 << 1, /* out */
    .workspace = workspace_mma,
    .run = run_mma,
    .images = {"attention/attention_prefill_work.cu", "attention/attention_mma.cu",
               "attention/attention_decode.cu"},
};
