/* What tests of gradients share: drawing inputs, running references, comparing what an op made with
 * central differences of a forward pass in float64, and variants with themselves on several
 * workers. Its includer has cmocka. */
#ifndef TESTS_SUPPORT_GRADIENTS_H
#define TESTS_SUPPORT_GRADIENTS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/cpu.h"
#include "base/threads.h"
#include "ops/cases.h"
#include "ops/ops.h"

static struct arena *arena;
static struct rng rng;

static inline int begin(void **state)
{
    (void)state;
    rng_seed(&rng, 20261124);
    return arena_create(1 << 20, &arena) == SOL_OK ? 0 : -1;
}

static inline int end(void **state)
{
    (void)state;
    arena_destroy(arena);
    return 0;
}

static inline int64_t size(int64_t lo, int64_t hi)
{
    return rng_range(&rng, lo, hi);
}

static inline float *draw(int64_t n)
{
    float *x = ARENA_NEW(arena, float, n);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = rng_normal(&rng);
    return x;
}

static inline float *copy_of(const float *x, int64_t n)
{
    float *copy = ARENA_NEW(arena, float, n);
    assert_non_null(copy);
    memcpy(copy, x, sizeof *x * (size_t)n);
    return copy;
}

static inline double *widen(const float *x, int64_t n)
{
    double *wide = ARENA_NEW(arena, double, n);
    assert_non_null(wide);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)x[i];
    return wide;
}

static inline void run_reference(const struct op *op, const void *args)
{
    size_t bytes = op->reference_workspace ? op->reference_workspace(args, 1) : 0;
    const struct op_context context = {.workspace = arena_alloc(arena, bytes + 1, 256)};
    op->reference(&context, args);
}

/* ---- the comparison ---- */

struct forward {
    double (*loss)(const void *inputs); /* a weighted sum of all outputs */
    const void *inputs;
};

/* The gradient of loss in x, which the inputs point to, is what `after` has more than `before`
 * (NULL: 0). Differences are good to 1e-9, float32 to 1e-7 of what it is added to. */
static inline void check(const char *what, const struct forward *f, double *x, int64_t n,
                         const float *before, const float *after)
{
    const double step = 1e-5;
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double at = x[i];
        x[i] = at + step;
        const double above = f->loss(f->inputs);
        x[i] = at - step;
        const double slope = (above - f->loss(f->inputs)) / (2 * step);
        const double got = (double)after[i] - (before ? (double)before[i] : 0);
        x[i] = at;
        worst = fmax(worst, isfinite(got) ? fabs(got - slope) : INFINITY);
        largest = fmax(largest, fabs(slope));
    }
    if (worst > 5e-6 * largest + 2e-6)
        fail_msg("%s: a gradient is %g off, of gradients up to %g", what, worst, largest);
}

static inline double weighted(const float *weights, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)weights[i] * y[i];
    return sum;
}

/* ---- any number of workers ---- */

/* A copy of arguments with outputs of its own. */
static inline void *own_outputs(const struct op *op, const void *args)
{
    struct op_output outputs[OP_OUTPUTS_MAX];
    char *own = arena_alloc(arena, op->args_size, 64);
    assert_non_null(own);
    memcpy(own, args, op->args_size);
    for (int i = 0; i < op_outputs(op, args, true, outputs); i++) {
        void **at = (void **)(own + outputs[i].offset), *copy;
        copy = arena_alloc(arena, outputs[i].bytes, 64);
        assert_non_null(copy);
        memcpy(copy, *at, outputs[i].bytes);
        *at = copy;
    }
    return own;
}

static inline void run_variant(const struct op_variant *v, struct pool *pool, const void *args)
{
    size_t bytes = v->workspace ? v->workspace(args, pool_size(pool)) : 0;
    const struct op_context context = {.pool = pool,
                                       .workspace = arena_alloc(arena, bytes + 1, 256)};
    assert_non_null(context.workspace);
    v->run(&context, args);
}

static inline void compare_workers(const struct op *op, const struct op_variant *v,
                                   const void *args)
{
    struct op_output outputs[OP_OUTPUTS_MAX];
    const int counts[] = {1, 2, 3};
    char *first = NULL;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct pool *pool;
        char *own = own_outputs(op, args);
        assert_int_equal(pool_create(counts[c], &pool), SOL_OK);
        run_variant(v, pool, own);
        pool_destroy(pool);
        if (!first) first = own;
        for (int i = 0; i < op_outputs(op, args, true, outputs); i++)
            if (memcmp(*(void **)(own + outputs[i].offset), *(void **)(first + outputs[i].offset),
                       outputs[i].bytes) != 0)
                fail_msg("%s: output %d differs with %d workers", v->name, i, counts[c]);
    }
}

/* Each variant for the CPU of each op on one worker against the same on several, bit for bit. */
static inline void compare_all_workers(const struct op *const *ops, size_t n_ops)
{
    const struct op_device device = {.cpu_features = cpu_info()->features, .workers = 3};
    char why[OP_REASON_MAX];
    int compared = 0;
    for (size_t o = 0; o < n_ops; o++)
        for (int index = 0;; index++) {
            struct case_maker maker = {
                .arena = arena, .rng = &rng, .kind = CASE_RANDOM, .index = index};
            void *args = arena_alloc(arena, ops[o]->args_size, 64);
            assert_non_null(args);
            if (!case_make(ops[o], &maker, args)) break;
            for (int v = 0; v < ops[o]->n_variants; v++)
                if (ops[o]->variants[v]->target == TARGET_CPU &&
                    op_variant_fits(ops[o]->variants[v], &device, why)) {
                    compare_workers(ops[o], ops[o]->variants[v], args);
                    compared++;
                }
        }
    print_message("%d runs compared\n", compared);
    assert_true(compared > 0);
}

#endif
