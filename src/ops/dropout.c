/* dropout: numbers that are left out at random while a model learns. */
#include "base/rng.h"
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/dropout.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct dropout_args *a = args;
    double bytes = matrix_bytes(&a->x) + matrix_bytes(&a->out);
    if (a->add.data) bytes += matrix_bytes(&a->add);
    return (struct op_cost){2 * (double)(a->m * a->n), bytes};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct dropout_args *a = args;
    const struct random_key *key = a->key;
    const uint32_t limit = dropout_limit(a->rate);
    const double factor = (double)dropout_factor(limit);
    for (int64_t i = 0; i < a->m * a->n; i++) {
        const uint32_t counter[4] = {(uint32_t)(i / DROPOUT_BLOCK), key->micro_batch, key->step,
                                     a->stream};
        uint32_t words[4];
        rng_philox(key->seed, counter, words);
        const int half = (int)(i % DROPOUT_BLOCK);
        const bool kept = (words[half / 2] >> half % 2 * 16 & 0xffff) >= limit;
        double y = kept ? factor * (double)matrix_floats(&a->x)[i] : 0;
        if (a->add.data) y += (double)matrix_floats(&a->add)[i];
        matrix_floats(&a->out)[i] = (float)y;
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct random_key *key = ARENA_NEW(c->arena, struct random_key, 1);
    if (key) *key = (struct random_key){.seed = {5, 6}, .step = 4, .micro_batch = 3};
    *(struct dropout_args *)args = (struct dropout_args){.m = p->rows,
                                                         .n = p->n,
                                                         .rate = 0.15f,
                                                         .stream = 9,
                                                         .key = key,
                                                         .x = case_rows(c, p->rows, p->n, 1.0f),
                                                         .add = case_rows(c, p->rows, p->n, 1.0f),
                                                         .out = case_output(c, p->rows, p->n)};
}

static bool make_case(struct case_maker *c, void *args)
{
    struct dropout_args *a = args;
    if (c->index >= 8) return false;
    const struct op_problem p = {.rows = case_size(c, 1, 20), .n = case_size(c, 1, 300)};
    make_problem(c, &p, args);
    if (c->index & 1) a->add.data = NULL;
    if (c->index & 2) a->rate = 0.7f;
    if (c->index & 4) a->stream = 0x80000001u;
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct dropout_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_dropout = {
    .name = "dropout",
    .summary = "out = add + x / (1 - rate), but 0 instead of x where a random number says so",
    .args_size = sizeof(struct dropout_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 16384, .n = 256},
    .matrices = {{OP_READS, offsetof(struct dropout_args, x)},
                 {OP_READS, offsetof(struct dropout_args, add)},
                 {OP_WRITES, offsetof(struct dropout_args, out)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
