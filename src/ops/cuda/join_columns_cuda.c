#include "gpu/kernel.h"
#include "join_columns/join_columns_args.h"
#include "ops/args.h"
#include "ops/op.h"

static void run(const struct op_context *context, const void *args)
{
    enum { EACH = JOIN_COLUMNS_THREADS * JOIN_COLUMNS_EACH };
    const struct join_columns_args *a = args;
    const struct join_columns_kernel_args k = {
        .m = a->m, .n = a->n, .part = a->x.cols, .x = a->x.data, .y = a->y.data};
    if (a->m == 0 || a->n == 0) return;
    gpu_put(context->stream, "join_columns/join_columns.cu", "join_columns_f32",
            &(struct gpu_launch){.grid = {(unsigned)((a->n + EACH - 1) / EACH), (unsigned)a->m},
                                 .block = {JOIN_COLUMNS_THREADS},
                                 .overlaps = true},
            &k);
}

const struct op_variant join_columns_cuda = {
    .name = "join_columns_cuda",
    .summary = "a row of blocks each",
    .target = TARGET_CUDA,
    .run = run,
    .images = {"join_columns/join_columns.cu"},
};
