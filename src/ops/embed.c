/* embed: the table's rows for the tokens of the batch, as float32. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/embed.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct embed_args *a = args;
    double row = (double)dtype_row_bytes(a->table.dtype, a->table.cols);
    return (struct op_cost){0, (double)a->m * row + matrix_bytes(&a->x)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct embed_args *a = args;
    for (int64_t i = 0; i < a->m; i++)
        tensor_decode_row(&a->table, 0, a->batch->token[i],
                          matrix_floats(&a->x) + i * a->table.cols);
}

static void make(struct case_maker *c, const struct op_problem *p, int64_t vocab,
                 struct embed_args *a)
{
    *a = (struct embed_args){
        .m = p->rows,
        .batch = case_batch(c, p->rows, 1, 0, vocab),
        .table = case_tensor(c, p->dtype, 1, vocab, p->n, 1.0f),
        .x = case_output(c, p->rows, p->n),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    enum { TIMED_VOCAB = 20000 }; /* a tenth of it: rows enough to lie apart */
    make(c, p, TIMED_VOCAB, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 5 || c->kind == CASE_NONFINITE) return false;
    int64_t m = case_size(c, 1, 20), vocab = case_size(c, 1, 100);
    const struct op_problem p = {
        .rows = m, .dtype = case_weight_dtype(c), .n = 32 * rng_range(c->rng, 1, 4)};
    make(c, &p, vocab, args);
    return true;
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
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 2880},
    .matrices = {{OP_WRITES, offsetof(struct embed_args, x)}},
    .weights = {offsetof(struct embed_args, table)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
