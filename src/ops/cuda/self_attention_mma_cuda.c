/* Attention of whole sequences and its gradients in bf16 on every card from sm_80 on
 * (kernels/self_attention/self_attention_mma.cu, self_attention_backward_mma.cu). */
#include <stdio.h>

#include "gpu/kernel.h"
#include "ops/cuda/self_attention_cuda.h"
#include "self_attention/self_attention_mma_args.h"

static const char FORWARD[] = "self_attention/self_attention_mma.cu";
static const char BACKWARD[] = "self_attention/self_attention_backward_mma.cu";

static int64_t over(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static bool serves(int64_t head_dim, int64_t rows, const struct matrix *const matrices[],
                   char why[OP_REASON_MAX])
{
    const char *lack = NULL;
    if (head_dim != 64 && head_dim != 128)
        lack = "head_dim other than 64 and 128";
    else if (rows > INT32_MAX / 2)
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
    const struct matrix *const matrices[] = {&a->q, &a->k, &a->v, &a->out, NULL};
    (void)device;
    return serves(a->head_dim, a->sequences * a->length * a->n_heads, matrices, why);
}

static bool can_run_backward(const void *args, const struct op_device *device,
                             char why[OP_REASON_MAX])
{
    const struct self_attention_backward_args *a = args;
    const struct matrix *const matrices[] = {&a->q,  &a->k,  &a->v,  &a->out, &a->dout,
                                             &a->dq, &a->dk, &a->dv, NULL};
    (void)device;
    return serves(a->head_dim, a->sequences * a->length * a->n_heads, matrices, why);
}

static void put(struct gpu_stream *stream, const char *image, const char *kernel, int64_t blocks,
                const struct self_attention_any_args *k)
{
    gpu_put(stream, image, kernel,
            &(struct gpu_launch){.grid = {(unsigned)blocks},
                                 .block = {SELF_MMA_THREADS},
                                 .shared_bytes = (unsigned)SELF_MMA_SHARED(k->head_dim),
                                 .overlaps = true},
            k);
}

static void run(const struct op_context *context, const void *args)
{
    const struct self_attention_args *a = args;
    if (a->sequences * a->length * a->n_heads == 0) return;
    const struct self_attention_any_args k = self_attention_for_kernel(a);
    put(context->stream, FORWARD,
        a->head_dim == 128 ? "self_attention_mma_128" : "self_attention_mma_64",
        a->sequences * a->n_heads * over(a->length, SELF_MMA_ROWS), &k);
}

static void run_backward(const struct op_context *context, const void *args)
{
    const struct self_attention_backward_args *a = args;
    const bool wide = a->head_dim == 128;
    const int64_t rows = a->sequences * a->length * a->n_heads;
    if (rows == 0) return;
    struct self_attention_any_args k = self_attention_backward_for_kernel(a, context->workspace);
    k.tiles = (int32_t)over(a->length, SELF_MMA_BACK);
    gpu_put(context->stream, BACKWARD,
            wide ? "self_attention_mma_delta_128" : "self_attention_mma_delta_64",
            &(struct gpu_launch){
                .grid = {(unsigned)over(rows * a->head_dim / 8, SELF_MMA_DELTA_THREADS)},
                .block = {SELF_MMA_DELTA_THREADS},
                .overlaps = true},
            &k);
    put(context->stream, BACKWARD, wide ? "self_attention_mma_dq_128" : "self_attention_mma_dq_64",
        a->sequences * a->n_heads * k.tiles, &k);
    put(context->stream, BACKWARD,
        wide ? "self_attention_mma_dkv_128" : "self_attention_mma_dkv_64",
        a->sequences * a->n_kv_heads * k.tiles, &k);
    self_attention_put_sinks(context->stream, &k);
}

static const unsigned typed_forward[] = {0xf, 0}, typed_backward[] = {0xff, 0};

const struct op_variant self_attention_mma_cuda = {
    .name = "self_attention_mma_cuda",
    .summary = "128 rows of a head together on mma.sync, weights in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .typed = typed_forward,
    .run = run,
    .images = {"self_attention/self_attention_mma.cu"},
};

const struct op_variant self_attention_backward_mma_cuda = {
    .name = "self_attention_backward_mma_cuda",
    .summary = "64 keys of a head together on mma.sync, then 64 queries; weights in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_backward,
    .typed = typed_backward,
    .workspace = self_attention_delta_bytes,
    .run = run_backward,
    .images = {"self_attention/self_attention_backward_mma.cu",
               "self_attention/self_attention_any.cu"},
};
