#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "sample/sample_args.h"

_Static_assert(sizeof(struct sample_draw) == sizeof(struct sample_kernel_draw), "one layout");

/* Whether a row's race is in one pass, which reads four logits at a time: where rows are many, so
 * that blocks fill a GPU when each has more to do. */
static bool in_one_pass(const struct sample_args *a)
{
    enum { MANY = 16, FOUR = 4 };
    const bool fours = a->vocab % FOUR == 0 && (uintptr_t)a->logits.data % (FOUR * 4) == 0;
    return a->n >= MANY && fours && !a->share && !a->ids;
}

/* As many as may be: the workspace is asked for without addresses. */
static int64_t piece_count(const struct sample_args *a, int each)
{
    const int64_t piece = SAMPLE_THREADS * each;
    return (a->vocab + piece - 1) / piece;
}

static size_t workspace(const void *args, int workers)
{
    const struct sample_args *a = args;
    (void)workers;
    return (size_t)(a->n * piece_count(a, SAMPLE_EACH)) * sizeof(struct sample_piece);
}

/* H200, us of one, two, four and eight pieces in a block: 64 rows 104, 99, 104, 124; 128 rows 150,
 * 137, 137, 152; 512 rows with two, four and eight 458, 434, 439. */
static uint32_t together(const struct sample_args *a)
{
    return a->n < 64 ? 1 : a->n < 256 ? 2 : 4;
}

static void run(const struct op_context *context, const void *args)
{
    const struct sample_args *a = args;
    const bool pass = in_one_pass(a);
    const struct sample_kernel_args k = {
        .vocab = a->vocab,
        .pieces = (uint32_t)piece_count(a, pass ? SAMPLE_EACH_MANY : SAMPLE_EACH),
        .together = pass ? together(a) : 1,
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
    const char *const kernels[] = {pass ? "sample_pass" : "sample_pieces",
                                   pass ? "sample_again_many" : "sample_again", "sample_draw"};
    const unsigned blocks = (k.pieces + k.together - 1) / k.together;
    for (int i = 0; i < 3; i++)
        gpu_put(context->stream, "sample/sample.cu", kernels[i],
                &(struct gpu_launch){.grid = {i < 2 ? blocks : 1, (unsigned)a->n},
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
