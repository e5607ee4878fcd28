/* Attention of whole sequences and its gradients on Hopper's tensor cores
 * (kernels/self_attention/self_attention_wgmma.cu, self_attention_backward_wgmma.cu). */
#include <math.h>
#include <stdio.h>

#include "counters_args.h"
#include "gpu/kernel.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/op.h"
#include "ops/train_args.h"
#include "self_attention/self_attention_backward_args.h"
#include "self_attention/self_attention_wgmma_args.h"

static const char FORWARD[] = "self_attention/self_attention_wgmma.cu";
static const char ROWS[] = "self_attention/self_attention_rows.cu";
static const char BACKWARD[] = "self_attention/self_attention_backward_wgmma.cu";

enum { ALIGN = 256, LEAST_ROWS = 64 /* of a tile of queries */ };

static const float LOG2_E = 1.44269504f;

/* ---- what is served ---- */

/* Its shape, and what its matrices are. */
static bool serves(const struct self_attention_args *a, const struct matrix *const matrices[],
                   char why[OP_REASON_MAX])
{
    const char *lack = NULL;
    int64_t tokens = a->sequences * a->length;
    if (a->head_dim != 64 && a->head_dim != 128)
        lack = "head_dim other than 64 and 128";
    else if (tokens * a->n_heads > INT32_MAX / 2 || a->n_heads * 2 > INT32_MAX)
        lack = "so many rows";
    for (int i = 0; matrices[i] && !lack; i++) {
        if (matrices[i]->dtype != DTYPE_BF16)
            lack = "matrices in float32";
        else if (!matrix_has_lines(matrices[i]))
            lack = "a matrix at an address that is no multiple of 16";
    }
    if (lack) snprintf(why, OP_REASON_MAX, "it does not know %s", lack);
    return !lack;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct self_attention_args *a = args;
    (void)device;
    return serves(a, (const struct matrix *const[]){&a->q, &a->k, &a->v, &a->out, NULL}, why);
}

/* The forward op's part. */
static struct self_attention_args forward_of(const struct self_attention_backward_args *a)
{
    return (struct self_attention_args){.sequences = a->sequences,
                                        .length = a->length,
                                        .n_heads = a->n_heads,
                                        .n_kv_heads = a->n_kv_heads,
                                        .head_dim = a->head_dim,
                                        .window = a->window};
}

static bool can_run_backward(const void *args, const struct op_device *device,
                             char why[OP_REASON_MAX])
{
    const struct self_attention_backward_args *a = args;
    struct self_attention_args forward = forward_of(a);
    (void)device;
    return serves(&forward,
                  (const struct matrix *const[]){&a->q, &a->k, &a->v, &a->out, &a->dout, &a->dq,
                                                 &a->dk, &a->dv, NULL},
                  why);
}

/* ---- what both need ---- */

static int64_t over(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int32_t window_of(const struct self_attention_args *a)
{
    return (int32_t)(a->window && a->window < a->length ? a->window : a->length);
}

/* A matrix as boxes of `rows` rows of a head, in halves of 64 dimensions. */
static void put_map(struct gpu_stream *stream, const struct self_attention_args *a,
                    const struct matrix *m, int rows, struct tensor_map *map)
{
    uint64_t bytes = (uint64_t)m->cols * 2;
    gpu_put_map(stream,
                &(struct gpu_tensor){.element = GPU_BF16,
                                     .rank = 4,
                                     .data = m->data,
                                     .sizes = {64, (uint64_t)a->length, (uint64_t)m->cols / 64,
                                               (uint64_t)a->sequences},
                                     .strides = {bytes, 128, (uint64_t)a->length * bytes},
                                     .box = {64, (uint32_t)rows, (uint32_t)a->head_dim / 64, 1},
                                     .swizzled = true},
                map);
}

/* ---- forward ---- */

/* Heads whose keys and values stay in the L2 cache, and whose tiles are enough for all blocks. */
static int64_t section_of(const struct self_attention_args *a, int64_t tiles, int64_t blocks)
{
    const int64_t bytes = 16 << 20;
    int64_t each = over(a->length * a->head_dim * 4 * a->n_kv_heads, a->n_heads);
    int64_t fits = bytes / each, enough = over(2 * blocks, tiles), all = a->sequences * a->n_heads;
    int64_t section = fits > enough ? fits : enough;
    return section < all ? section : all;
}

static void run(const struct op_context *context, const void *args)
{
    const struct self_attention_args *a = args;
    if (a->sequences * a->length * a->n_heads == 0) return;
    bool wide = a->head_dim == 128;
    int64_t tiles = over(a->length, SELF_ROWS), pairs = a->sequences * a->n_heads;
    int64_t blocks = gpu_stream_info(context->stream)->sm_count;
    if (blocks > tiles * pairs) blocks = tiles * pairs;
    struct self_attention_wgmma_args k = {
        .sinks = a->sinks,
        .out = a->out.data,
        .lse = a->lse,
        .counter = gpu_stream_counters(context->stream) + COUNTER_TILES,
        .length = (int32_t)a->length,
        .n_heads = (int32_t)a->n_heads,
        .group = (int32_t)(a->n_heads / a->n_kv_heads),
        .window = window_of(a),
        .tiles = (int32_t)tiles,
        .pairs = (int32_t)pairs,
        .section = (int32_t)section_of(a, tiles, blocks),
        .scale = LOG2_E / sqrtf((float)a->head_dim),
    };
    put_map(context->stream, a, &a->q, SELF_ROWS, &k.q);
    put_map(context->stream, a, &a->k, SELF_KEYS, &k.k);
    put_map(context->stream, a, &a->v, SELF_KEYS, &k.v);
    gpu_put(context->stream, FORWARD, wide ? "self_attention_wgmma_128" : "self_attention_wgmma_64",
            &(struct gpu_launch){.grid = {(unsigned)blocks},
                                 .block = {SELF_THREADS},
                                 .shared_bytes = wide ? SELF_SHARED(128) : SELF_SHARED(64),
                                 .overlaps = true},
            &k);
}

/* ---- backward ---- */

static int64_t q_tiles_of(const struct self_attention_backward_args *a)
{
    return over(a->length, BACK_TILE / a->head_dim);
}

/* Where the parts of the workspace lie; `base` may be NULL. Returns the size. */
static size_t lay_out(const struct self_attention_backward_args *a, char *base,
                      struct self_attention_backward_wgmma_args *k)
{
    int64_t tiles = a->sequences * a->n_heads * q_tiles_of(a);
    const int64_t sizes[] = {tiles * 2 * (BACK_TILE / a->head_dim) * (int64_t)sizeof(float),
                             tiles * BACK_TILE * (int64_t)sizeof(float),
                             tiles * 2 * (int64_t)sizeof(uint32_t)};
    size_t at[4] = {0};
    for (int i = 0; i < 3; i++) at[i + 1] = at[i] + (size_t)over(sizes[i], ALIGN) * ALIGN;
    if (k) {
        k->stats = (float *)(base + at[0]);
        k->sums = (float *)(base + at[1]);
        k->turns = (uint32_t *)(base + at[2]);
    }
    return at[3];
}

static size_t workspace_backward(const void *args, int workers)
{
    (void)workers;
    return lay_out(args, NULL, NULL);
}

static void put_maps(struct gpu_stream *stream, const struct self_attention_backward_args *a,
                     struct self_attention_backward_wgmma_args *k)
{
    struct self_attention_args forward = forward_of(a);
    int rows = (int)(BACK_TILE / a->head_dim);
    put_map(stream, &forward, &a->q, rows, &k->q);
    put_map(stream, &forward, &a->dout, rows, &k->dout);
    put_map(stream, &forward, &a->k, BACK_KEYS, &k->k);
    put_map(stream, &forward, &a->v, BACK_KEYS, &k->v);
}

enum { ATOMIC = 1 };
static const char *const order_names[] = {"ordered", [ATOMIC] = "atomic"};
static const struct op_choices orders = {.names = order_names, .count = 2};

/* So many key heads before a block's its sums are ready, so that it need not wait. A card has
 * blocks of blocks / k_tiles heads at a time; but the longest block, of the first keys, takes twice
 * the mean, and in its time the card goes twice as far. */
static int64_t lag_of(int64_t k_tiles, int64_t blocks)
{
    return 2 * over(blocks, k_tiles) + 4;
}

static void put_backward(struct gpu_stream *stream, const struct self_attention_backward_args *a,
                         const struct self_attention_backward_wgmma_args *k)
{
    bool wide = a->head_dim == 128;
    unsigned rows = (unsigned)(a->sequences * a->n_heads) * (unsigned)k->q_tiles;
    unsigned keys = (unsigned)(a->sequences * a->n_kv_heads) * (unsigned)k->k_tiles;
    struct gpu_launch of_rows = {.grid = {rows}, .block = {BACK_ROWS_THREADS}, .overlaps = true};
    gpu_put(stream, ROWS, wide ? "self_attention_rows_128" : "self_attention_rows_64", &of_rows, k);
    gpu_put(stream, BACKWARD, wide ? "self_attention_backward_128" : "self_attention_backward_64",
            &(struct gpu_launch){.grid = {keys},
                                 .block = {BACK_THREADS},
                                 .shared_bytes = wide ? BACK_SHARED(128) : BACK_SHARED(64),
                                 .overlaps = true},
            k);
    of_rows.grid[0] -= (unsigned)k->finish_first;
    gpu_put(stream, ROWS, wide ? "self_attention_finish_128" : "self_attention_finish_64", &of_rows,
            k);
    if (a->sinks && a->dsinks)
        gpu_put(stream, ROWS, wide ? "self_attention_sinks_128" : "self_attention_sinks_64",
                &(struct gpu_launch){
                    .grid = {(unsigned)a->n_heads}, .block = {BACK_SINK_THREADS}, .overlaps = true},
                k);
}

static void run_backward(const struct op_context *context, const void *args)
{
    const struct self_attention_backward_args *a = args;
    struct self_attention_args forward = forward_of(a);
    if (a->sequences * a->length * a->n_heads == 0) return;
    struct self_attention_backward_wgmma_args k = {
        .out = a->out.data,
        .dout_rows = a->dout.data,
        .lse = a->lse,
        .sinks = a->sinks,
        .dq = a->dq.data,
        .dk = a->dk.data,
        .dv = a->dv.data,
        .dsinks = a->dsinks,
        .length = (int32_t)a->length,
        .n_heads = (int32_t)a->n_heads,
        .group = (int32_t)(a->n_heads / a->n_kv_heads),
        .window = window_of(&forward),
        .sequences = (int32_t)a->sequences,
        .q_tiles = (int32_t)q_tiles_of(a),
        .k_tiles = (int32_t)over(a->length, BACK_KEYS),
        .ordered = context->choice != ATOMIC,
        .scale = 1 / sqrtf((float)a->head_dim),
    };
    if (k.ordered) {
        int64_t pairs = a->sequences * a->n_kv_heads;
        k.lag = (int32_t)lag_of(k.k_tiles, gpu_stream_info(context->stream)->sm_count);
        if (k.lag < pairs) k.finish_first = (int32_t)((pairs - k.lag) * k.group * k.q_tiles);
    }
    lay_out(a, context->workspace, &k);
    put_maps(context->stream, a, &k);
    put_backward(context->stream, a, &k);
}

/* ---- the variants ---- */

static const unsigned narrow_forward[] = {0xf, 0}, narrow_backward[] = {0xff, 0};

const struct op_variant self_attention_wgmma_cuda = {
    .name = "self_attention_wgmma_cuda",
    .summary = "128 rows of a head together on wgmma, weights in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .typed = narrow_forward,
    .run = run,
    .images = {FORWARD},
};

const struct op_variant self_attention_backward_wgmma_cuda = {
    .name = "self_attention_backward_wgmma_cuda",
    .summary = "128 keys of a head together on wgmma, weights and their gradients in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run_backward,
    .choices = &orders,
    .varies = 1 << ATOMIC,
    .typed = narrow_backward,
    .workspace = workspace_backward,
    .run = run_backward,
    .images = {ROWS, BACKWARD},
};
