/* Variants of the loss of a block of columns. */
#include "ops/args.h"
#include "ops/cuda/typed_cuda.h"
#include "train/loss_block_args.h"

#define LOSS_BLOCK_IMAGE "train/loss_block.cu"

static const unsigned one[] = {1, 0};

/* A block of threads a row. */
static void put_rows(const struct op_context *context, const struct typed_names *names,
                     const struct matrix *logits, const struct loss_block_kernel_args *k)
{
    const bool eights = logits->cols % 8 == 0 && typed_aligned(logits->data);
    const int64_t pieces = typed_pieces(logits->cols, eights ? 8 : 1);
    gpu_put(context->stream, LOSS_BLOCK_IMAGE, names->of[typed_narrow(logits)][eights],
            &(struct gpu_launch){.grid = {(unsigned)logits->rows},
                                 .block = {typed_threads(pieces, LOSS_BLOCK_THREADS)},
                                 .overlaps = true},
            k);
}

static void run_block(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("loss_block");
    const struct cross_entropy_block_args *a = args;
    const struct loss_block_kernel_args k = {.vocab = a->vocab,
                                             .cols = a->logits.cols,
                                             .first = a->first,
                                             .target = a->target,
                                             .logits = a->logits.data,
                                             .top = a->top,
                                             .total = a->total,
                                             .own = a->own,
                                             .nll = a->nll,
                                             .cap = a->cap};
    put_rows(context, &names, &a->logits, &k);
}

const struct op_variant cross_entropy_block_cuda = {
    .name = "cross_entropy_block_cuda",
    .summary = "threads of a block share a row",
    .target = TARGET_CUDA,
    .typed = one,
    .run = run_block,
    .images = {LOSS_BLOCK_IMAGE},
};

static void run_backward(const struct op_context *context, const void *args)
{
    static const struct typed_names names = TYPED_NAMES("loss_block_gradient");
    const struct cross_entropy_block_backward_args *a = args;
    const struct loss_block_kernel_args k = {.vocab = a->vocab,
                                             .cols = a->logits.cols,
                                             .first = a->first,
                                             .target = a->target,
                                             .scale = a->scale,
                                             .logits = a->logits.data,
                                             .top = (float *)(uintptr_t)a->top,
                                             .total = (float *)(uintptr_t)a->total,
                                             .cap = a->cap};
    put_rows(context, &names, &a->logits, &k);
}

const struct op_variant cross_entropy_block_backward_cuda = {
    .name = "cross_entropy_block_backward_cuda",
    .summary = "threads of a block share a row",
    .target = TARGET_CUDA,
    .typed = one,
    .run = run_backward,
    .images = {LOSS_BLOCK_IMAGE},
};
