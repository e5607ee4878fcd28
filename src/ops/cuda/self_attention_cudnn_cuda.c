/* Attention of whole sequences and its gradients by NVIDIA's cuDNN: what the own kernels are
 * measured against. What it calls stats is what the ops keep as lse. */
#include "gpu/attention.h"
#include "ops/cuda/typed_cuda.h"
#include "ops/train_args.h"

static bool usable(char why[OP_REASON_MAX])
{
    const char *missing;
    if (gpu_attention_usable(&missing)) return true;
    snprintf(why, OP_REASON_MAX, "%.*s", OP_REASON_MAX - 1, missing);
    return false;
}

/* ---- what is served ---- */

static bool serves(const struct self_attention_args *a, const struct matrix *const matrices[],
                   char why[OP_REASON_MAX])
{
    if (a->sinks) return typed_refuse(why, "it does not know sinks");
    if (a->head_dim != 64 && a->head_dim != 128)
        return typed_refuse(why, "it does not know head_dim other than 64 and 128");
    if (a->length < 2) return typed_refuse(why, "it does not know sequences of one token");
    if (a->sequences * a->length * a->n_heads > INT32_MAX / 2)
        return typed_refuse(why, "it does not know so many rows");
    for (int i = 0; matrices[i]; i++) {
        if (matrices[i]->dtype != DTYPE_BF16)
            return typed_refuse(why, "it does not know matrices in float32");
        if (!matrix_has_lines(matrices[i]))
            return typed_refuse(why, "a matrix at an address that is no multiple of 16");
    }
    if (!typed_aligned(a->lse)) return typed_refuse(why, "lse is at no multiple of 16");
    return true;
}

/* The forward op's part. */
static struct self_attention_args forward_of(const struct self_attention_backward_args *a)
{
    return (struct self_attention_args){.sequences = a->sequences,
                                        .length = a->length,
                                        .n_heads = a->n_heads,
                                        .n_kv_heads = a->n_kv_heads,
                                        .head_dim = a->head_dim,
                                        .window = a->window,
                                        .sinks = a->sinks,
                                        .q = a->q,
                                        .k = a->k,
                                        .v = a->v,
                                        .out = a->out,
                                        .lse = (float *)(uintptr_t)a->lse};
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct self_attention_args *a = args;
    (void)device;
    return serves(a, (const struct matrix *const[]){&a->q, &a->k, &a->v, &a->out, NULL}, why);
}

static bool can_run_backward(const void *args, const struct op_device *device,
                             char why[OP_REASON_MAX])
{
    const struct self_attention_backward_args *a = args;
    const struct self_attention_args forward = forward_of(a);
    /* Before 9.0 and from 12.0 on it wants room for the sums of dq once more. */
    if (device->gpu && gpu_info(device->gpu)->major >= 12)
        return typed_refuse(why, "it takes more workspace on this card");
    return serves(&forward,
                  (const struct matrix *const[]){&a->q, &a->k, &a->v, &a->out, &a->dout, &a->dq,
                                                 &a->dk, &a->dv, NULL},
                  why);
}

/* ---- running ---- */

static struct gpu_attention attention_of(const struct self_attention_args *a, void *workspace)
{
    return (struct gpu_attention){.sequences = a->sequences,
                                  .length = a->length,
                                  .n_heads = a->n_heads,
                                  .n_kv_heads = a->n_kv_heads,
                                  .head_dim = a->head_dim,
                                  .window = a->window,
                                  .q = a->q.data,
                                  .k = a->k.data,
                                  .v = a->v.data,
                                  .out = a->out.data,
                                  .lse = a->lse,
                                  .workspace = workspace};
}

static struct gpu_attention backward_of(const struct self_attention_backward_args *a,
                                        void *workspace)
{
    const struct self_attention_args forward = forward_of(a);
    struct gpu_attention out = attention_of(&forward, workspace);
    out.backward = true;
    out.dout = a->dout.data;
    out.dq = a->dq.data, out.dk = a->dk.data, out.dv = a->dv.data;
    return out;
}

static size_t workspace(const void *args, int workers)
{
    (void)workers;
    const struct gpu_attention attention = attention_of(args, NULL);
    return gpu_attention_workspace(&attention);
}

static size_t workspace_backward(const void *args, int workers)
{
    (void)workers;
    const struct gpu_attention attention = backward_of(args, NULL);
    return gpu_attention_workspace(&attention);
}

static void run(const struct op_context *context, const void *args)
{
    const struct gpu_attention attention = attention_of(args, context->workspace);
    if (attention.sequences && attention.n_heads) gpu_put_attention(context->stream, &attention);
}

static void run_backward(const struct op_context *context, const void *args)
{
    const struct gpu_attention attention = backward_of(args, context->workspace);
    if (attention.sequences && attention.n_heads) gpu_put_attention(context->stream, &attention);
}

/* ---- the variants ---- */

static const unsigned narrow_forward[] = {0xf, 0}, narrow_backward[] = {0xff, 0};

const struct op_variant self_attention_cudnn_cuda = {
    .name = "self_attention_cudnn_cuda",
    .summary = "NVIDIA's cuDNN, where it is installed",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .usable = usable,
    .can_run = can_run,
    .typed = narrow_forward,
    .workspace = workspace,
    .run = run,
};

/* dq is added up by atomics: two runs may differ in last bits. */
const struct op_variant self_attention_backward_cudnn_cuda = {
    .name = "self_attention_backward_cudnn_cuda",
    .summary = "NVIDIA's cuDNN, where it is installed",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9},
    .usable = usable,
    .can_run = can_run_backward,
    .varies = 1,
    .typed = narrow_backward,
    .workspace = workspace_backward,
    .run = run_backward,
};
