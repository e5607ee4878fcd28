/* How CPU variants share their work among threads: results have the same bits however many threads
 * there are, whether products run together or apart, and whoever does the pieces of a context. That
 * they are right is op_table's. Workspaces are as large as was asked for, for AddressSanitizer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/plan.h"

enum { POOLS = 4 };
static const int pool_sizes[POOLS] = {1, 2, 3, 7};
static struct pool *pools[POOLS];
static struct arena *arena;
static struct rng rng;

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < POOLS; i++)
        if (pool_create(pool_sizes[i], &pools[i]) != SOL_OK) return -1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < POOLS; i++) pool_destroy(pools[i]);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    rng_seed(&rng, 11);
    return arena_create(1 << 20, &arena) == SOL_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    arena_destroy(arena);
    return 0;
}

static bool is_here(const struct op *op, int v, const void *args)
{
    struct chooser chooser;
    char why[OP_REASON_MAX];
    chooser_init(&chooser, 1);
    return chooser_can_run(&chooser, op, v, args, why);
}

static void run(const struct op_variant *variant, struct pool *pool, const void *args,
                const void *const *more, int n_more)
{
    const size_t bytes = variant->workspace(args, pool_size(pool));
    void *workspace = NULL;
    assert_int_equal(posix_memalign(&workspace, 256, bytes ? bytes : 1), 0);
    memset(workspace, 0xff, bytes); /* NaN */
    const struct op_context context = {
        .pool = pool, .workspace = workspace, .more = more, .n_more = n_more};
    variant->run(&context, args);
    free(workspace);
}

static void assert_same(const struct matrix *x, const struct matrix *want, const char *name,
                        int threads)
{
    if (memcmp(x->data, want->data, matrix_bytes(x)) != 0)
        fail_msg("%s: other bits with %d threads", name, threads);
}

/* ---- products of the same rows ---- */

enum { PRODUCTS = 3 };

struct products {
    struct gemm_args of[PRODUCTS];
    struct matrix apart[PRODUCTS];
};

static struct gemm_args product(struct case_maker *c, const struct gemm_args *first,
                                enum dtype dtype, int64_t n)
{
    struct gemm_args a = *first;
    a.n = n;
    a.w = case_tensor(c, dtype, first->w.groups, n, a.k, 0.1f);
    a.bias = case_vector(c, first->w.groups * n, 0.1f);
    a.c = case_output(c, a.m, n);
    return a;
}

/* Matrices that end within a panel, within a pair of panels, and at its end. */
static void make_products(struct case_maker *c, enum dtype dtype, int64_t tokens, int64_t experts,
                          struct products *p)
{
    static const int64_t widths[PRODUCTS] = {150, 37, 64};
    const int64_t top_k = experts ? 2 : 1;
    struct gemm_args first = {.m = tokens * top_k, .k = 96, .w.groups = experts ? experts : 1};
    first.a = case_rows(c, tokens, first.k, 1.0f);
    if (experts) {
        const struct routing routing = case_own_routing(c, tokens, experts, top_k);
        first.a_rows = routing.token_of_row;
        first.group_offsets = routing.group_offsets;
    }
    for (int i = 0; i < PRODUCTS; i++) {
        p->of[i] = product(c, &first, dtype, widths[i]);
        p->apart[i] = case_output(c, first.m, widths[i]);
    }
}

static void compare_products(const struct op_variant *variant, struct products *p)
{
    const void *more[PRODUCTS - 1];
    for (int i = 0; i < PRODUCTS; i++) {
        struct gemm_args apart = p->of[i];
        apart.c = p->apart[i];
        run(variant, pools[0], &apart, NULL, 0);
    }
    for (int i = 1; i < PRODUCTS; i++) {
        assert_true(variant->joins(&p->of[0], &p->of[i]));
        more[i - 1] = &p->of[i];
    }
    for (int t = 0; t < POOLS; t++) {
        for (int i = 0; i < PRODUCTS; i++) memset(p->of[i].c.data, 0xff, matrix_bytes(&p->of[i].c));
        run(variant, pools[t], &p->of[0], more, PRODUCTS - 1);
        for (int i = 0; i < PRODUCTS; i++)
            assert_same(&p->of[i].c, &p->apart[i], variant->name, pool_sizes[t]);
    }
}

static void products_run_together(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_MXFP4, DTYPE_Q8_0, DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    static const int64_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 40, 210};
    struct case_maker c = {.arena = arena, .rng = &rng, .kind = CASE_RANDOM};
    int ran = 0;
    for (int d = 0; d < 5; d++)
        for (int t = 0; t < 9; t++)
            for (int64_t experts = 0; experts <= 5; experts += 5) {
                struct products p;
                make_products(&c, dtypes[d], tokens[t], experts, &p);
                for (int v = 0; v < op_gemm.n_variants; v++) {
                    const struct op_variant *variant = op_gemm.variants[v];
                    if (!variant->joins || !is_here(&op_gemm, v, &p.of[0])) continue;
                    compare_products(variant, &p);
                    ran++;
                }
            }
    print_message("%d of variants and problems\n", ran);
    assert_true(ran > 0);
}

/* The rule of joining: steps of a plan, and how many run as one. */
static void plans_join_what_reads_the_same(void **state)
{
    (void)state;
    static const int together[] = {3, 0, 0, 4, 0, 0, 0, 2, 0, 1};
    enum { STEPS = sizeof together / sizeof *together };
    struct case_maker c = {.arena = arena, .rng = &rng, .kind = CASE_RANDOM};
    struct products p, other;
    struct chooser chooser;
    struct plan *plan;
    make_products(&c, DTYPE_Q8_0, 2, 0, &p);
    make_products(&c, DTYPE_Q8_0, 2, 0, &other);
    chooser_init(&chooser, 1);
    const int v = chooser_choose(&chooser, &op_gemm, &p.of[0]);
    if (v >= op_gemm.n_variants || !op_gemm.variants[v]->joins) skip();
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    for (int i = 0; i < PRODUCTS; i++) plan_call(plan, &op_gemm, &p.of[i]);
    plan_layer(plan, 1); /* not with another layer's, and OP_JOINED_MAX at most */
    for (int i = 0; i < 2 * PRODUCTS; i++) {
        struct gemm_args a = p.of[i % PRODUCTS];
        a.c = case_output(&c, a.m, a.n);
        plan_call(plan, &op_gemm, &a);
    }
    plan_call(plan, &op_gemm, &other.of[0]); /* other rows */
    assert_int_equal(plan_finish(plan), SOL_OK);
    assert_int_equal(plan_step_count(plan), STEPS);
    for (int i = 0; i < STEPS; i++) assert_int_equal(plan_step_at(plan, i)->together, together[i]);
    assert_int_equal(plan_run(plan, &(struct op_context){.pool = pools[0]}, true, NULL), SOL_OK);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(plan_step_at(plan, i)->runs, 1);
        assert_true((plan_step_at(plan, i)->ns > 0) == (together[i] > 0));
    }
    plan_destroy(plan);
}

static const struct products *composed;

/* The first product, scratch that then could lie in its workspace, the second; the third twice. */
static enum sol_status compose_products(struct plan *plan, const void *args)
{
    (void)args;
    plan_call(plan, &op_gemm, &composed->of[0]);
    plan_scratch(plan, 3, 100);
    plan_call(plan, &op_gemm, &composed->of[1]);
    plan_call(plan, &op_gemm, &composed->of[2]);
    plan_call(plan, &op_gemm, &composed->of[2]);
    return SOL_OK;
}

/* Each pair has to be able to run together, in one workspace. */
static void plans_keep_others_apart(void **state)
{
    (void)state;
    static const int together[] = {1, 2, 0, 1};
    struct case_maker c = {.arena = arena, .rng = &rng, .kind = CASE_RANDOM};
    struct products p;
    struct chooser chooser;
    struct plan *plan;
    struct op op = op_attn_in; /* any composite */
    op.n_variants = 0;
    op.compose = compose_products;
    make_products(&c, DTYPE_Q8_0, 2, 0, &p);
    composed = &p;
    chooser_init(&chooser, 1);
    const int v = chooser_choose(&chooser, &op_gemm, &p.of[0]);
    if (v >= op_gemm.n_variants || !op_gemm.variants[v]->joins) skip();
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_call(plan, &op, &(struct attn_in_args){.m = 1});
    assert_int_equal(plan_finish(plan), SOL_OK);
    assert_int_equal(plan_step_count(plan), 4);
    for (int i = 0; i < 4; i++) assert_int_equal(plan_step_at(plan, i)->together, together[i]);
    plan_destroy(plan);
}

/* ---- attention ---- */

/* One row of a batch by itself: the same bits, so pieces begin where they do among others. */
static void compare_row(const struct op_variant *variant, const struct attention_args *all,
                        int64_t row, struct matrix *alone)
{
    const int64_t width = all->n_heads * all->kv.head_dim;
    struct batch batch = {.n_tokens = 1,
                          .position = all->batch->position + row,
                          .sequence = all->batch->sequence + row};
    struct attention_args a = *all;
    a.m = 1;
    a.batch = &batch;
    a.q = matrix_f32(matrix_floats(&all->q) + row * width, 1, width);
    a.out = *alone;
    run(variant, pools[2], &a, NULL, 0);
    if (memcmp(alone->data, matrix_floats(&all->out) + row * width,
               (size_t)width * sizeof(float)) != 0)
        fail_msg("%s: row %d of %d at position %d has other bits alone", variant->name, (int)row,
                 (int)all->m, (int)batch.position[0]);
}

static void compare_attention(struct case_maker *c, const struct op_variant *variant,
                              struct attention_args *a)
{
    const int64_t width = a->n_heads * a->kv.head_dim;
    struct matrix first = case_output(c, a->m, width), alone = case_output(c, 1, width);
    for (int t = 0; t < POOLS; t++) {
        memset(a->out.data, 0xff, matrix_bytes(&a->out));
        run(variant, pools[t], a, NULL, 0);
        if (t == 0) memcpy(first.data, a->out.data, matrix_bytes(&first));
        assert_same(&a->out, &first, variant->name, pool_sizes[t]);
    }
    for (int64_t i = 0; i < matrix_bytes(&first) / 4; i++)
        assert_true(isfinite(matrix_floats(&first)[i]));
    for (int64_t i = 0; i < a->m; i++) compare_row(variant, a, i, &alone);
}

static void long_contexts_have_the_same_bits(void **state)
{
    (void)state;
    /* One row; prompts that end in other pieces than they begin in; sequences; more rows than have
     * slots; a window of several pieces, and one that lies across a cut. */
    static const struct {
        int64_t rows, sequences, depth, window;
    } cases[] = {{1, 1, 5000, 0},     {1, 1, 2047, 0},    {1, 1, 2048, 0},
                 {20, 1, 2040, 0},    {3, 3, 4100, 0},    {40, 2, 2040, 0},
                 {60, 1, 4090, 2100}, {2, 2, 7000, 3000}, {18, 1, 2040, 128}};
    struct case_maker c = {.arena = arena, .rng = &rng, .kind = CASE_TIMED};
    int ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct op_problem problem = {.rows = cases[i].rows,
                                           .dtype = case_kv_dtype((int)i),
                                           .n = 6,
                                           .k = 3,
                                           .head_dim = 64,
                                           .window = cases[i].window};
        struct attention_args a;
        c.sequences = cases[i].sequences;
        c.depth = cases[i].depth;
        op_attention.make_problem(&c, &problem, &a);
        for (int v = 0; v < op_attention.n_variants; v++) {
            const struct op_variant *variant = op_attention.variants[v];
            if (variant->target != TARGET_CPU || !is_here(&op_attention, v, &a)) continue;
            compare_attention(&c, variant, &a);
            ran++;
        }
    }
    assert_true(ran > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(products_run_together, begin, end),
        cmocka_unit_test_setup_teardown(plans_join_what_reads_the_same, begin, end),
        cmocka_unit_test_setup_teardown(plans_keep_others_apart, begin, end),
        cmocka_unit_test_setup_teardown(long_contexts_have_the_same_bits, begin, end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
