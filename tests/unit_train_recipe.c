/* The dial: model, batch, horizon, rates and schedules that follow from flags, as nanochat's own
 * base_train derives them (tests/data/train_dial.json, made by tools/train_dial.py); what flags are
 * refused, and flags as a text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/status.h"
#include "model/weights.h"
#include "train/recipe.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define DATA     SOL_SOURCE_DIR "/tests/data/"

enum { DEVICE_BATCH = 32 /* nanochat's default */ };

static double number(const json_t *in, const char *key)
{
    const json_t *value = json_object_get(in, key);
    if (!json_is_number(value)) fail_msg("no number '%s'", key);
    return json_number_value(value);
}

/* Both compute in double: what differs is the order of a few products. */
static void same(const char *flags, const char *what, double ours, double theirs)
{
    if (fabs(ours - theirs) > 1e-13 * fmax(1, fabs(theirs)) + 1e-12 * fabs(theirs))
        fail_msg("%s: %s is %.17g, nanochat has %.17g", flags, what, ours, theirs);
}

static void same_rates(const char *flags, const struct train_recipe *r, const json_t *rates)
{
    static const char *const names[] = {
        [GROUP_HEAD] = "head",   [GROUP_EMBED] = "embed", [GROUP_VALUES] = "values",
        [GROUP_RESID] = "resid", [GROUP_X0] = "x0",       [GROUP_SMEAR] = "smear"};
    char what[64];
    const size_t groups = r->january ? GROUP_VALUES : GROUP_VECTORS;
    assert_int_equal(json_object_size(rates), groups + 1);
    for (size_t g = 0; g < groups; g++) {
        const json_t *item = json_object_get(rates, names[g]);
        const struct {
            const char *key;
            double value;
        } pairs[] = {{"lr", r->adamw[g].lr},
                     {"beta1", r->adamw[g].beta1},
                     {"beta2", r->adamw[g].beta2},
                     {"decay", r->adamw[g].decay}};
        for (size_t i = 0; i < COUNT(pairs); i++) {
            snprintf(what, sizeof what, "%s of %s", pairs[i].key, names[g]);
            same(flags, what, pairs[i].value, number(item, pairs[i].key));
        }
    }
    const json_t *matrix = json_object_get(rates, "matrix");
    same(flags, "lr of matrices", r->matrix_lr, number(matrix, "lr"));
    if (r->january) return;
    same(flags, "beta2 of matrices", r->muon_beta2, number(matrix, "beta2"));
    same(flags, "decay of matrices", r->matrix_decay, number(matrix, "decay"));
}

static void same_schedule(const char *flags, const struct train_recipe *r, const json_t *schedule)
{
    const json_t *item;
    size_t i;
    char what[64];
    assert_true(json_array_size(schedule) >= 8);
    json_array_foreach(schedule, i, item)
    {
        const int64_t step = (int64_t)number(item, "step");
        const struct train_rates rates = recipe_rates(r, step);
        snprintf(what, sizeof what, "lr at %lld", (long long)step);
        same(flags, what, rates.lr, number(item, "lr"));
        snprintf(what, sizeof what, "momentum at %lld", (long long)step);
        same(flags, what, rates.momentum, number(item, "momentum"));
        if (r->january) continue;
        snprintf(what, sizeof what, "decay at %lld", (long long)step);
        same(flags, what, rates.decay, number(item, "decay"));
    }
}

static void settle(const char *recipe, const char *text, int64_t vocab, struct train_recipe *out,
                   char **memory)
{
    struct train_flags flags;
    assert_int_equal(train_flags_parse("test", text, &flags, memory), SOL_OK);
    flags.recipe = recipe;
    if (recipe_settle(&flags, vocab, out) != SOL_OK) fail_msg("%s: %s", text, sol_last_error());
}

static void refuse(const char *text, const char *recipe, int64_t vocab, const char *message)
{
    struct train_flags flags;
    struct train_recipe r;
    char *memory;
    assert_int_equal(train_flags_parse("test", text, &flags, &memory), SOL_OK);
    flags.recipe = recipe;
    assert_int_equal(recipe_settle(&flags, vocab, &r), SOL_E_ARGUMENT);
    if (!strstr(sol_last_error(), message))
        fail_msg("%s: '%s' is not in '%s'", text, message, sol_last_error());
    free(memory);
}

static void test_dial(void **state)
{
    (void)state;
    json_error_t error;
    json_t *root = json_load_file(DATA "train_dial.json", 0, &error), *item;
    size_t i;
    assert_non_null(root);
    assert_true(json_array_size(root) >= 12);
    int odd = 0;
    json_array_foreach(root, i, item)
    {
        struct train_recipe r;
        char *memory;
        int64_t micro;
        const char *flags = json_string_value(json_object_get(item, "flags"));
        const double width = number(item, "width"), heads = number(item, "heads");
        if (fmod(width / heads, 2) != 0) { /* nanochat's rotation would fail on its first batch */
            refuse(flags, json_string_value(json_object_get(item, "recipe")),
                   (int64_t)number(item, "vocab_size"), "odd head dimension");
            odd++;
            continue;
        }
        settle(json_string_value(json_object_get(item, "recipe")), flags,
               (int64_t)number(item, "vocab_size"), &r, &memory);
        same(flags, "width", (double)r.config.hidden, width);
        same(flags, "heads", (double)r.config.n_heads, heads);
        same(flags, "parameters", (double)r.parameters, number(item, "parameters"));
        same(flags, "scaling parameters", (double)r.scaling_parameters,
             number(item, "scaling_parameters"));
        same(flags, "flops", r.flops_per_token, number(item, "flops_per_token"));
        same(flags, "batch", (double)r.total_batch, number(item, "total_batch_size"));
        same(flags, "iterations", (double)r.iterations, number(item, "iterations"));
        assert_int_equal(
            recipe_micro_batches(&r, r.device_batch ? r.device_batch : DEVICE_BATCH, &micro),
            SOL_OK);
        same(flags, "micro-batches", (double)micro, number(item, "accumulation"));
        same_rates(flags, &r, json_object_get(item, "rates"));
        same_schedule(flags, &r, json_object_get(item, "schedule"));
        free(memory);
    }
    assert_int_equal(odd, 1);
    json_decref(root);
}

/* What nanochat does not have. */
static void test_schedules(void **state)
{
    (void)state;
    struct train_recipe r;
    char *memory;
    settle("2026-07", "--depth=4 --num-iterations=100 --warmup-steps=10 --schedule=constant", 512,
           &r, &memory);
    same("constant", "lr", recipe_rates(&r, 4).lr, 0.5);
    same("constant", "lr", recipe_rates(&r, 10).lr, 1);
    same("constant", "lr", recipe_rates(&r, 99).lr, 1);
    free(memory);
    settle("2026-07",
           "--depth=4 --num-iterations=110 --warmup-steps=10 --final-lr-frac=0.2 "
           "--schedule=cosine",
           512, &r, &memory);
    same("cosine", "lr", recipe_rates(&r, 9).lr, 1);
    same("cosine", "lr", recipe_rates(&r, 10).lr, 1);
    same("cosine", "lr", recipe_rates(&r, 60).lr, 0.6);
    same("cosine", "lr", recipe_rates(&r, 35).lr, 0.2 + 0.4 * (1 + sqrt(0.5)));
    same("cosine", "lr", recipe_rates(&r, 110).lr, 0.2);
    free(memory);
}

static void test_refused(void **state)
{
    (void)state;
    struct train_recipe r;
    char *memory;
    int64_t micro;
    refuse("--depth=4", "2026-07", 1, "a vocabulary of 1");
    refuse("--depth=1 --aspect-ratio=8 --head-dim=8", "2026-07", 512, "gates read 24");
    refuse("--depth=4 --window-pattern=SX", "2026-07", 512, "window_pattern");
    refuse("--depth=4 --total-batch-size=0", "2026-07", 512, "--total-batch-size must be positive");
    refuse("--depth=4 --device-batch-size=0", "2026-07", 512,
           "--device-batch-size must be positive");
    refuse("--depth=4 --target-param-data-ratio=0", "2026-07", 512, "no horizon");
    refuse("--depth=1 --total-batch-size=1099511627776", "2026-07", 512, "less than one update");
    settle("2026-07", "--depth=4 --total-batch-size=1024 --max-seq-len=128", 512, &r, &memory);
    assert_int_equal(recipe_micro_batches(&r, 4, &micro), SOL_OK);
    assert_int_equal(micro, 2);
    assert_int_equal(recipe_micro_batches(&r, 3, &micro), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "1024 tokens is no multiple of 3 sequences of 128"));
    free(memory);
}

/* Which matrices are in a small format. */
static void count_small(const char *flags, int expected, int64_t last_layer, bool with_head)
{
    struct train_recipe r;
    char *memory;
    int count = 0;
    bool head = false;
    settle("2026-07", flags, 512, &r, &memory);
    for (int64_t i = 0; i < weight_count(&r.config); i++) {
        const struct weight w = weight_at(&r.config, i);
        if (!recipe_is_small(&r, &w)) continue;
        count++;
        head |= w.role == ROLE_HEAD;
        assert_true(w.role == ROLE_HEAD || w.role == ROLE_DENSE);
        assert_true(w.layer <= last_layer);
    }
    if (count != expected || head != with_head) fail_msg("%s: %d are small", flags, count);
    free(memory);
}

static void test_precision(void **state)
{
    (void)state;
    count_small("--depth=20", 0, 19, false);
    count_small("--depth=20 --precision=bf16", 0, 19, false);
    count_small("--depth=20 --precision=nvfp4", 17 * 6, 16, false);
    count_small("--depth=4 --precision=nvfp4", 3 * 6, 2, false);
    count_small("--depth=20 --fp8", 20 * 6 + 1, 19, true);
    count_small("--depth=20 --fp8 --fp8-recipe=tensorwise", 20 * 6 + 1, 19, true);
    refuse("--depth=2 --aspect-ratio=32 --head-dim=32 --fp8", "2026-07", 512, "no matrix");
    refuse("--depth=1 --precision=nvfp4", "2026-07", 512, "no matrix of this model");
    refuse("--depth=4 --max-seq-len=100 --precision=nvfp4", "2026-07", 512, "multiple of 16");
    refuse("--depth=4 --fp8 --precision=nvfp4", "2026-07", 512, "--fp8 and --precision nvfp4");
    refuse("--depth=4 --fp8 --precision=bf16", "2026-07", 512, "--fp8 and --precision bf16");
}

static void refuse_text(const char *text, const char *message)
{
    struct train_flags flags;
    char *memory;
    assert_int_equal(train_flags_parse("FILE", text, &flags, &memory), SOL_E_FORMAT);
    assert_int_equal(strncmp(sol_last_error(), "FILE: ", 6), 0);
    if (!strstr(sol_last_error(), message))
        fail_msg("%s: '%s' is not in '%s'", text, message, sol_last_error());
    free(memory);
}

static void test_flags(void **state)
{
    (void)state;
    struct train_flags flags;
    char *memory, *many = malloc(1000);
    assert_int_equal(train_flags_parse("FILE",
                                       " --depth=3\t--max_seq_len 64 --run=dummy --eval-every=-1 "
                                       "--matrix-lr=0.5\n--window-pattern=SL",
                                       &flags, &memory),
                     SOL_OK);
    assert_int_equal(flags.depth, 3);
    assert_int_equal(flags.max_seq_len, 64);
    assert_true(flags.matrix_lr == 0.5);
    assert_true(isnan(flags.embedding_lr));
    assert_int_equal(flags.warmup_steps, FLAG_UNSET);
    assert_string_equal(flags.window_pattern, "SL");
    free(memory);
    refuse_text("--depth=0", "--depth");
    refuse_text("--depth", "--depth");
    refuse_text("--deep=3", "--deep");
    refuse_text("--recipe=2026-02", "2026-02");
    refuse_text("4", "'4' is no flag");
    refuse_text("--help", "--help");
    assert_non_null(many);
    for (int i = 0; i < 999; i++) many[i] = i % 2 ? ' ' : 'a';
    many[999] = 0;
    refuse_text(many, "more than 255 flags");
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dial),    cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_precision),
        cmocka_unit_test(test_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
