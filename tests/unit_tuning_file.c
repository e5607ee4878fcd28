/* Tuning records on disk: written and read back, damaged, of other devices and programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cache.h"
#include "base/memory.h"
#include "base/rng.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "ops/ops.h"
#include "ops/tuning_file.h"

static char folder[64], path[256];
static struct device_key hopper = {.device = "Some GPU",
                                   .capability = "9.0",
                                   .driver = "CUDA 13.0",
                                   .build = "0.1.0 abc",
                                   .kernels = "1"};
static struct device_key other = {.device = "Other GPU",
                                  .capability = "12.0",
                                  .driver = "CUDA 13.0",
                                  .build = "0.1.0 abc",
                                  .kernels = "2"};

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < OP_COUNT; i++) {
        strcpy(hopper.op_kernels.of[i], "a1");
        strcpy(other.op_kernels.of[i], "a2");
    }
    strcpy(folder, "/tmp/sol-tuning-XXXXXX");
    if (!mkdtemp(folder) || setenv("XDG_CACHE_HOME", folder, 1) != 0) return -1;
    return tuning_path(path, sizeof path) == SOL_OK ? 0 : -1;
}

static int teardown(void **state)
{
    char name[300];
    (void)state;
    unlink(path);
    snprintf(name, sizeof name, "%s.lock", path);
    unlink(name);
    snprintf(name, sizeof name, "%s/sol", folder);
    rmdir(name);
    return rmdir(folder);
}

static struct tuning_entry entry_of(int64_t rows, const char *choice)
{
    struct tuning_entry e = {.op = &op_gemm,
                             .problem = {.rows = rows, .dtype = DTYPE_MXFP4, .n = 2880, .k = 4096},
                             .loosest = NUMERICS_BF16,
                             .variant = "gemm_wgmma_cuda",
                             .usual = "gemv_bf16_cuda",
                             .ns = 1234.5,
                             .usual_ns = 2000};
    e.problem.groups = 32;
    tuning_range(rows, &e.rows_from, &e.rows_to);
    snprintf(e.choice, sizeof e.choice, "%s", choice);
    return e;
}

static void save(const struct device_key *key, int64_t rows, const char *choice)
{
    struct tuning tuning = {0};
    struct tuning_entry e = entry_of(rows, choice);
    assert_int_equal(tuning_add(&tuning, &e), SOL_OK);
    assert_int_equal(tuning_save(path, key, &tuning), SOL_OK);
    tuning_clear(&tuning);
}

/* How many entries there are; the first one's choice is `choice`, the note contains `note`. */
static size_t load(const struct device_key *key, const char *choice, const char *note)
{
    struct tuning tuning;
    char said[TUNING_NOTE_MAX];
    assert_int_equal(tuning_load(path, key, &tuning, said), SOL_OK);
    size_t count = tuning.count;
    if (count) assert_string_equal(tuning.entries[0].choice, choice);
    if (!strstr(said, note) || (!*note && *said)) fail_msg("'%s' is not '%s'", said, note);
    tuning_clear(&tuning);
    return count;
}

static void write_text(const char *text)
{
    char made[256];
    assert_int_equal(cache_folder(made, sizeof made), SOL_OK);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct tuning tuning;
    struct stat info;
    char note[TUNING_NOTE_MAX], digest[TUNING_DIGEST], changed[TUNING_DIGEST];
    assert_int_equal(load(&hopper, "", ""), 0); /* no file */
    save(&hopper, 16, "tile");
    assert_int_equal(tuning_load(path, &hopper, &tuning, note), SOL_OK);
    assert_string_equal(note, "");
    assert_int_equal(tuning.count, 1);
    struct tuning_entry e = entry_of(16, "tile"), *got = &tuning.entries[0];
    assert_ptr_equal(got->op, e.op);
    const struct op_problem *a = &got->problem, *b = &e.problem;
    assert_true(a->rows == b->rows && a->dtype == b->dtype && a->n == b->n && a->k == b->k);
    assert_true(a->groups == b->groups && a->top_k == b->top_k && a->head_dim == b->head_dim);
    assert_true(a->window == b->window && a->sequences == b->sequences);
    assert_true(got->rows_from == 9 && got->rows_to == 16 && got->loosest == NUMERICS_BF16);
    assert_true(got->ns == 1234.5 && got->usual_ns == 2000);
    assert_string_equal(got->usual, e.usual);
    tuning_digest(&tuning, digest);
    got->ns = 1;
    tuning_digest(&tuning, changed);
    assert_string_equal(digest, changed);
    got->choice[0] = 'T';
    tuning_digest(&tuning, changed);
    assert_string_not_equal(digest, changed);
    tuning_clear(&tuning);
    assert_int_equal(stat(folder, &info), 0);
}

/* Grouped products that differ in what is no size; each has an entry of its own. */
static void kinds_are_told_apart(void **state)
{
    (void)state;
    static const struct op_problem kinds[] = {{.results = 0}, {.results = 1}, {.results = 2},
                                              {.scales = 1},  {.gated = 1},   {.signs = 1},
                                              {.weights = 1}};
    enum { COUNT = sizeof kinds / sizeof *kinds };
    struct tuning tuning = {0};
    char note[TUNING_NOTE_MAX], digest[TUNING_DIGEST], before[TUNING_DIGEST] = "", name[8];
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "c%d", i);
        struct tuning_entry e = entry_of(16, name);
        e.op = &op_grouped_gemm;
        e.problem.results = kinds[i].results;
        e.problem.scales = kinds[i].scales;
        e.problem.gated = kinds[i].gated;
        e.problem.signs = kinds[i].signs;
        e.problem.weights = kinds[i].weights;
        assert_int_equal(tuning_add(&tuning, &e), SOL_OK);
        tuning_digest(&tuning, digest);
        assert_string_not_equal(digest, before);
        strcpy(before, digest);
    }
    assert_int_equal(tuning.count, COUNT);
    assert_int_equal(tuning_save(path, &hopper, &tuning), SOL_OK);
    tuning_clear(&tuning);
    assert_int_equal(tuning_load(path, &hopper, &tuning, note), SOL_OK);
    tuning_digest(&tuning, digest);
    assert_string_equal(digest, before);
    for (int i = 0; i < COUNT; i++) {
        struct op_problem p = entry_of(16, "").problem;
        p.results = kinds[i].results;
        p.scales = kinds[i].scales;
        p.gated = kinds[i].gated;
        p.signs = kinds[i].signs;
        p.weights = kinds[i].weights;
        const struct tuning_entry *e = tuning_find(&tuning, &op_grouped_gemm, &p, NUMERICS_BF16);
        snprintf(name, sizeof name, "c%d", i);
        assert_non_null(e);
        assert_string_equal(e->choice, name);
    }
    tuning_clear(&tuning);
}

static void devices_do_not_disturb_each_other(void **state)
{
    (void)state;
    struct device_key newer = hopper;
    const struct tuning none = {0};
    strcpy(newer.build, "0.1.0 def");
    save(&hopper, 16, "one");
    save(&other, 16, "two");
    assert_int_equal(load(&hopper, "one", ""), 1);
    assert_int_equal(load(&other, "two", ""), 1);
    assert_int_equal(load(&newer, "", "is of CUDA 13.0, sol 0.1.0 abc and ignored"), 0);
    save(&newer, 16, "three"); /* in the place of what is stale */
    assert_int_equal(load(&newer, "three", ""), 1);
    assert_int_equal(load(&hopper, "", "0.1.0 def"), 0);
    assert_int_equal(load(&other, "two", ""), 1);
    assert_int_equal(tuning_save(path, &newer, &none), SOL_OK);
    assert_int_equal(load(&newer, "", ""), 0);
    assert_int_equal(load(&other, "two", ""), 1);
}

static void damage_costs_the_record_alone(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "{\"format\": \"sol tuning\", \"version\": 2}",
                                        "{\"format\": 7, \"version\": 1, \"devices\": []}",
                                        "{\"format\": \"sol tuning\", \"version\": 1}",
                                        "{\"format\": \"sol tuning\", \"format\": 1}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(texts[i]);
        assert_int_equal(load(&hopper, "", "ignored; sol tune writes a new one"), 0);
    }
    save(&hopper, 8, "anew");
    assert_int_equal(load(&hopper, "anew", ""), 1);
}

#define SECTION                                                                                    \
    "{\"format\": \"sol tuning\", \"version\": 1, \"devices\": [7, {\"device\": 1}, {"             \
    "\"device\": \"Some GPU\", \"capability\": \"9.0\", \"driver\": \"CUDA 13.0\", "               \
    "\"build\": \"0.1.0 abc\", \"kernels\": {\"gemm\": \"a1\", \"moe_up\": \"a1\"}, "              \
    "\"entries\": %s}]}"
#define ENTRY(op, rows, from, ns, choice)                                                          \
    "{\"op\": \"" op "\", \"dtype\": \"bf16\", \"n\": 1, \"rows\": " rows ", \"from\": " from      \
    ", \"to\": 16, \"numerics\": \"i8\", \"variant\": \"x\", \"choice\": \"" choice                \
    "\", \"ns\": " ns ", \"usual\": \"x\", \"usual_choice\": \"\", \"usual_ns\": 1}"

static void senseless_entries_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *entries;
        size_t good;
        const char *note;
    } cases[] = {
        {"[" ENTRY("gemm", "16", "9", "1.5", "a") "]", 1, ""},
        {"[" ENTRY("gemm", "16", "9", "1.5", "a") ", 5, {}]", 1, "2 entries"},
        {"[" ENTRY("gone", "16", "9", "1.5", "a") "]", 0, "1 entries"},
        {"[" ENTRY("gemm", "-1", "9", "1.5", "a") "]", 0, "1 entries"},
        {"[" ENTRY("gemm", "17", "9", "1.5", "a") "]", 0, "1 entries"},
        {"[" ENTRY("gemm", "16", "17", "1.5", "a") "]", 0, "1 entries"},
        {"[" ENTRY("gemm", "16", "9", "0", "a") "]", 0, "1 entries"},
        {"[" ENTRY("gemm", "1e1", "9", "1", "a") "]", 0, "1 entries"},
        {"[" ENTRY("gemm", "16", "9", "1",
                   "0123456789012345678901234567890123456789012345678901234"
                   "567890123456789") "]",
         0, "1 entries"},
        {"[" ENTRY("gemm\", \"gated\": \"yes", "16", "9", "1", "a") "]", 1, ""},
        {"[" ENTRY("gemm\", \"gated\": \"perhaps", "16", "9", "1", "a") "]", 0, "1 entries"},
        {"[" ENTRY("gemm\", \"gated\": 1, \"x\": \"", "16", "9", "1", "a") "]", 0, "1 entries"},
        {"{}", 0, "0 entries"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096];
        snprintf(text, sizeof text, SECTION, cases[i].entries);
        write_text(text);
        assert_int_equal(load(&hopper, "a", cases[i].note), cases[i].good);
    }
}

static size_t ship(const char *text, size_t length, const struct device_key *key)
{
    struct tuning tuning;
    assert_int_equal(tuning_shipped_parse(text, length, key, &tuning), SOL_OK);
    size_t count = tuning.count;
    assert_true(tuning.shipped);
    tuning_clear(&tuning);
    return count;
}

/* What is measured of an op is good while its kernels are the same. */
static void entries_follow_their_kernels(void **state)
{
    (void)state;
    struct device_key now = hopper;
    char text[4096];
    int n = snprintf(
        text, sizeof text, SECTION,
        "[" ENTRY("moe_up", "16", "9", "1.5", "a") ", " ENTRY("gemm", "16", "9", "1.5", "b") "]");
    write_text(text);
    assert_int_equal(load(&now, "a", ""), 2);
    assert_int_equal(ship(text, (size_t)n, &now), 2);
    strcpy(now.kernels, "9"); /* of others, that are in no entry */
    strcpy(now.op_kernels.of[op_index(&op_attention)], "a9");
    assert_int_equal(load(&now, "a", ""), 2);
    assert_int_equal(ship(text, (size_t)n, &now), 2);
    strcpy(now.op_kernels.of[op_index(&op_moe_up)], "a9");
    assert_int_equal(load(&now, "b", "is of other kernels of moe_up and ignored there"), 1);
    assert_int_equal(ship(text, (size_t)n, &now), 1);
    strcpy(now.op_kernels.of[op_index(&op_gemm)], "a9");
    assert_int_equal(load(&now, "", "other kernels of gemm, moe_up and"), 0);
    assert_int_equal(ship(text, (size_t)n, &now), 0);
    now.kernels[0] = '\0'; /* a processor has none */
    assert_int_equal(load(&now, "a", ""), 2);
}

/* Earlier versions wrote one hash, of all device code. */
static void earlier_records_are_left_out(void **state)
{
    (void)state;
    static const char hashes[] = "{\"gemm\": \"a1\", \"moe_up\": \"a1\"}";
    char text[4096];
    int n = snprintf(text, sizeof text, SECTION, "[" ENTRY("gemm", "16", "9", "1.5", "a") "]");
    char *at = strstr(text, hashes);
    assert_non_null(at);
    memset(at, ' ', strlen(hashes));
    memcpy(at, "\"a1\"", 4);
    write_text(text);
    assert_int_equal(load(&hopper, "", "of an earlier form"), 0);
    assert_int_equal(ship(text, (size_t)n, &hopper), 0);
}

/* What sol tune writes can be shipped, and is used on that device with those kernels, whatever
 * driver and build there are. */
static void what_is_written_can_be_shipped(void **state)
{
    (void)state;
    struct mapped_file file;
    save(&hopper, 16, "one");
    assert_int_equal(mapped_file_open(path, &file), SOL_OK);
    struct device_key same = hopper, edited = hopper, cpu = hopper;
    strcpy(same.driver, "CUDA 14.0");
    strcpy(same.build, "0.1.0 def");
    strcpy(edited.op_kernels.of[op_index(&op_gemm)], "a3");
    cpu.kernels[0] = '\0';
    assert_int_equal(ship(file.data, file.size, &hopper), 1);
    assert_int_equal(ship(file.data, file.size, &same), 1);
    assert_int_equal(ship(file.data, file.size, &edited), 0);
    assert_int_equal(ship(file.data, file.size, &other), 0);
    assert_int_equal(ship(file.data, file.size, &cpu), 0);
    assert_int_equal(ship(file.data, file.size / 2, &hopper), 0);
    mapped_file_close(&file);
}

/* On a GPU of the driver that is not there: chosen, and said to be. */
static void what_is_shipped_is_chosen(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct tuning record = {0}, shipped;
    struct chooser chooser;
    struct mapped_file file;
    struct device_key key;
    char why[OP_REASON_MAX];
    const float gain[64] = {1};
    const struct rmsnorm_args args = {.m = 4, .n = 64, .gain = gain};
    cuda_replace(fake_cuda_start(
        &(struct fake_cuda_params){.devices = 1, .major = 9, .memory = (size_t)16 << 20}));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    chooser_init(&chooser, 1);
    chooser.device.gpu = gpu;
    assert_int_equal(device_key_of(&chooser.device, &key), SOL_OK);
    assert_int_equal(tuning_shipped(&key, &shipped), SOL_OK);
    assert_int_equal(shipped.count, 0); /* nobody ships one for a device that is not there */

    struct tuning_entry e = {.op = &op_rmsnorm,
                             .loosest = NUMERICS_I8,
                             .variant = "rmsnorm_cuda",
                             .usual = "slow_one",
                             .ns = 1000,
                             .usual_ns = 1050};
    op_rmsnorm.problem(&args, &e.problem);
    tuning_range(e.problem.rows, &e.rows_from, &e.rows_to);
    assert_int_equal(tuning_add(&record, &e), SOL_OK);
    assert_int_equal(tuning_save(path, &key, &record), SOL_OK);
    assert_int_equal(mapped_file_open(path, &file), SOL_OK);
    strcpy(key.build, "another");
    assert_int_equal(tuning_shipped_parse(file.data, file.size, &key, &shipped), SOL_OK);
    chooser.tuning = &shipped;
    int v = 0;
    while (strcmp(op_variant_name(&op_rmsnorm, v), "rmsnorm_cuda") != 0) v++;
    chooser_explain(&chooser, &op_rmsnorm, v, v, &args, why);
    assert_string_equal(why, "chosen: the shipped record measured it 5.0 % faster than slow_one");
    mapped_file_close(&file);
    tuning_clear(&shipped);
    tuning_clear(&record);
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* Any bytes: no crash, no failure, and what comes out can be used. */
static void nothing_breaks_the_reader(void **state)
{
    (void)state;
    enum { TRIES = 20000 };
    char text[2048], changed[2048], note[TUNING_NOTE_MAX];
    struct rng rng;
    rng_seed(&rng, 11);
    int length = snprintf(
        text, sizeof text, SECTION,
        "[" ENTRY("gemm", "16", "9", "1.5", "a") ", " ENTRY("moe_up", "64", "33", "1e3", "b") "]");
    for (int i = 0; i < TRIES; i++) {
        static const char likely[] = "{}[]\",:0123456789-.eEnull \\\n";
        struct tuning tuning;
        size_t size = (size_t)length;
        memcpy(changed, text, size);
        for (int64_t n = rng_range(&rng, 1, 4); n > 0; n--)
            changed[rng_range(&rng, 0, length - 1)] =
                n % 2 ? likely[rng_range(&rng, 0, (int64_t)sizeof likely - 2)]
                      : (char)rng_range(&rng, 0, 255);
        if (i % 5 == 0) size = (size_t)rng_range(&rng, 0, length);
        assert_int_equal(tuning_parse(changed, size, &hopper, &tuning, note), SOL_OK);
        for (size_t e = 0; e < tuning.count; e++) {
            const struct tuning_entry *entry = &tuning.entries[e];
            assert_true(entry->op && entry->ns > 0 && entry->rows_from <= entry->problem.rows);
        }
        tuning_clear(&tuning);
    }
}

static void folders(void **state)
{
    (void)state;
    char out[256], small[8];
    assert_int_equal(cache_folder(small, sizeof small), SOL_E_IO);
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0);
    assert_int_equal(setenv("HOME", folder, 1), 0);
    assert_int_equal(cache_path("x", out, sizeof out), SOL_OK);
    char expected[128];
    snprintf(expected, sizeof expected, "%s/.cache/sol/x", folder);
    assert_string_equal(out, expected);
    assert_int_equal(setenv("HOME", "", 1), 0);
    assert_int_equal(cache_path("x", out, sizeof out), SOL_E_IO);
    assert_int_equal(setenv("XDG_CACHE_HOME", "/proc/none", 1), 0);
    struct tuning none = {0};
    assert_int_equal(tuning_save("/proc/none/sol/tuning.json", &hopper, &none), SOL_E_IO);
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
}

/* What one passes on to others, of the same device and of another one. */
static void a_record_as_text(void **state)
{
    (void)state;
    struct tuning tuning = {0}, read;
    struct tuning_entry e = entry_of(16, "gemm_wgmma_bf16_16");
    struct device_key another = hopper;
    char *text, note[TUNING_NOTE_MAX];
    assert_int_equal(tuning_add(&tuning, &e), SOL_OK);
    assert_int_equal(tuning_text(&hopper, &tuning, &text), SOL_OK);
    assert_int_equal(tuning_parse(text, strlen(text), &hopper, &read, note), SOL_OK);
    assert_true(read.count == 1 && !*note);
    assert_string_equal(read.entries[0].choice, e.choice);
    tuning_clear(&read);
    snprintf(another.device, sizeof another.device, "Another card");
    assert_int_equal(tuning_parse(text, strlen(text), &another, &read, note), SOL_OK);
    assert_true(read.count == 0 && !*note);
    free(text);
    tuning_clear(&tuning);
    assert_int_equal(tuning_text(&hopper, &tuning, &text), SOL_OK);
    assert_int_equal(tuning_parse(text, strlen(text), &hopper, &read, note), SOL_OK);
    assert_true(read.count == 0 && !*note);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(kinds_are_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(devices_do_not_disturb_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_costs_the_record_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(senseless_entries_are_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(entries_follow_their_kernels, setup, teardown),
        cmocka_unit_test_setup_teardown(earlier_records_are_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_written_can_be_shipped, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_shipped_is_chosen, setup, teardown),
        cmocka_unit_test(nothing_breaks_the_reader),
        cmocka_unit_test(folders),
        cmocka_unit_test(a_record_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
