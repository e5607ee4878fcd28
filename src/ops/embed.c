/* embed: the table's rows for the tokens of the batch, as float32. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/embed.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct embed_args *a = args;
    double row = (double)dtype_row_bytes(a->table.dtype, a->table.cols);
    return (struct op_cost){0, (double)a->m * (row + 4.0 * (double)a->table.cols)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct embed_args *a = args;
    for (int64_t i = 0; i < a->m; i++)
        tensor_decode_row(&a->table, 0, a->batch->token[i], a->x + i * a->table.cols);
}

static bool make_case(struct arena *arena, struct rng *rng, enum op_case_kind kind, int index,
                      void *args)
{
    if (index >= 5 || kind == CASE_NONFINITE) return false;
    struct case_maker c = {arena, rng, kind, index};
    int64_t m = case_size(&c, 1, 20), vocab = case_size(&c, 1, 100);
    int64_t hidden = 32 * rng_range(rng, 1, 4);
    *(struct embed_args *)args = (struct embed_args){
        .m = m,
        .batch = case_batch(&c, m, 1, 0, vocab),
        .table = case_tensor(&c, case_weight_dtype(&c), 1, vocab, hidden, 1.0f),
        .x = case_output(&c, m * hidden),
    };
    return true;
}

static int outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct embed_args *a = args;
    out[0] = (struct op_output){offsetof(struct embed_args, x), (size_t)(a->m * a->table.cols) * 4,
                                true, a->table.cols};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct embed_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->table.dtype, .n = a->table.cols};
}

const struct op op_embed = {
    .name = "embed",
    .summary = "x[i] = table[token[i]] as float32",
    .args_size = sizeof(struct embed_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .outputs = outputs,
    .weights = {offsetof(struct embed_args, table)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
