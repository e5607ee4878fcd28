/* Choosing with a tuning record: a made-up op with two variants and choices, entries in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/plan.h"

/* ---- an op that notes what ran ---- */

struct toy_args {
    int64_t m;
    int *ran; /* 10 x variant + choice */
};

static void toy_problem(const void *args, struct op_problem *out)
{
    *out = (struct op_problem){.rows = ((const struct toy_args *)args)->m, .n = 7};
}

static void run_plain(const struct op_context *context, const void *args)
{
    *((const struct toy_args *)args)->ran = context->choice;
}

static void run_tiled(const struct op_context *context, const void *args)
{
    *((const struct toy_args *)args)->ran = 10 + context->choice;
}

static void run_reference(const struct op_context *context, const void *args)
{
    (void)context;
    *((const struct toy_args *)args)->ran = -1;
}

static bool suits_few(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    snprintf(why, OP_REASON_MAX, "more than 4 rows");
    return ((const struct toy_args *)args)->m <= 4;
}

static const char *const tile_names[] = {"small", "wide", "even"};

static bool tile_serves(const void *args, const struct op_device *device, int choice)
{
    (void)device;
    return choice < 2 || ((const struct toy_args *)args)->m % 2 == 0;
}

static int usual_tile(const void *args, const struct op_device *device)
{
    (void)device;
    return ((const struct toy_args *)args)->m > 16;
}

static const struct op_choices tiles = {tile_names, 3, tile_serves, usual_tile};
static const struct op_variant plain = {.name = "toy_plain", .suits = suits_few, .run = run_plain};
static const struct op_variant tiled = {
    .name = "toy_tiled", .numerics = NUMERICS_BF16, .choices = &tiles, .run = run_tiled};
static const struct op_variant *const toy_variants[] = {&plain, &tiled};
static const struct op op_toy = {.name = "toy",
                                 .args_size = sizeof(struct toy_args),
                                 .problem = toy_problem,
                                 .reference = run_reference,
                                 .variants = toy_variants,
                                 .n_variants = 2};

static int what_runs(const struct chooser *chooser, int64_t m)
{
    struct plan *plan;
    int ran = -2;
    assert_int_equal(plan_create(chooser, &plan), SOL_OK);
    plan_call(plan, &op_toy, &(struct toy_args){m, &ran});
    assert_int_equal(plan_finish(plan), SOL_OK);
    assert_int_equal(plan_run(plan, &(struct op_context){0}, false, NULL), SOL_OK);
    const struct plan_step *step = plan_step_at(plan, 0);
    if (ran >= 10) assert_string_equal(step->choice, tile_names[step->choice_index]);
    plan_destroy(plan);
    return ran;
}

static struct tuning_entry entry_of(int64_t rows, const char *variant, const char *choice)
{
    struct tuning_entry e = {.op = &op_toy,
                             .problem = {.rows = rows, .n = 7},
                             .loosest = NUMERICS_I8,
                             .usual = "toy_tiled",
                             .usual_choice = "small",
                             .ns = 100,
                             .usual_ns = 125};
    tuning_range(rows, &e.rows_from, &e.rows_to);
    snprintf(e.variant, sizeof e.variant, "%s", variant);
    snprintf(e.choice, sizeof e.choice, "%s", choice);
    return e;
}

static void add(struct tuning *tuning, int64_t rows, const char *variant, const char *choice)
{
    struct tuning_entry e = entry_of(rows, variant, choice);
    assert_int_equal(tuning_add(tuning, &e), SOL_OK);
}

/* ---- tests ---- */

static void rules_choose_where_nothing_was_measured(void **state)
{
    (void)state;
    struct chooser chooser;
    chooser_init(&chooser, 1);
    assert_int_equal(what_runs(&chooser, 4), 0);   /* suits */
    assert_int_equal(what_runs(&chooser, 5), 10);  /* does not */
    assert_int_equal(what_runs(&chooser, 17), 11); /* the rule's tile */
    chooser.loosest = NUMERICS_EXACT;
    assert_int_equal(what_runs(&chooser, 17), 0); /* runs, though it does not suit */
}

static void records_decide_within_their_rows(void **state)
{
    (void)state;
    struct chooser chooser;
    struct tuning tuning = {0};
    chooser_init(&chooser, 1);
    chooser.tuning = &tuning;
    add(&tuning, 8, "toy_plain", "");
    add(&tuning, 16, "toy_tiled", "wide");
    add(&tuning, 4, "toy_tiled", "even");
    assert_int_equal(what_runs(&chooser, 2), 0);   /* below 3..4 */
    assert_int_equal(what_runs(&chooser, 4), 12);  /* measured */
    assert_int_equal(what_runs(&chooser, 3), 10);  /* that choice does not serve odd rows */
    assert_int_equal(what_runs(&chooser, 5), 0);   /* 5..8 */
    assert_int_equal(what_runs(&chooser, 9), 11);  /* 9..16 */
    assert_int_equal(what_runs(&chooser, 17), 11); /* the rule again */
    add(&tuning, 8, "toy_tiled", "wide");          /* replaces */
    assert_int_equal(tuning.count, 3);
    assert_int_equal(what_runs(&chooser, 5), 11);
    chooser.loosest = NUMERICS_EXACT; /* other kernels were allowed then */
    assert_int_equal(what_runs(&chooser, 5), 0);
    chooser.loosest = NUMERICS_I8_ROW; /* what more is allowed the op has not */
    assert_int_equal(what_runs(&chooser, 5), 11);
    tuning_clear(&tuning);
}

static void records_of_other_programs_are_harmless(void **state)
{
    (void)state;
    struct chooser chooser;
    struct tuning tuning = {0};
    chooser_init(&chooser, 1);
    chooser.tuning = &tuning;
    add(&tuning, 8, "toy_gone", "");
    add(&tuning, 16, "toy_tiled", "gone");
    assert_int_equal(what_runs(&chooser, 8), 10);
    assert_int_equal(what_runs(&chooser, 16), 10);
    struct tuning_entry other = entry_of(32, "toy_plain", "");
    other.problem.n = 8;
    assert_int_equal(tuning_add(&tuning, &other), SOL_OK);
    assert_int_equal(what_runs(&chooser, 32), 11);
    tuning_clear(&tuning);
}

static void forces_win(void **state)
{
    (void)state;
    struct chooser chooser;
    struct tuning tuning = {0};
    chooser_init(&chooser, 1);
    chooser.tuning = &tuning;
    add(&tuning, 8, "toy_tiled", "wide");
    chooser.forces[0].op = &op_toy;
    chooser.forces[0].variant = "toy_plain";
    chooser.forces[0].choice = -1;
    chooser.n_forces = 1;
    assert_int_equal(what_runs(&chooser, 8), 0);
    chooser.forces[0].variant = "toy_tiled"; /* without a choice: the record's */
    assert_int_equal(what_runs(&chooser, 8), 11);
    chooser.forces[0].choice = 2;
    assert_int_equal(what_runs(&chooser, 8), 12);
    assert_int_equal(what_runs(&chooser, 7), 11); /* serves even ones: the record again */
    tuning_clear(&tuning);
}

static const char *explained(const struct chooser *chooser, int v, int chosen, int64_t m)
{
    static char why[OP_REASON_MAX];
    int ran;
    chooser_explain(chooser, &op_toy, v, chosen, &(struct toy_args){m, &ran}, why);
    return why;
}

static void reasons_name_the_record(void **state)
{
    (void)state;
    struct chooser chooser;
    struct tuning tuning = {0};
    chooser_init(&chooser, 1);
    assert_string_equal(explained(&chooser, 0, 1, 8), "more than 4 rows");
    chooser.tuning = &tuning;
    add(&tuning, 8, "toy_plain", "");
    assert_string_equal(explained(&chooser, 0, 0, 8),
                        "chosen: tuning measured it 25.0 % faster than toy_tiled:small");
    assert_string_equal(explained(&chooser, 1, 0, 8), "tuning measured another one to be faster");
    add(&tuning, 8, "toy_tiled", "small");
    assert_string_equal(explained(&chooser, 1, 1, 8),
                        "chosen: the rule's, and tuning found nothing faster");
    tuning_clear(&tuning);
}

static void ranges_follow_tiles(void **state)
{
    (void)state;
    static const int64_t expected[][3] = {{1, 1, 1},    {2, 2, 2},       {8, 5, 8},
                                          {64, 33, 64}, {128, 112, 128}, {2048, 1792, 2048}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        int64_t from, to;
        tuning_range(expected[i][0], &from, &to);
        assert_int_equal(from, expected[i][1]);
        assert_int_equal(to, expected[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_choose_where_nothing_was_measured),
        cmocka_unit_test(records_decide_within_their_rows),
        cmocka_unit_test(records_of_other_programs_are_harmless),
        cmocka_unit_test(forces_win),
        cmocka_unit_test(reasons_name_the_record),
        cmocka_unit_test(ranges_follow_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
