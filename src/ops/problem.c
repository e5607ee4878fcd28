#include "ops/problem.h"

#include <stdio.h>

static const struct {
    const char *name;
    size_t offset; /* of an int64_t in struct op_problem */
} sizes[OP_SIZES] = {
    {"rows", offsetof(struct op_problem, rows)},
    {"n", offsetof(struct op_problem, n)},
    {"k", offsetof(struct op_problem, k)},
    {"groups", offsetof(struct op_problem, groups)},
    {"top_k", offsetof(struct op_problem, top_k)},
    {"head_dim", offsetof(struct op_problem, head_dim)},
    {"window", offsetof(struct op_problem, window)},
    {"sequences", offsetof(struct op_problem, sequences)},
};

const char *op_size_name(int i)
{
    return sizes[i].name;
}

int64_t *op_size(struct op_problem *problem, int i)
{
    return (int64_t *)((char *)problem + sizes[i].offset);
}

bool op_problem_same(const struct op_problem *a, const struct op_problem *b)
{
    struct op_problem x = *a, y = *b;
    bool same = x.dtype == y.dtype;
    for (int i = 1; i < OP_SIZES; i++) same &= *op_size(&x, i) == *op_size(&y, i);
    return same;
}

void op_problem_describe(const struct op_problem *problem, char *text, size_t size)
{
    struct op_problem p = *problem;
    int at = snprintf(text, size, "%lld x %s", (long long)p.rows, dtype_info(p.dtype)->name);
    for (int i = 1; i < OP_SIZES && at > 0 && (size_t)at < size; i++)
        if (*op_size(&p, i))
            at += snprintf(text + at, size - (size_t)at, " %s=%lld", sizes[i].name,
                           (long long)*op_size(&p, i));
}
