/* matmul of ops/vector/train_matmul.h, and with it grouped_matmul and grouped_wgrad: the groups'
 * products one behind the other. */
#include "ops/vector/train_matmul.h"

/* What a product of at most `most` rows and columns, along at most `depth`, packs. */
static size_t grouped_workspace(int64_t most, int64_t depth)
{
    const int64_t left = matmul_min(most, BLOCK_LEFT) + MATMUL_ROWS;
    const int64_t right = matmul_min(most, BLOCK_RIGHT) + TILE_COLS;
    return (size_t)(matmul_min(depth, BLOCK_DEPTH) * (left + right)) * sizeof(float);
}

static size_t grouped_matmul_workspace(const void *args, int workers)
{
    const struct grouped_matmul_args *a = args;
    (void)workers;
    return grouped_workspace(a->m > a->n ? a->m : a->n, a->k);
}

static void grouped_matmul_run(const struct op_context *context, const void *args)
{
    const struct grouped_matmul_args *a = args;
    for (int64_t g = 0; g < a->groups; g++) {
        const int64_t first = a->group_offsets[g], rows = a->group_offsets[g + 1] - first;
        const struct matrix out = matrix_f32(matrix_floats(&a->out) + first * a->n, rows, a->n);
        const struct matmul_args product = {
            .batch = 1,
            .m = rows,
            .n = a->n,
            .k = a->k,
            .transpose_b = a->transpose,
            .alpha = 1,
            .beta = a->add,
            .a = matrix_f32(matrix_floats(&a->a) + first * a->k, rows, a->k),
            .b = matrix_f32(matrix_floats(&a->w) + g * a->n * a->k, a->transpose ? a->n : a->k,
                            a->transpose ? a->k : a->n),
            .add = out,
            .out = out,
        };
        if (rows) matmul_run(context, &product);
    }
}

const struct op_variant NAMED(grouped_matmul) = {.name = NAME_OF(grouped_matmul),
                                                 .summary = "matmul of each group",
                                                 .needs = NEEDS,
                                                 .workspace = grouped_matmul_workspace,
                                                 .run = grouped_matmul_run};

static size_t grouped_wgrad_workspace(const void *args, int workers)
{
    const struct grouped_wgrad_args *a = args;
    (void)workers;
    return grouped_workspace(a->n > a->k ? a->n : a->k, a->m);
}

static void grouped_wgrad_run(const struct op_context *context, const void *args)
{
    const struct grouped_wgrad_args *a = args;
    for (int64_t g = 0; g < a->groups; g++) {
        const int64_t first = a->group_offsets[g], rows = a->group_offsets[g + 1] - first;
        const struct matrix dw = matrix_f32(matrix_floats(&a->dw) + g * a->n * a->k, a->n, a->k);
        const struct matmul_args product = {
            .batch = 1,
            .m = a->n,
            .n = a->k,
            .k = rows,
            .transpose_a = true,
            .alpha = 1,
            .beta = 1,
            .a = matrix_f32(matrix_floats(&a->dy) + first * a->n, rows, a->n),
            .b = matrix_f32(matrix_floats(&a->x) + first * a->k, rows, a->k),
            .add = dw,
            .out = dw,
        };
        if (rows) matmul_run(context, &product);
    }
}

const struct op_variant NAMED(grouped_wgrad) = {.name = NAME_OF(grouped_wgrad),
                                                .summary = "matmul of each group",
                                                .needs = NEEDS,
                                                .workspace = grouped_wgrad_workspace,
                                                .run = grouped_wgrad_run};
