#include "ops/problem.h"

#include <stdio.h>

static const char *const results[] = {"f16", "bf16", "f32", NULL};
static const char *const layouts[] = {"rows", "atoms", NULL};
static const char *const weights[] = {"rows", "tiles", NULL};
static const char *const gated[] = {"no", "yes", NULL};
static const char *const signs[] = {"yes", "no", NULL};
static const char *const transposed[] = {"no", "a", "b", "both", NULL};
static const char *const symmetric[] = {"no", "yes", NULL};

static const struct {
    const char *name;
    size_t offset;            /* of an int64_t in struct op_problem */
    const char *const *words; /* or NULL */
} sizes[OP_SIZES] = {
    {"rows", offsetof(struct op_problem, rows), NULL},
    {"n", offsetof(struct op_problem, n), NULL},
    {"k", offsetof(struct op_problem, k), NULL},
    {"groups", offsetof(struct op_problem, groups), NULL},
    {"top_k", offsetof(struct op_problem, top_k), NULL},
    {"head_dim", offsetof(struct op_problem, head_dim), NULL},
    {"window", offsetof(struct op_problem, window), NULL},
    {"sequences", offsetof(struct op_problem, sequences), NULL},
    {"results", offsetof(struct op_problem, results), results},
    {"scales", offsetof(struct op_problem, scales), layouts},
    {"gated", offsetof(struct op_problem, gated), gated},
    {"signs", offsetof(struct op_problem, signs), signs},
    {"weights", offsetof(struct op_problem, weights), weights},
    {"transposed", offsetof(struct op_problem, transposed), transposed},
    {"symmetric", offsetof(struct op_problem, symmetric), symmetric},
};

const char *op_size_name(int i)
{
    return sizes[i].name;
}

const char *const *op_size_words(int i)
{
    return sizes[i].words;
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
    for (int i = 1; i < OP_SIZES && at > 0 && (size_t)at < size; i++) {
        const int64_t value = *op_size(&p, i);
        if (value && sizes[i].words)
            at += snprintf(text + at, size - (size_t)at, " %s=%s", sizes[i].name,
                           sizes[i].words[value]);
        else if (value)
            at +=
                snprintf(text + at, size - (size_t)at, " %s=%lld", sizes[i].name, (long long)value);
    }
}
