#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "sample/sample_args.h"

_Static_assert(sizeof(struct sample_draw) == sizeof(struct sample_kernel_draw), "one layout");

/* Whether their blocks fill a GPU when each has more to do. */
static bool many_rows(const struct sample_args *a)
{
    enum { MANY = 16 };
    return a->n >= MANY;
}

static int64_t piece_count(const struct sample_args *a)
{
    const int64_t piece = SAMPLE_THREADS * (many_rows(a) ? SAMPLE_EACH_MANY : SAMPLE_EACH);
    return (a->vocab + piece - 1) / piece;
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
    const bool many = many_rows(a);
    const char *const kernels[] = {many ? "sample_pieces_many" : "sample_pieces",
                                   many ? "sample_again_many" : "sample_again", "sample_draw"};
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
