#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "sample/sample_args.h"

_Static_assert(sizeof(struct sample_draw) == sizeof(struct sample_kernel_draw), "one layout");

static int64_t piece_count(const struct sample_args *a)
{
    return (a->vocab + SAMPLE_PIECE - 1) / SAMPLE_PIECE;
}

static size_t workspace(const void *args, int workers)
{
    const struct sample_args *a = args;
    (void)workers;
    return (size_t)(a->n * piece_count(a)) * sizeof(struct sample_piece);
}

static void run(const struct op_context *context, const void *args)
{
    const struct sample_args *a = args;
    const struct sample_kernel_args k = {
        .vocab = a->vocab,
        .pieces = piece_count(a),
        .logits = a->logits.data,
        .banned = a->banned,
        .lists = a->lists,
        .ids = a->ids,
        .draws = (const struct sample_kernel_draw *)a->draws,
        .partial = context->workspace,
        .token = a->token,
        .next = a->next,
        .share = a->share,
    };
    static const char *const kernels[] = {"sample_pieces", "sample_again", "sample_draw"};
    for (int i = 0; i < 3; i++)
        gpu_put(context->stream, "sample/sample.cu", kernels[i],
                &(struct gpu_launch){.grid = {i < 2 ? (unsigned)k.pieces : 1, (unsigned)a->n},
                                     .block = {SAMPLE_THREADS},
                                     .overlaps = true},
                &k);
}

const struct op_variant sample_race_cuda = {
    .name = "sample_race_cuda",
    .summary = "what is known of pieces of a row, races with min_p, who is first: three kernels",
    .target = TARGET_CUDA,
    .workspace = workspace,
    .run = run,
    .images = {"sample/sample.cu"},
};
