/* The history of a training run: what crashes and resumes leave of it, as lines and as figures; and
 * when a benchmark of training does not count. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "bench/store.h"
#include "bench/train.h"
#include "ops/ops.h"
#include "trace/category.h"
#include "train/run_log.h"

#define OK(call) assert_int_equal((call), SOL_OK)

enum { STEPS = 200, TOKENS = 96 };

static struct train_step step_of(int64_t step, int64_t round)
{
    return (struct train_step){.step = step,
                               .loss = 5.0 / (double)(step + 1) + 1e-3 * (double)round,
                               .smooth = 6.0 / (double)(step + 1),
                               .lr = 0.5,
                               .norm = 0.25,
                               .seconds = 0.001 * (double)(step % 7 + 1),
                               .tokens = TOKENS,
                               .epoch = 3};
}

static struct train_evaluation evaluation_of(int64_t step, int64_t round)
{
    return (struct train_evaluation){.step = step,
                                     .nll = 4.0 + 1e-3 * (double)round,
                                     .bpb = step % 2 ? (double)NAN : 2.5,
                                     .targets = 1000};
}

/* A run that dies at random steps and goes on from random ones before them. The other record of it:
 * an array by step, of the round that made each last. */
static void test_crashes(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    for (int trial = 0; trial < 50; trial++) {
        struct train_history h = {.n_steps = 0}, again = {.n_steps = 0};
        int64_t made[STEPS], evaluated[STEPS + 1], at = 0, round = 0;
        for (int i = 0; i <= STEPS; i++) evaluated[i] = -1;
        for (; at < STEPS; round++) {
            int64_t end = rng_range(&rng, at, STEPS);
            if (round > 20) end = STEPS;
            for (int64_t i = at; i <= STEPS; i++)
                if (i > at) evaluated[i] = -1; /* made again */
            for (; at < end; at++) {
                const struct train_step s = step_of(at, round);
                const struct train_evaluation e = evaluation_of(at + 1, round);
                OK(train_history_add_step(&h, &s));
                made[at] = round;
                if (at % 5) continue;
                OK(train_history_add_evaluation(&h, &e));
                evaluated[at + 1] = round;
            }
            if (at < STEPS) at = rng_range(&rng, 0, at);
        }
        assert_int_equal(h.n_steps, STEPS);
        for (int i = 0; i < STEPS; i++) {
            assert_int_equal(h.steps[i].step, i);
            assert_float_equal(h.steps[i].loss, step_of(i, made[i]).loss, 0);
        }
        size_t n = 0;
        for (int i = 0; i <= STEPS; i++) {
            if (evaluated[i] < 0) continue;
            assert_true(n < h.n_evaluations);
            assert_int_equal(h.evaluations[n].step, i);
            assert_float_equal(h.evaluations[n++].nll, evaluation_of(i, evaluated[i]).nll, 0);
        }
        assert_int_equal(h.n_evaluations, n);
        char *text, *same;
        OK(train_history_text(&h, &text));
        OK(train_history_read(&again, text, strlen(text), "made"));
        OK(train_history_text(&again, &same));
        assert_string_equal(text, same);
        free(text);
        free(same);
        train_history_free(&h);
        train_history_free(&again);
    }
}

/* A log in which a crash left what was made again behind it. */
static void test_lines(void **state)
{
    (void)state;
    char text[8192] = "";
    const int64_t order[] = {0, 1, 2, 3, 4, 2, 3};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const struct train_step s = step_of(order[i], (int64_t)i);
        char *line = run_log_step_text(&s);
        strcat(strcat(text, line), "\n");
        free(line);
    }
    struct train_history h = {.n_steps = 0};
    strcat(text, "{\"step\": 4, \"lo"); /* as a kill leaves it */
    OK(train_history_read(&h, text, strlen(text), "made"));
    assert_int_equal(h.n_steps, 4);
    assert_float_equal(h.steps[2].loss, step_of(2, 5).loss, 1e-9);
    assert_int_equal(h.steps[3].tokens, TOKENS);
    train_history_free(&h);
    static const char *const wrong[] = {
        "{\"step\": 4}\n",
        "nothing\n",
        "[1]\n",
        "{\"step\": -1, \"val_loss\": 1, \"val_bpb\": null, \"val_targets\": 1}\n",
        ("{\"step\": 9223372036854775807, \"loss\": 1, \"smooth\": 1, \"lr\": 1, \"norm\": 1, "
         "\"seconds\": 1, \"tokens\": 1, \"epoch\": 1}\n"),
        "{\"step\": 1, \"val_loss\": \"a\", \"val_bpb\": null, \"val_targets\": 1}\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *first, whole[1024];
        const struct train_step s = step_of(0, 0);
        first = run_log_step_text(&s);
        snprintf(whole, sizeof whole, "%s\n%s", first, wrong[i]);
        free(first);
        assert_int_equal(train_history_read(&h, whole, strlen(whole), "LOG"), SOL_E_FORMAT);
        assert_non_null(strstr(sol_last_error(), "LOG:2 is no line of a training run's log"));
        assert_int_equal(h.n_steps, 1);
        train_history_free(&h);
    }
}

static void test_speed(void **state)
{
    (void)state;
    struct train_history h = {.n_steps = 0};
    struct figure ns;
    int64_t tokens;
    OK(train_history_speed(&h, &ns, &tokens));
    assert_int_equal(tokens, 0);
    for (int i = 0; i < 7; i++) {
        const struct train_step s = step_of(i, 0);
        OK(train_history_add_step(&h, &s));
    }
    OK(train_history_speed(&h, &ns, &tokens));
    assert_int_equal(tokens, TOKENS);
    assert_float_equal(ns.value, 4e6, 1e-3); /* of 1 to 7 ms */
    assert_float_equal(train_history_seconds(&h), 0.028, 1e-12);
    train_history_free(&h);
}

/* ---- figures that do not count ---- */

static struct train_op_time op(const char *name, double ns, int64_t calls, int64_t runs)
{
    return (struct train_op_time){
        .op = name, .variant = "reference", .calls = calls, .runs = runs, .ns = ns};
}

static void test_invalid(void **state)
{
    (void)state;
    struct train_recipe recipe = {.flops_per_token = 2e6, .causal_flops_per_token = 1e6};
    struct ceiling ceiling = {.threads = 1};
    char text[TRAIN_REASON];
    struct train_report r = {.recipe = &recipe, .updates = true, .ceiling = &ceiling};
    r.result.steps = 1;
    r.result.tokens = 100;
    r.result.micro = r.result.update = (struct train_kernels){-1, -1};
    const double step = 1e6;
    OK(figure_of_one(&step, 1, &r.result.step_ns));
    r.result.ops.ops[0] = op("matmul", 90, 4, 4);
    r.result.ops.ops[1] = op("transpose", 7, 1, 1);
    r.result.ops.ops[2] = op("quantise", 3, 1, 1);
    r.result.ops.count = 3;
    /* 100 tokens a millisecond are 1e5 a second: 2e11 and 1e11 flops a second */
    ceiling.memory.best = 1;
    ceiling.arithmetic[NUMERICS_EXACT].best = 4e11;
    struct train_speed s = train_report_speed(&r);
    assert_float_equal(s.per_s.value, 1e5, 1e-6);
    assert_float_equal(s.mfu, 0.5, 1e-9);
    assert_float_equal(s.causal_mfu, 0.25, 1e-9);
    assert_float_equal(s.limit_ns, 2500, 1e-6);
    assert_true(isnan(s.sheet));
    assert_null(train_invalid(&r, text)); /* 10 % is not more than 10 % */
    r.result.ops.ops[1].ns = 8;
    assert_non_null(train_invalid(&r, text));
    assert_non_null(strstr(text, "quantising and transposing take 10.9 % of a step"));
    r.result.ops.ops[0].runs = 3;
    assert_string_equal(train_invalid(&r, text), "a step made 1 calls fewer than the plan has");
    r.result.update = (struct train_kernels){40, 41};
    assert_string_equal(train_invalid(&r, text), "an update launched 41 kernels, the plan has 40");
    r.result.micro = (struct train_kernels){9, 8};
    assert_string_equal(train_invalid(&r, text),
                        "the micro-batches of a step launched 8 kernels, the plan has 9");
    r.result.micro = r.result.update = (struct train_kernels){40, 40};
    r.result.ops.ops[0].runs = 4;
    r.result.ops.ops[1].ns = 7;
    ceiling.arithmetic[NUMERICS_EXACT].best = 9e10;
    assert_non_null(strstr(train_invalid(&r, text), "faster than the measured limit"));
}

/* What is shown by kind has a kind for every op; and what prepares products is the same by either
 * list. */
static void test_categories(void **state)
{
    (void)state;
    for (int i = 0; i < op_table_count; i++) {
        const char *name = op_table[i]->name, *kind = bench_category_of(name);
        if (strcmp(kind, "other") == 0 && strcmp(name, "sample") != 0)
            fail_msg("%s has no kind", name);
        if ((strcmp(kind, "quantize") == 0) != category_prepares(category_of(name)))
            fail_msg("%s is %s here and another there", name, kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crashes), cmocka_unit_test(test_lines),
                                       cmocka_unit_test(test_speed), cmocka_unit_test(test_invalid),
                                       cmocka_unit_test(test_categories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
