/* Every variant of every op that this machine can run, against its reference; and the verifier
 * itself, against planted faults. */
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
#include "base/bytes_hash.h"
#include "base/cpu.h"
#include "check/verify.h"
#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/problem.h"
#include "support/effort.h"

static struct pool *pool;
static int rounds;        /* how often each case is drawn anew */
static double most_flops; /* of a case; 0: any */

/* What is large takes most of the time where a processor is emulated or watched, and has nothing
 * that sizes around tiles, blocks and jobs have not. */
enum { REDUCED_MFLOPS = 10, BRIEF_MFLOPS = 2 };

static int setup(void **state)
{
    (void)state;
    rounds = (int)effort("rounds of every case", 2, 1);
    const int most = getenv("SOL_TEST_BRIEF") ? BRIEF_MFLOPS : REDUCED_MFLOPS;
    most_flops = rounds < 2 ? 1e6 * most : 0;
    if (most_flops > 0) print_message("reduced: cases of up to %d MFLOP\n", most);
    return pool_create(3, &pool) == SOL_OK ? 0 : -1; /* odd, and more than some job counts */
}

static int teardown(void **state)
{
    (void)state;
    pool_destroy(pool);
    return 0;
}

static int check_result(const struct verify_result *r)
{
    const char *verdict = r->failed ? "FAILED" : r->cases ? "ok" : "skipped";
    print_message("%-12s %-28s %-6s %4d cases  worst %.2e of %.0e  %s %s\n", r->op->name,
                  r->variant, op_numerics_name(r->numerics), r->cases, r->worst, r->tolerance,
                  verdict, r->text);
    assert_int_equal(r->failed, 0);
    return r->cases > 0;
}

/* Nothing of it is of a processor but the ops that it is composed of, which have cases of their
 * own. */
static bool is_its_parts(const struct op *op)
{
    if (!op->compose) return false;
    for (int v = 0; v < op->n_variants; v++)
        if (op->variants[v]->target == TARGET_CPU) return false;
    return true;
}

static void every_variant_matches_its_reference(void **state)
{
    (void)state;
    enum { MOST = 64 };
    struct chooser chooser;
    struct verify_result results[MOST];
    /* Brief where the same variants run in full beside it, on a processor that has more. */
    struct verify_options options = {.seed = VERIFY_SEED,
                                     .rounds = rounds,
                                     .brief = getenv("SOL_TEST_BRIEF") != NULL,
                                     .most_flops = most_flops};
    const bool brief = options.brief;
    if (brief) print_message("reduced: one case of each kind (SOL_TEST_BRIEF)\n");
    chooser_init(&chooser, pool_size(pool));
    for (int i = 0; i < op_table_count; i++) {
        int variants[MOST], count = op_variant_count(op_table[i]), ran = 0;
        const bool composed = is_its_parts(op_table[i]);
        if (composed && brief) {
            print_message("reduced: %s is only tried where every processor's kernels are\n",
                          op_table[i]->name);
            continue;
        }
        options.brief = brief || (composed && rounds < 2);
        assert_in_range(count, 1, MOST);
        for (int v = 0; v < count; v++) variants[v] = v;
        assert_int_equal(
            verify_variants(op_table[i], variants, count, &chooser, pool, &options, results),
            SOL_OK);
        for (int v = 0; v < count; v++) ran += check_result(&results[v]);
        assert_true(ran > 0);
    }
}

static void names_are_unique(void **state)
{
    (void)state;
    for (int i = 0; i < op_table_count; i++)
        for (int v = 0; v < op_table[i]->n_variants; v++)
            for (int j = 0; j <= i; j++)
                for (int w = 0; w < (j == i ? v : op_table[j]->n_variants); w++)
                    assert_string_not_equal(op_variant_name(op_table[i], v),
                                            op_variant_name(op_table[j], w));
}

/* ---- planted faults: copies of `add` with one thing wrong ---- */

static void add_right(const struct op_context *context, const void *args)
{
    op_add.reference(context, args);
}

static void add_forgets_the_last(const struct op_context *context, const void *args)
{
    struct add_args a = *(const struct add_args *)args;
    float *x = matrix_floats(&a.x), last = x[a.m * a.n - 1];
    op_add.reference(context, &a);
    x[a.m * a.n - 1] = last;
}

static void add_writes_beyond(const struct op_context *context, const void *args)
{
    const struct add_args *a = args;
    op_add.reference(context, a);
    matrix_floats(&a->x)[a->m * a->n] = 1;
}

static void add_hides_nan(const struct op_context *context, const void *args)
{
    const struct add_args *a = args;
    op_add.reference(context, a);
    float *x = matrix_floats(&a->x);
    for (int64_t i = 0; i < a->m * a->n; i++)
        if (!(x[i] - x[i] == 0)) x[i] = 0;
}

static int failures_of_op(struct op op, void (*run)(const struct op_context *, const void *),
                          bool brief)
{
    struct op_variant variant = {
        .name = "planted", .run = run, .workspace = op.reference_workspace};
    const struct op_variant *list[] = {&variant};
    op.variants = list;
    op.n_variants = 1;
    struct chooser chooser;
    chooser_init(&chooser, pool_size(pool));
    struct verify_result result;
    struct verify_options options = {
        .seed = 7, .rounds = 1, .brief = brief, .most_flops = most_flops};
    assert_int_equal(verify_variants(&op, &(int){0}, 1, &chooser, pool, &options, &result), SOL_OK);
    return result.failed;
}

static int failures_of(void (*run)(const struct op_context *, const void *))
{
    return failures_of_op(op_add, run, false);
}

/* ---- the same with grouped_gemm, whose results are of many sizes and types ---- */

static void grouped_right(const struct op_context *context, const void *args)
{
    op_grouped_gemm.reference(context, args);
}

/* fp16 and bf16 cut off instead of rounded: towards zero. */
static void grouped_cuts_off(const struct op_context *context, const void *args)
{
    struct grouped_gemm_args wide = *(const struct grouped_gemm_args *)args;
    const struct grouped_gemm_args *a = args;
    op_grouped_gemm.reference(context, args);
    if (a->c_type != DTYPE_BF16) return;
    for (int64_t i = 0; i < a->n_groups; i++) {
        const struct gemm_group *g = &a->groups[i];
        struct gemm_group one = *g;
        float *c = malloc((size_t)(g->m * g->n) * 4 + 1);
        uint16_t *out = (uint16_t *)(void *)((char *)a->c + g->c_at);
        one.c_at = 0;
        wide.groups = &one;
        wide.n_groups = 1;
        wide.c = c;
        wide.c_type = DTYPE_F32;
        op_grouped_gemm.reference(context, &wide);
        for (int64_t j = 0; j < g->m * g->n; j++) {
            uint32_t bits;
            memcpy(&bits, &c[j], sizeof bits);
            if (isfinite(c[j])) out[j] = (uint16_t)(bits >> 16);
        }
        free(c);
    }
}

static void grouped_writes_between(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    op_grouped_gemm.reference(context, args);
    if (a->n_groups > 1 && a->groups[1].c_at >= 32) ((char *)a->c)[a->groups[1].c_at - 1] ^= 1;
}

/* A NaN of one row of B reaches the column beside its own. */
static void grouped_spreads_nan(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    op_grouped_gemm.reference(context, args);
    if (a->c_type != DTYPE_F32 || a->n_groups < 1) return;
    float *c = (float *)(void *)((char *)a->c + a->groups[0].c_at);
    for (int64_t j = a->groups[0].n - 1; j > 0; j--)
        if (isnan(c[j - 1])) c[j] = NAN;
}

static void verify_finds_faults_of_groups(void **state)
{
    (void)state;
    /* Some faults show in a few cases. That the reference passes all is tested above. */
    assert_int_equal(failures_of_op(op_grouped_gemm, grouped_right, true), 0);
    assert_true(failures_of_op(op_grouped_gemm, grouped_writes_between, true) > 0);
    /* The verifier is the same on every processor: release tests have the others. */
    if (rounds < 2 || getenv("SOL_TEST_BRIEF")) {
        print_message("reduced: two faults of groups are not planted\n");
        return;
    }
    assert_true(failures_of_op(op_grouped_gemm, grouped_cuts_off, false) > 0);
    assert_true(failures_of_op(op_grouped_gemm, grouped_spreads_nan, false) > 0);
}

static void verify_finds_planted_faults(void **state)
{
    (void)state;
    assert_int_equal(failures_of(add_right), 0);
    assert_true(failures_of(add_forgets_the_last) > 0);
    assert_true(failures_of(add_writes_beyond) > 0);
    assert_true(failures_of(add_hides_nan) > 0);
}

static void force_names_what_is_known(void **state)
{
    (void)state;
    struct chooser chooser;
    chooser_init(&chooser, 1);
    assert_int_equal(chooser_force(&chooser, "gemm=reference"), SOL_OK);
    assert_int_equal(chooser_force(&chooser, "moe_up=composed"), SOL_OK);
    assert_int_equal(chooser_force(&chooser, "gemm"), SOL_E_ARGUMENT);
    assert_int_equal(chooser_force(&chooser, "gem=reference"), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "rmsnorm"));
    assert_int_equal(chooser_force(&chooser, "gemm=fastest"), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "reference"));
}

/* What a delay is planted in lasts longer, also where a composite is made of other ops. */
static void slow_reaches_the_parts(void **state)
{
    (void)state;
    struct chooser chooser;
    struct arena *arena;
    struct rng rng;
    struct plan *plan;
    struct moe_args args;
    rng_seed(&rng, 11);
    assert_int_equal(arena_create(1 << 20, &arena), SOL_OK);
    struct case_maker maker = {.arena = arena, .rng = &rng};
    assert_true(case_make(&op_moe, &maker, &args));
    chooser_init(&chooser, 1);
    assert_int_equal(chooser_slow(&chooser, "moe=50"), SOL_OK);
    assert_int_equal(chooser_slow(&chooser, "combine=20"), SOL_OK);
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_call(plan, &op_moe, &args);
    plan_call(plan, &op_add, &(struct add_args){.m = 1, .n = 1});
    assert_int_equal(plan_finish(plan), SOL_OK);
    int last = plan_step_count(plan) - 1;
    assert_true(last > 1); /* the parts, and add behind them */
    for (int i = 0; i < last; i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        assert_true(step->slow == (step->op == &op_combine ? 0.2 : 0.5));
    }
    assert_true(plan_step_at(plan, last)->slow == 0);
    plan_destroy(plan);
    arena_destroy(arena);
}

/* Every op can be made with sizes of one's own, and says them back; a GPU's copy of it is the
 * mover's business. */
static void problems_are_made_as_asked(void **state)
{
    (void)state;
    for (int i = 0; i < op_table_count; i++) {
        const struct op *op = op_table[i];
        struct op_problem p = op->usual, made;
        struct arena *arena;
        struct rng rng;
        rng_seed(&rng, 3);
        assert_int_equal(arena_create(1 << 20, &arena), SOL_OK);
        struct case_maker c = {
            .arena = arena, .rng = &rng, .kind = CASE_TIMED, .sequences = 1, .depth = 40};
        p.rows = 2;
        if (p.n > 64) p.n = 64;
        if (p.k > 64) p.k = 64;
        void *args = arena_alloc(arena, op->args_size, 64);
        assert_non_null(args);
        op->make_problem(&c, &p, args);
        op->problem(args, &made);
        /* what works on one number, or a line of them, has one row */
        assert_int_equal(made.rows, op == &op_clip || op == &op_weighted_sum ? 1 : 2);
        if (!op_problem_same(&p, &made)) {
            char asked[128], got[128];
            op_problem_describe(&p, asked, sizeof asked);
            op_problem_describe(&made, got, sizeof got);
            fail_msg("%s: %s instead of %s", op->name, got, asked);
        }
        struct op_cost cost = op->cost(args);
        assert_true(cost.bytes > 0);
        arena_destroy(arena);
    }
}

/* Whether a variant, or a reference, says that it takes matrix number `i` alone in bf16. */
static bool takes_bf16(const struct op *op, int v, int i, const void *args)
{
    unsigned present = 0;
    const unsigned *typed = v < op->n_variants ? op->variants[v]->typed : NULL;
    for (int k = 0; op->matrices[k].access; k++)
        if (op_matrix_of(&op->matrices[k], args)->data) present |= 1u << k;
    for (; typed && *typed; typed++)
        if ((*typed & present) == 1u << i) return true;
    return false;
}

/* Nothing takes a matrix for what it is not: variants are asked only about float32 without gaps,
 * and bf16 where they say so. What a composition calls is asked by itself. */
static void other_activations_are_refused(void **state)
{
    (void)state;
    struct arena *arena;
    struct rng rng;
    struct chooser chooser;
    char why[OP_REASON_MAX];
    chooser_init(&chooser, 1);
    rng_seed(&rng, 12);
    assert_int_equal(arena_create(1 << 20, &arena), SOL_OK);
    for (int i = 0; i < op_table_count; i++) {
        const struct op *op = op_table[i];
        char *args = arena_alloc(arena, op->args_size, 64);
        assert_true(args && (op->matrices[0].access || op->more_outputs));
        assert_true(case_make(op, &(struct case_maker){.arena = arena, .rng = &rng}, args));
        assert_true(chooser_can_run(&chooser, op, op->n_variants, args, why));
        for (int j = 0; op->matrices[j / 2].access; j++) {
            struct matrix *m = op_matrix_of(&op->matrices[j / 2], args);
            const struct matrix kept = *m;
            assert_true(matrix_is_plain(m));
            if (!m->data) continue; /* a call without it */
            if (j % 2)
                m->dtype = DTYPE_BF16;
            else
                m->stride++;
            for (int v = 0; v < op_variant_count(op); v++) {
                const bool composed = op->compose && v == op->n_variants;
                if (composed || (j % 2 && takes_bf16(op, v, j / 2, args))) continue;
                assert_false(chooser_can_run(&chooser, op, v, args, why));
            }
            *m = kept;
        }
    }
    arena_destroy(arena);
}

static void check_costs(const struct op *op, struct arena *arena, struct rng *rng, int index)
{
    struct chooser chooser;
    struct plan *plan;
    char force[64];
    void *args = arena_alloc(arena, op->args_size, 64);
    assert_non_null(args);
    struct case_maker maker = {.arena = arena, .rng = rng, .index = index};
    if (!case_make(op, &maker, args)) return;
    if (op == &op_muon) /* and its matrices for each iteration */
        ((struct muon_args *)args)->steps = 1;
    struct op_cost whole = op->cost(args), parts;
    chooser_init(&chooser, 1);
    snprintf(force, sizeof force, "%s=%s", op->name, op_variant_name(op, op->n_variants));
    assert_int_equal(chooser_force(&chooser, force), SOL_OK);
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_call(plan, op, args);
    assert_int_equal(plan_finish(plan), SOL_OK);
    parts = plan_cost(plan);
    plan_destroy(plan);
    /* The same arithmetic; what passes between the parts need not touch memory. Behind sums of a
     * few numbers it may be nearly all that does. */
    struct op_problem problem;
    op->problem(args, &problem);
    const double least = problem.k > 0 && problem.k < 16 ? 0 : 0.2;
    if (fabs(whole.flops - parts.flops) > 1e-9 * parts.flops || whole.bytes >= parts.bytes ||
        whole.bytes < least * parts.bytes)
        fail_msg("%s costs %g flops and %g bytes, its parts %g and %g", op->name, whole.flops,
                 whole.bytes, parts.flops, parts.bytes);
}

static void composites_cost_what_their_parts_do(void **state)
{
    (void)state;
    struct arena *arena;
    struct rng rng;
    assert_int_equal(arena_create(1 << 20, &arena), SOL_OK);
    for (int i = 0; i < op_table_count; i++) {
        assert_non_null(op_table[i]->cost);
        /* Its cases are its own, whatever others draw. */
        rng_seed(&rng, bytes_hash(op_table[i]->name, strlen(op_table[i]->name)));
        for (int index = 0; op_table[i]->compose && index < 5; index++)
            check_costs(op_table[i], arena, &rng, index);
    }
    arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_matches_its_reference),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(composites_cost_what_their_parts_do),
        cmocka_unit_test(other_activations_are_refused),
        cmocka_unit_test(verify_finds_planted_faults),
        cmocka_unit_test(verify_finds_faults_of_groups),
        cmocka_unit_test(force_names_what_is_known),
        cmocka_unit_test(problems_are_made_as_asked),
        cmocka_unit_test(slow_reaches_the_parts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
