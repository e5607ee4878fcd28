/* Attention of whole sequences and its gradients on any card, in float32
 * (kernels/self_attention/self_attention_any.cu). */
#include <math.h>
#include <stdio.h>

#include "gpu/kernel.h"
#include "ops/cuda/self_attention_cuda.h"

static const char IMAGE[] = "self_attention/self_attention_any.cu";

static int64_t over(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Blocks of all tiles and heads. */
static int64_t blocks_of(int64_t sequences, int64_t length, int64_t heads, int64_t head_dim)
{
    return sequences * heads * over(length, SELF_ANY_TILE) * over(head_dim, SELF_ANY_DIMS);
}

static bool serves(int64_t blocks, int64_t length, char why[OP_REASON_MAX])
{
    if (blocks <= INT32_MAX && length <= INT32_MAX / 4) return true;
    snprintf(why, OP_REASON_MAX, "%lld tiles, which are too many", (long long)blocks);
    return false;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct self_attention_args *a = args;
    (void)device;
    return serves(blocks_of(a->sequences, a->length, a->n_heads, a->head_dim), a->length, why);
}

static bool can_run_backward(const void *args, const struct op_device *device,
                             char why[OP_REASON_MAX])
{
    const struct self_attention_backward_args *a = args;
    (void)device;
    return serves(blocks_of(a->sequences, a->length, a->n_heads, a->head_dim), a->length, why);
}

static void put(struct gpu_stream *stream, const char *kernel, int64_t blocks,
                const struct self_attention_any_args *k)
{
    gpu_put(stream, IMAGE, kernel,
            &(struct gpu_launch){
                .grid = {(unsigned)blocks}, .block = {SELF_ANY_THREADS}, .overlaps = true},
            k);
}

static uint32_t bf16(const struct matrix *m, uint32_t bit)
{
    return m->dtype == DTYPE_BF16 ? bit : 0;
}

struct self_attention_any_args self_attention_for_kernel(const struct self_attention_args *a)
{
    const int64_t window = a->window && a->window < a->length ? a->window : a->length;
    return (struct self_attention_any_args){
        .q = a->q.data,
        .k = a->k.data,
        .v = a->v.data,
        .out = a->out.data,
        .sinks = a->sinks,
        .lse = a->lse,
        .tokens = a->sequences * a->length,
        .length = (int32_t)a->length,
        .n_heads = (int32_t)a->n_heads,
        .group = (int32_t)(a->n_heads / a->n_kv_heads),
        .head_dim = (int32_t)a->head_dim,
        .window = (int32_t)window,
        .tiles = (int32_t)over(a->length, SELF_ANY_TILE),
        .chunks = (int32_t)over(a->head_dim, SELF_ANY_DIMS),
        .scale = 1 / sqrtf((float)a->head_dim),
        .bf16 = bf16(&a->q, SELF_Q) | bf16(&a->k, SELF_K) | bf16(&a->v, SELF_V) |
                bf16(&a->out, SELF_OUT),
    };
}

static void run(const struct op_context *context, const void *args)
{
    const struct self_attention_args *a = args;
    if (a->sequences * a->length * a->n_heads == 0) return;
    const struct self_attention_any_args k = self_attention_for_kernel(a);
    put(context->stream, "self_attention_any",
        blocks_of(a->sequences, a->length, a->n_heads, a->head_dim), &k);
}

size_t self_attention_delta_bytes(const void *args, int workers)
{
    const struct self_attention_backward_args *a = args;
    (void)workers;
    return (size_t)(a->sequences * a->length * a->n_heads) * sizeof(float);
}

struct self_attention_any_args
self_attention_backward_for_kernel(const struct self_attention_backward_args *a, float *delta)
{
    const int64_t window = a->window && a->window < a->length ? a->window : a->length;
    return (struct self_attention_any_args){
        .q = a->q.data,
        .k = a->k.data,
        .v = a->v.data,
        .dout = a->dout.data,
        .out_rows = a->out.data,
        .dq = a->dq.data,
        .dk = a->dk.data,
        .dv = a->dv.data,
        .sinks = a->sinks,
        .lse_rows = a->lse,
        .delta = delta,
        .dsinks = a->dsinks,
        .tokens = a->sequences * a->length,
        .length = (int32_t)a->length,
        .n_heads = (int32_t)a->n_heads,
        .group = (int32_t)(a->n_heads / a->n_kv_heads),
        .head_dim = (int32_t)a->head_dim,
        .window = (int32_t)window,
        .tiles = (int32_t)over(a->length, SELF_ANY_TILE),
        .chunks = (int32_t)over(a->head_dim, SELF_ANY_DIMS),
        .scale = 1 / sqrtf((float)a->head_dim),
        .bf16 = bf16(&a->q, SELF_Q) | bf16(&a->k, SELF_K) | bf16(&a->v, SELF_V) |
                bf16(&a->out, SELF_OUT) | bf16(&a->dout, SELF_DOUT) | bf16(&a->dq, SELF_DQ) |
                bf16(&a->dk, SELF_DK) | bf16(&a->dv, SELF_DV),
    };
}

void self_attention_put_sinks(struct gpu_stream *stream, const struct self_attention_any_args *k)
{
    if (k->sinks && k->dsinks) put(stream, "self_attention_any_sinks", k->n_heads, k);
}

static void run_backward(const struct op_context *context, const void *args)
{
    const struct self_attention_backward_args *a = args;
    if (a->sequences * a->length * a->n_heads == 0) return;
    const struct self_attention_any_args k =
        self_attention_backward_for_kernel(a, context->workspace);
    const int64_t blocks = blocks_of(a->sequences, a->length, a->n_heads, a->head_dim);
    put(context->stream, "self_attention_any_delta", blocks, &k);
    put(context->stream, "self_attention_any_dq", blocks, &k);
    put(context->stream, "self_attention_any_dkv",
        blocks_of(a->sequences, a->length, a->n_kv_heads, a->head_dim), &k);
    if (a->sinks && a->dsinks) put(context->stream, "self_attention_any_sinks", a->n_heads, &k);
}

static const unsigned typed_forward[] = {0xf, 0}, typed_backward[] = {0xff, 0};

const struct op_variant self_attention_any_cuda = {
    .name = "self_attention_any_cuda",
    .summary = "64 queries of a head a block in float32, any head_dim",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .typed = typed_forward,
    .run = run,
    .images = {IMAGE},
};

const struct op_variant self_attention_backward_any_cuda = {
    .name = "self_attention_backward_any_cuda",
    .summary = "64 queries or keys of a head a block in float32, any head_dim",
    .target = TARGET_CUDA,
    .can_run = can_run_backward,
    .typed = typed_backward,
    .workspace = self_attention_delta_bytes,
    .run = run_backward,
    .images = {IMAGE},
};
