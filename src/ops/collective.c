/* See collective.h. */
#include "ops/collective.h"

#include <string.h>

#include "comm/communicator.h"

void collective_problem(const void *args, struct op_problem *out)
{
    const struct collective_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->x.dtype, .n = a->n, .groups = a->ranks};
}

struct op_cost collective_cost(const struct collective_args *a, int64_t blocks, double passes,
                               bool sums)
{
    const double numbers = (double)(blocks * a->m * a->n);
    const double adds = sums ? (double)(a->ranks - 1) / (double)a->ranks : 0;
    return (struct op_cost){numbers * adds, passes * (double)matrix_bytes(&a->x)};
}

void collective_make(struct case_maker *c, const struct op_problem *p, int64_t blocks, void *args)
{
    *(struct collective_args *)args =
        (struct collective_args){.ranks = p->groups,
                                 .m = p->rows,
                                 .n = p->n,
                                 .x = case_rows(c, blocks * p->rows, p->n, 1.0f)};
}

struct sum {
    float *parts;
    int64_t ranks, n;
};

static void sum_range(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct sum *s = arg;
    for (int64_t step = 1; step < s->ranks; step *= 2)
        for (int64_t r = 0; r + step < s->ranks; r += 2 * step) {
            float *to = s->parts + r * s->n;
            const float *from = to + step * s->n;
            for (int64_t i = begin; i < end; i++) to[i] += from[i];
        }
}

void collective_sum(struct pool *pool, float *parts, int64_t ranks, int64_t n)
{
    pool_for(pool, n, 4096, sum_range, &(struct sum){parts, ranks, n});
}

void collective_make_blocks(struct case_maker *c, const struct op_problem *p, void *args)
{
    collective_make(c, p, p->groups, args);
}

const struct case_shape collective_block_cases[2] = {
    {6, {0, 1, 20}, {0, 1, 300}, {0}, {1, 1, 5}, {0}, {0}, DTYPE_F32},
    {1, {0, 3, 3}, {1, 1 << 17, 1 << 17}, {0}, {1, 3, 3}, {0}, {0}, DTYPE_F32}};

/* Of `n` numbers from `at` on. */
static int64_t part_at(int64_t at, int64_t n)
{
    return n - at < COLLECTIVE_PART ? n - at : COLLECTIVE_PART;
}

size_t collective_room(int64_t ranks, int64_t n)
{
    return (size_t)(2 * ranks * part_at(0, n)) * sizeof(float);
}

size_t collective_workspace(const void *args, int workers)
{
    (void)workers;
    const struct collective_args *a = args;
    return collective_room(a->ranks, a->m * a->n);
}

void collective_add_up(const struct op_context *context, float *x, int64_t ranks, int64_t n)
{
    for (int64_t at = 0, part; at < n; at += part) {
        part = part_at(at, n);
        const size_t bytes = (size_t)part * sizeof *x;
        float *all = context->workspace;
        if (communicator_all_gather(context->communicator, x + at, bytes, all) != SOL_OK) return;
        collective_sum(context->pool, all, ranks, part);
        memcpy(x + at, all, bytes);
    }
}

void collective_reduce_scatter(const struct op_context *context, float *x, int64_t ranks, int64_t n)
{
    struct communicator *c = context->communicator;
    float *own = x + communicator_rank(c) * n;
    for (int64_t at = 0, part; at < n; at += part) {
        part = part_at(at, n);
        float *from = context->workspace, *to = from + ranks * part;
        const size_t bytes = (size_t)part * sizeof *x;
        for (int64_t r = 0; r < ranks; r++) memcpy(from + r * part, x + r * n + at, bytes);
        if (communicator_all_to_all(c, from, bytes, to) != SOL_OK) return;
        collective_sum(context->pool, to, ranks, part);
        memcpy(own + at, to, bytes);
    }
}

void collective_all_gather(const struct op_context *context, float *x, int64_t ranks, int64_t n)
{
    struct communicator *c = context->communicator;
    const float *own = x + communicator_rank(c) * n;
    for (int64_t at = 0, part; at < n; at += part) {
        part = part_at(at, n);
        float *all = context->workspace;
        const size_t bytes = (size_t)part * sizeof *x;
        if (communicator_all_gather(c, own + at, bytes, all) != SOL_OK) return;
        for (int64_t r = 0; r < ranks; r++) memcpy(x + r * n + at, all + r * part, bytes);
    }
}
