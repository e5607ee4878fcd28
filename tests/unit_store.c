#include "store/store.h"

#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/clock.h"
#include "support/temp_folder.h"

static void path_of(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/%s", temp_folder(), name);
}

static struct store *open_store(void)
{
    struct store *store;
    assert_int_equal(store_open(temp_folder(), &store), SOL_OK);
    return store;
}

static void begin(struct store *store, const char *kind, const char *label, char id[STORE_ID_SIZE])
{
    struct store_run run = {.kind = kind, .label = label, .model = "tiny"};
    assert_int_equal(store_run_begin(store, &run, id), SOL_OK);
}

static void finished(struct store *store, const char *kind, const char *label,
                     char id[STORE_ID_SIZE])
{
    begin(store, kind, label, id);
    assert_int_equal(store_run_finish(store, id, STORE_OK, NULL, NULL), SOL_OK);
}

/* Another program's view of the database. */
static void sql(const char *text)
{
    char path[128], *message = NULL;
    sqlite3 *db;
    path_of(path, sizeof path, "store.db");
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, text, NULL, NULL, &message);
    assert_null(message);
    sqlite3_close(db);
}

static void fill(struct store *store, const char *id)
{
    struct store_sample samples[] = {
        {.value = 5e6, .flags = STORE_WARMUP},
        {.value = 4e6, .started_ns = 17},
        {.value = 9e6, .flags = STORE_OUTLIER | STORE_REPEATED, .cause = "throttled", .process = 3},
    };
    struct store_metric metrics[] = {
        {.name = "tg128 @ d4096",
         .unit = "ns/token",
         .limit = 2.5e6,
         .samples = samples,
         .n_samples = 3,
         .test_json = "{\"n_gen\": 128}"},
        {.name = "empty", .unit = "bytes", .better = STORE_HIGHER},
    };
    struct store_kernel kernels[] = {
        {.metric = "tg128 @ d4096",
         .phase = "decode",
         .layer = -1,
         .op = "moe_up",
         .variant = "avx2",
         .calls = 24,
         .expected = 24,
         .calls_per_token = 24,
         .total_ns = 1e6,
         .bytes = 7,
         .flops = (double)NAN,
         .limit_ns = 5e5},
        {.phase = "decode", .layer = 3, .op = "add", .calls = -1, .expected = -1},
    };
    struct store_advice advice = {.rule = "gap.host",
                                  .subject = "decode",
                                  .window_ns = 10,
                                  .ceiling_ns = 4,
                                  .likely_ns = 2,
                                  .evidence_json = "[1]"};
    struct store_batch batch = {metrics, 2, kernels, 2, &advice, 1};
    assert_int_equal(store_run_add(store, id, &batch), SOL_OK);
    struct store_batch more = {.metrics = metrics, .n_metrics = 1};
    metrics[0].samples = &samples[1];
    metrics[0].n_samples = 1;
    assert_int_equal(store_run_add(store, id, &more), SOL_OK);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct store *store = open_store();
    char id[STORE_ID_SIZE], environment[STORE_HASH_SIZE];
    assert_int_equal(store_environment_add(store, "{\"cpu\": \"x\"}", environment), SOL_OK);
    assert_int_equal(store_environment_add(store, "{\"cpu\": \"x\"}", environment), SOL_OK);
    struct store_run run = {.kind = "bench",
                            .label = "base",
                            .environment = environment,
                            .argv_json = "[\"bench\"]",
                            .model = "tiny",
                            .model_size = 12};
    assert_int_equal(store_run_begin(store, &run, id), SOL_OK);
    assert_int_equal(id[0], 'b');
    assert_int_equal(strlen(id), 9);
    fill(store, id);
    assert_int_equal(store_artifact_write(store, id, "trace", "t.json", "[]", 2), SOL_OK);
    assert_int_equal(store_run_finish(store, id, STORE_INVALID, "throttled", "{\"a\":1}"), SOL_OK);
    store_close(store);

    store = open_store();
    struct store_record *r;
    assert_int_equal(store_record_read(store, id, &r), SOL_OK);
    assert_string_equal(r->environment_json, "{\"cpu\": \"x\"}");
    assert_int_equal(r->run.state, STORE_INVALID);
    assert_string_equal(r->run.reason, "throttled");
    assert_string_equal(r->run.payload_json, "{\"a\":1}");
    assert_int_equal(r->run.model_size, 12);
    assert_true(r->run.finished_ns >= r->run.created_ns);
    assert_int_equal(r->n_metrics, 2);
    const struct store_metric *m = store_record_metric(r, "tg128 @ d4096");
    assert_non_null(m);
    assert_int_equal(m->n_samples, 4);
    assert_int_equal(m->samples[0].flags, STORE_WARMUP);
    assert_int_equal(m->samples[2].flags, STORE_OUTLIER | STORE_REPEATED);
    assert_int_equal(m->samples[2].process, 3);
    assert_string_equal(m->samples[2].cause, "throttled");
    assert_true(m->samples[3].value == 4e6 && m->samples[3].started_ns == 17);
    assert_true(m->limit == 2.5e6 && m->better == STORE_LOWER);
    assert_int_equal(store_record_metric(r, "empty")->n_samples, 0);
    assert_int_equal(store_record_metric(r, "empty")->better, STORE_HIGHER);
    assert_null(store_record_metric(r, "none"));
    assert_int_equal(r->n_kernels, 2);
    assert_int_equal(r->kernels[0].calls, 24);
    assert_true(isnan(r->kernels[0].flops) && r->kernels[0].limit_ns == 5e5);
    assert_int_equal(r->kernels[1].calls, -1);
    assert_int_equal(r->kernels[1].layer, 3);
    assert_null(r->kernels[1].variant);
    assert_int_equal(r->n_advice, 1);
    assert_true(r->advice[0].likely_ns == 2);
    assert_int_equal(r->n_artifacts, 1);
    store_record_destroy(r);
    store_close(store);
}

static void test_all_or_nothing(void **state)
{
    (void)state;
    struct store *store = open_store();
    char id[STORE_ID_SIZE];
    begin(store, "bench", NULL, id);
    struct store_sample sample = {.value = 1}, bad = {.value = (double)NAN};
    struct store_metric metrics[] = {
        {.name = "a", .unit = "ns/token", .samples = &sample, .n_samples = 1},
        {.name = "b", .unit = "ns/token", .samples = &bad, .n_samples = 1},
    };
    struct store_batch batch = {.metrics = metrics, .n_metrics = 2};
    assert_int_equal(store_run_add(store, id, &batch), SOL_E_INTERNAL);
    metrics[1] = (struct store_metric){.name = "b", .unit = "x", .test_json = "{broken"};
    assert_int_equal(store_run_add(store, id, &batch), SOL_E_ARGUMENT);
    assert_int_equal(store_run_add(store, "b00000000", &batch), SOL_E_ARGUMENT);
    assert_int_equal(store_run_finish(store, "b00000000", STORE_OK, NULL, NULL), SOL_E_ARGUMENT);
    struct store_record *r;
    assert_int_equal(store_record_read(store, id, &r), SOL_OK);
    assert_int_equal(r->n_metrics, 0);
    store_record_destroy(r);
    store_close(store);
}

static void test_find(void **state)
{
    (void)state;
    struct store *store = open_store();
    char bench[3][STORE_ID_SIZE], profile[STORE_ID_SIZE], open[STORE_ID_SIZE], id[STORE_ID_SIZE];
    assert_int_equal(store_find(store, "last", NULL, id), SOL_E_ARGUMENT);
    finished(store, "bench", "base", bench[0]);
    finished(store, "bench", "base", bench[1]);
    finished(store, "bench", NULL, bench[2]);
    finished(store, "profile", NULL, profile);
    begin(store, "bench", NULL, open);
    const struct {
        const char *text, *kind, *expected;
    } cases[] = {
        {"last", NULL, profile},     {"last~1", NULL, bench[2]},
        {"last", "bench", bench[2]}, {"last~3", NULL, bench[0]},
        {"last~4", NULL, NULL},      {"base", NULL, bench[1]},
        {"base~1", NULL, bench[0]},  {"base~2", NULL, NULL},
        {bench[0], NULL, bench[0]},  {bench[0], "profile", bench[0]},
        {open, NULL, open},          {"p", NULL, profile},
        {"b", NULL, NULL},           {"", NULL, NULL},
        {"last~x", NULL, NULL},      {"nothing", NULL, NULL},
        {"b%", NULL, NULL},          {"last~-1", NULL, NULL},
        {"last", "compare", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum sol_status status = store_find(store, cases[i].text, cases[i].kind, id);
        assert_int_equal(status, cases[i].expected ? SOL_OK : SOL_E_ARGUMENT);
        if (cases[i].expected) assert_string_equal(id, cases[i].expected);
    }
    assert_int_equal(store_find(store, "b", NULL, id), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), bench[0]));
    assert_int_equal(store_run_label(store, profile, "base"), SOL_OK);
    assert_int_equal(store_find(store, "base", NULL, id), SOL_OK);
    assert_string_equal(id, profile);

    struct store_list *list;
    struct store_filter filter = {.kind = "bench", .states_set = true, .states = 1u << STORE_OK};
    assert_int_equal(store_list_read(store, &filter, &list), SOL_OK);
    assert_int_equal(list->count, 3);
    assert_string_equal(list->runs[0].id, bench[2]);
    store_list_destroy(list);
    filter = (struct store_filter){.limit = 2};
    assert_int_equal(store_list_read(store, &filter, &list), SOL_OK);
    assert_int_equal(list->count, 2);
    assert_int_equal(list->runs[0].state, STORE_RUNNING);
    store_list_destroy(list);
    store_close(store);
}

static void test_delete(void **state)
{
    (void)state;
    struct store *store = open_store();
    char id[STORE_ID_SIZE], other[STORE_ID_SIZE], path[160];
    struct stat info;
    finished(store, "bench", NULL, id);
    finished(store, "bench", NULL, other);
    fill(store, id);
    fill(store, other);
    assert_int_equal(store_artifact_write(store, id, "trace", "t.json", "[]", 2), SOL_OK);
    assert_int_equal(store_artifact_write(store, id, "trace", "../t", "[]", 2), SOL_E_ARGUMENT);
    snprintf(path, sizeof path, "%s/artifacts/%s/t.json", temp_folder(), id);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(store_artifact_add(store, other, "copy", "c", path), SOL_OK);
    assert_int_equal(store_artifact_add(store, other, "copy", "d", "/nowhere"), SOL_E_IO);
    assert_int_equal(store_run_delete(store, id), SOL_OK);
    assert_int_equal(stat(path, &info), -1);
    assert_int_equal(store_run_delete(store, id), SOL_E_ARGUMENT);
    struct store_record *r;
    assert_int_equal(store_record_read(store, other, &r), SOL_OK);
    assert_int_equal(r->metrics[0].n_samples, 4);
    assert_int_equal(r->artifacts[0].size, 2);
    store_record_destroy(r);
    store_close(store);
    /* Nothing of the deleted one is left. */
    sql("CREATE TEMP TABLE t(n INTEGER CHECK(n = 4)); INSERT INTO t SELECT count(*) FROM sample; "
        "CREATE TEMP TABLE u(n INTEGER CHECK(n = 2)); INSERT INTO u SELECT count(*) FROM kernel");
}

static void test_iterations(void **state)
{
    (void)state;
    struct store *store = open_store();
    struct store_iteration it = {.tree = "/a",
                                 .hypothesis = "fuse",
                                 .state = "open",
                                 .predicted = 0.05,
                                 .realised = (double)NAN};
    assert_int_equal(store_iteration_save(store, &it), SOL_OK);
    assert_int_equal(it.number, 1);
    assert_true(it.created_ns > 0);
    it.state = "accepted";
    it.realised = 0.04;
    assert_int_equal(store_iteration_save(store, &it), SOL_OK);
    struct store_iteration second = {.tree = "/a", .state = "open"},
                           elsewhere = {.tree = "/b", .state = "open"},
                           unknown = {.tree = "/b", .id = "o1"},
                           bad = {.tree = "/a", .payload_json = "["};
    assert_int_equal(store_iteration_save(store, &second), SOL_OK);
    assert_int_equal(store_iteration_save(store, &elsewhere), SOL_OK);
    assert_int_equal(store_iteration_save(store, &unknown), SOL_E_ARGUMENT);
    assert_int_equal(store_iteration_save(store, &bad), SOL_E_ARGUMENT);
    assert_string_equal(bad.id, "");
    assert_int_equal(second.number, 2);
    assert_int_equal(elsewhere.number, 1);

    struct store_iterations *list;
    assert_int_equal(store_iterations_read(store, "/a", NULL, 0, &list), SOL_OK);
    assert_int_equal(list->count, 2);
    assert_string_equal(list->items[1].id, it.id);
    assert_string_equal(list->items[1].state, "accepted");
    assert_true(list->items[1].realised == 0.04 && list->items[1].predicted == 0.05);
    assert_true(list->items[1].created_ns > 0);
    store_iterations_destroy(list);
    const char *const good[] = {"1", "#1", "last~1", it.id};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(store_iteration_find(store, "/a", good[i], &list), SOL_OK);
        assert_string_equal(list->items[0].id, it.id);
        store_iterations_destroy(list);
    }
    assert_int_equal(store_iteration_find(store, "/a", "7", &list), SOL_E_ARGUMENT);
    assert_int_equal(store_iteration_find(store, "/a", "o", &list), SOL_E_ARGUMENT);
    assert_int_equal(store_iteration_find(store, "/a", "last~9", &list), SOL_E_ARGUMENT);
    store_close(store);
}

static void test_ledger(void **state)
{
    (void)state;
    struct store *store = open_store();
    double factor;
    int64_t entries;
    assert_int_equal(store_rule_factor(NULL, "tail", &factor, &entries), SOL_OK);
    assert_true(factor == 0.5 && entries == 0);
    const struct store_ledger_entry items[] = {
        {.rule = "tail", .predicted = 0.1, .realised = 0.2},   /* counts as 1 */
        {.rule = "tail", .predicted = 0.1, .realised = -0.05}, /* counts as 0 */
        {.rule = "tail", .predicted = 0.1, .realised = 0.05},
        {.rule = "other", .predicted = 0.1, .realised = 0.1},
    };
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        assert_int_equal(store_ledger_add(store, &items[i]), SOL_OK);
    assert_int_equal(store_rule_factor(store, "tail", &factor, &entries), SOL_OK);
    assert_int_equal(entries, 3);
    assert_true(fabs(factor - 0.5) < 1e-12);
    assert_int_equal(store_rule_factor(store, "other", &factor, NULL), SOL_OK);
    assert_true(fabs(factor - 0.75) < 1e-12);
    struct store_ledger *ledger;
    assert_int_equal(store_ledger_read(store, NULL, &ledger), SOL_OK);
    assert_int_equal(ledger->count, 4);
    store_ledger_destroy(ledger);
    store_close(store);
}

static void test_facts(void **state)
{
    (void)state;
    struct store *store = open_store();
    char *json;
    int64_t created = 0;
    assert_int_equal(store_fact_read(store, "ceiling", "k", &json, NULL), SOL_OK);
    assert_null(json);
    assert_int_equal(store_fact_write(store, "ceiling", "k", "{}"), SOL_OK);
    assert_int_equal(store_fact_write(store, "ceiling", "k", "[]"), SOL_OK);
    assert_int_equal(store_fact_write(store, "ceiling", "k", "["), SOL_E_ARGUMENT);
    assert_int_equal(store_fact_read(store, "ceiling", "k", &json, &created), SOL_OK);
    assert_string_equal(json, "[]");
    assert_true(created > 0);
    free(json);
    store_close(store);
}

/* ---- places and damage ---- */

static void read_bytes(const char *name, char **data, size_t *size)
{
    char path[128];
    struct stat info;
    path_of(path, sizeof path, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    *size = (size_t)info.st_size;
    *data = malloc(*size + 1);
    assert_int_equal(fread(*data, 1, *size, file), *size);
    fclose(file);
}

static void test_newer_version(void **state)
{
    (void)state;
    struct store *store = open_store();
    store_close(store);
    sql("PRAGMA journal_mode = DELETE; PRAGMA user_version = 99");
    char *before, *after;
    size_t size_before, size_after;
    read_bytes("store.db", &before, &size_before);
    assert_int_equal(store_open(temp_folder(), &store), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "newer sol"));
    assert_null(store);
    read_bytes("store.db", &after, &size_after);
    assert_int_equal(size_before, size_after);
    assert_memory_equal(before, after, size_before);
    free(before);
    free(after);
    sql("PRAGMA user_version = -1000000");
    assert_int_equal(store_open(temp_folder(), &store), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "damaged"));
}

static void test_not_a_store(void **state)
{
    (void)state;
    struct store *store;
    sql("CREATE TABLE theirs(a)");
    assert_int_equal(store_open(temp_folder(), &store), SOL_E_FORMAT);
    char path[128];
    path_of(path, sizeof path, "store.db");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 2000; i++) fputs("this is no database ", file);
    fclose(file);
    assert_int_equal(store_open(temp_folder(), &store), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "store.db"));
    /* A place that cannot be: a file where a folder should be. */
    assert_int_equal(store_open(path, &store), SOL_E_IO);
    assert_int_equal(store_open("/proc/nothing/here", &store), SOL_E_IO);
    assert_int_equal(store_open_optional("/proc/nothing/here", &store), SOL_E_IO);
    assert_int_equal(setenv("SOL_STORE", "/proc/nothing/here", 1), 0);
    assert_int_equal(store_open_optional(NULL, &store), SOL_OK);
    assert_null(store);
    assert_int_equal(unsetenv("SOL_STORE"), 0);
}

static void test_folder(void **state)
{
    (void)state;
    char path[256], small[8];
    assert_int_equal(unsetenv("SOL_STORE"), 0);
    assert_int_equal(setenv("XDG_DATA_HOME", "/data", 1), 0);
    assert_int_equal(store_folder(NULL, path, sizeof path), SOL_OK);
    assert_string_equal(path, "/data/sol");
    assert_int_equal(setenv("SOL_STORE", "/s", 1), 0);
    assert_int_equal(store_folder(NULL, path, sizeof path), SOL_OK);
    assert_string_equal(path, "/s");
    assert_int_equal(store_folder("/x", path, sizeof path), SOL_OK);
    assert_string_equal(path, "/x");
    assert_int_equal(store_folder("/much-too-long", small, sizeof small), SOL_E_ARGUMENT);
    assert_int_equal(unsetenv("SOL_STORE"), 0);
    assert_int_equal(unsetenv("XDG_DATA_HOME"), 0);
    assert_int_equal(setenv("HOME", "/h", 1), 0);
    assert_int_equal(store_folder(NULL, path, sizeof path), SOL_OK);
    assert_string_equal(path, "/h/.local/share/sol");
    assert_int_equal(unsetenv("HOME"), 0);
    assert_int_equal(store_folder(NULL, path, sizeof path), SOL_E_ARGUMENT);
}

/* ---- several processes, some of them killed ---- */

enum { SAMPLES = 40 };

/* Writes runs for ever and says each id once it is stored. */
static void writer(int to)
{
    struct store *store;
    struct store_sample samples[SAMPLES];
    char id[STORE_ID_SIZE];
    if (store_open(temp_folder(), &store) != SOL_OK) _exit(1);
    for (int i = 0; i < SAMPLES; i++) samples[i] = (struct store_sample){.value = i};
    struct store_metric metric = {
        .name = "m", .unit = "ns/token", .samples = samples, .n_samples = SAMPLES};
    struct store_batch batch = {.metrics = &metric, .n_metrics = 1};
    struct store_run run = {.kind = "bench"};
    for (;;) {
        if (store_run_begin(store, &run, id) != SOL_OK) _exit(2);
        if (store_run_add(store, id, &batch) != SOL_OK) _exit(3);
        if (store_run_finish(store, id, STORE_OK, NULL, NULL) != SOL_OK) _exit(4);
        if (write(to, id, STORE_ID_SIZE) != STORE_ID_SIZE) _exit(5);
    }
}

static int check_said(struct store *store, int from)
{
    char id[STORE_ID_SIZE];
    int count = 0;
    while (read(from, id, STORE_ID_SIZE) == STORE_ID_SIZE) {
        struct store_record *r;
        assert_int_equal(store_record_read(store, id, &r), SOL_OK);
        assert_int_equal(r->run.state, STORE_OK);
        assert_int_equal(r->n_metrics, 1);
        assert_int_equal(r->metrics[0].n_samples, SAMPLES);
        for (int i = 0; i < SAMPLES; i++) assert_true(r->metrics[0].samples[i].value == i);
        store_record_destroy(r);
        count++;
    }
    return count;
}

/* Whatever was cut off is there whole or not at all. */
static void check_whole(struct store *store)
{
    struct store_list *list;
    assert_int_equal(store_list_read(store, NULL, &list), SOL_OK);
    for (size_t i = 0; i < list->count; i++) {
        struct store_record *r;
        assert_int_equal(store_record_read(store, list->runs[i].id, &r), SOL_OK);
        assert_true(r->run.state != STORE_RUNNING);
        assert_true(r->n_metrics == 0 || r->metrics[0].n_samples == SAMPLES);
        store_record_destroy(r);
    }
    store_list_destroy(list);
}

/* Two writers at once, from the making of the store on, each killed at its own random moment: one
   counted from its start, the other from its first run, so that runs are stored by killed writers
   on a slow machine too. */
static void test_killed_writers(void **state)
{
    (void)state;
    enum { FROM_START, FROM_RUN, WRITERS, ROUNDS = 12 };
    unsigned seed = (unsigned)clock_ns();
    int total = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pids[WRITERS];
        int pipes[WRITERS][2];
        for (int w = 0; w < WRITERS; w++) {
            assert_int_equal(pipe(pipes[w]), 0);
            pids[w] = fork();
            assert_true(pids[w] >= 0);
            if (pids[w] == 0) writer(pipes[w][1]);
            close(pipes[w][1]);
        }
        for (int w = 0; w < WRITERS; w++) {
            int ended;
            struct pollfd said = {.fd = pipes[w][0], .events = POLLIN};
            if (w == FROM_RUN) assert_int_equal(poll(&said, 1, -1), 1);
            usleep((useconds_t)(rand_r(&seed) % 60000));
            assert_int_equal(kill(pids[w], SIGKILL), 0);
            assert_int_equal(waitpid(pids[w], &ended, 0), pids[w]);
            assert_true(WIFSIGNALED(ended));
        }
        struct store *store = open_store();
        for (int w = 0; w < WRITERS; w++) {
            total += check_said(store, pipes[w][0]);
            close(pipes[w][0]);
        }
        check_whole(store);
        store_close(store);
    }
    assert_true(total >= ROUNDS);
    print_message("%d runs stored by killed writers\n", total);
}

static void test_live_process_keeps_running(void **state)
{
    (void)state;
    struct store *store = open_store(), *second;
    char id[STORE_ID_SIZE];
    begin(store, "bench", NULL, id);
    assert_int_equal(store_open(temp_folder(), &second), SOL_OK);
    struct store_record *r;
    assert_int_equal(store_record_read(second, id, &r), SOL_OK);
    assert_int_equal(r->run.state, STORE_RUNNING);
    store_record_destroy(r);
    store_close(second);
    store_close(store);
}

static void expect_state(const char *id, enum store_state wanted)
{
    struct store *store = open_store();
    struct store_record *r;
    assert_int_equal(store_record_read(store, id, &r), SOL_OK);
    assert_int_equal(r->run.state, wanted);
    store_record_destroy(r);
    store_close(store);
}

/* Killed, and nobody has waited for it yet: a container without an init, say. */
static void test_zombie(void **state)
{
    (void)state;
    if (getenv("SOL_EMULATED")) {
        print_message("skipped: the emulator tells a process another start time than others see\n");
        skip();
    }
    char id[STORE_ID_SIZE];
    int ended, ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        begin(open_store(), "bench", NULL, id);
        if (write(ready[1], id, sizeof id) != (ssize_t)sizeof id) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], id, sizeof id), sizeof id);
    expect_state(id, STORE_RUNNING);
    assert_int_equal(kill(pid, SIGKILL), 0);
    siginfo_t info; /* it is dead, and stays a zombie */
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    expect_state(id, STORE_PARTIAL);
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    close(ready[0]);
    close(ready[1]);
}

/* More than a sweep takes at a time. */
static void test_many_killed(void **state)
{
    enum { RUNS = 150 };
    (void)state;
    int ended;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct store *store = open_store();
        char id[STORE_ID_SIZE];
        for (int i = 0; i < RUNS; i++) begin(store, "bench", NULL, id);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    struct store *store = open_store();
    struct store_list *list;
    assert_int_equal(store_list_read(store, NULL, &list), SOL_OK);
    assert_int_equal(list->count, RUNS);
    for (size_t i = 0; i < list->count; i++) assert_int_equal(list->runs[i].state, STORE_PARTIAL);
    store_list_destroy(list);
    store_close(store);
}

/* Whose process it is, with words of the owner's text replaced. */
static void test_owners(void **state)
{
    (void)state;
    struct store *store = open_store();
    char id[STORE_ID_SIZE];
    begin(store, "bench", NULL, id);
    store_close(store);
    /* This process lives, also after the machine got another name. */
    sql("UPDATE run SET owner = 'elsewhere' || substr(owner, instr(owner, ' '))");
    expect_state(id, STORE_RUNNING);
    /* No process has this number: as after a change of name with a kill. */
    sql("UPDATE run SET owner = substr(owner, 1, instr(owner, ']')) || ' 999999999 77'");
    expect_state(id, STORE_PARTIAL);
    /* Another machine's cannot be known. */
    sql("UPDATE run SET state = 'running', owner = 'elsewhere other-boot pid:[1] 1 1'");
    expect_state(id, STORE_RUNNING);
    store = open_store();
    assert_int_equal(store_run_delete(store, id), SOL_OK);
    store_close(store);
}

/* ---- stores that somebody else made ---- */

/* A folder of its own beside the store's, with victims in it. */
static void hostile_path(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/outside/%s", temp_folder(), name);
}

static struct store *hostile_store(void)
{
    char path[200];
    snprintf(path, sizeof path, "%s/outside", temp_folder());
    assert_int_equal(mkdir(path, 0777), 0);
    hostile_path(path, sizeof path, "victim");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("precious", file);
    fclose(file);
    snprintf(path, sizeof path, "%s/store", temp_folder());
    struct store *store;
    assert_int_equal(store_open(path, &store), SOL_OK);
    return store;
}

static void victim_lives(void)
{
    char path[200], text[20] = "";
    hostile_path(path, sizeof path, "victim");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "precious");
}

static void sql_in_store(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void sql_in_store(const char *fmt, ...)
{
    char path[128], text[1000], *message = NULL;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(path, sizeof path, "%s/store/store.db", temp_folder());
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, text, NULL, NULL, &message);
    assert_null(message);
    sqlite3_close(db);
}

static const char *artifact_path(const char *fmt, const char *id)
{
    static char path[300];
    const char *mark = strstr(fmt, "ID");
    int before = mark ? (int)(mark - fmt) : (int)strlen(fmt);
    snprintf(path, sizeof path, "%.*s%s%s", before, fmt, mark ? id : "", mark ? mark + 2 : "");
    return path;
}

/* The run goes and so does what is its own; what it names elsewhere stays. */
static void test_hostile_paths(void **state)
{
    static const char *const paths[] = {
        "../outside/victim",
        "artifacts/ID/../../../outside/victim",
        "artifacts/../../outside/victim",
        "outside/victim",
        "artifacts/ID/./own",
        "artifacts//own",
        "artifacts/b00000000/own",
        "artifacts/ID",
        "artifacts/ID/.hidden",
        "artifacts/ID/a\nb",
        "store.db",
        "",
    };
    (void)state;
    struct store *store = hostile_store();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char id[STORE_ID_SIZE], own[300], bad[300];
        struct stat info;
        finished(store, "bench", NULL, id);
        assert_int_equal(store_artifact_write(store, id, "trace", "own", "[]", 2), SOL_OK);
        snprintf(own, sizeof own, "%s/store/artifacts/%s/own", temp_folder(), id);
        assert_int_equal(stat(own, &info), 0);
        snprintf(bad, sizeof bad, "%s", artifact_path(paths[i], id));
        sql_in_store("INSERT INTO artifact VALUES('%s', 'trace', '%s', 8, '0')", id, bad);
        assert_int_equal(store_run_delete(store, id), SOL_E_FORMAT);
        assert_non_null(strstr(sol_last_error(), "/store"));
        assert_non_null(strstr(sol_last_error(), id));
        assert_int_equal(stat(own, &info), -1);
        assert_int_equal(store_run_delete(store, id), SOL_E_ARGUMENT); /* gone */
        victim_lives();
        snprintf(own, sizeof own, "%s/store/store.db", temp_folder());
        assert_int_equal(stat(own, &info), 0);
    }
    store_close(store);
}

/* Links lead nowhere: not the folder of all artifacts, not a run's, not a file. */
static void test_hostile_links(void **state)
{
    (void)state;
    struct store *store = hostile_store();
    char id[STORE_ID_SIZE], path[300], outside[200];
    hostile_path(outside, sizeof outside, "");
    begin(store, "bench", NULL, id);
    assert_int_equal(store_artifact_write(store, id, "trace", "own", "[]", 2), SOL_OK);
    snprintf(path, sizeof path, "%s/store/artifacts/%s/own", temp_folder(), id);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/store/artifacts/%s", temp_folder(), id);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("../../outside", path), 0);
    sql_in_store("INSERT INTO artifact VALUES('%s', 'trace', 'artifacts/%s/victim', 8, '0')", id,
                 id);
    assert_int_not_equal(store_artifact_write(store, id, "trace", "victim", "[]", 2), SOL_OK);
    victim_lives();
    store_run_delete(store, id);
    victim_lives();

    begin(store, "bench", NULL, id);
    snprintf(path, sizeof path, "%s/store/artifacts", temp_folder());
    remove(path); /* a link when it was taken for the run's folder */
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
    assert_int_equal(symlink("../outside", path), 0);
    snprintf(path, sizeof path, "%s/outside/%s", temp_folder(), id);
    assert_int_not_equal(store_artifact_write(store, id, "trace", "x", "[]", 2), SOL_OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(store_run_delete(store, id), SOL_OK);
    store_close(store);
}

/* A temporary name that is a link already. */
static void test_hostile_new_file(void **state)
{
    (void)state;
    struct store *store = hostile_store();
    char id[STORE_ID_SIZE], path[300];
    begin(store, "bench", NULL, id);
    assert_int_equal(store_artifact_write(store, id, "trace", "own", "[]", 2), SOL_OK);
    snprintf(path, sizeof path, "%s/store/artifacts/%s/own.new", temp_folder(), id);
    assert_int_equal(symlink("../../../outside/victim", path), 0);
    assert_int_equal(store_artifact_write(store, id, "trace", "own", "{}", 2), SOL_OK);
    victim_lives();
    store_close(store);
}

static void test_hostile_ids(void **state)
{
    static const char *const ids[] = {"..",         "../outside", "b/../../x", "B0000000",
                                      "b000000000", "last",       "bgggggggg", "b0000000"};
    (void)state;
    struct store *store = hostile_store();
    char id[STORE_ID_SIZE], good[STORE_ID_SIZE];
    struct store_record *record;
    struct store_list *list;
    finished(store, "bench", NULL, good);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        sql_in_store("INSERT INTO run(id, kind, created, state) VALUES('%s', 'bench', 1, 'ok')",
                     ids[i]);
        assert_int_equal(store_find(store, ids[i], NULL, id), SOL_E_FORMAT);
        assert_int_equal(store_record_read(store, ids[i], &record), SOL_E_FORMAT);
        assert_int_equal(store_run_delete(store, ids[i]), SOL_E_FORMAT);
    }
    /* The good one is not lost for that. */
    assert_int_equal(store_list_read(store, NULL, &list), SOL_OK);
    assert_int_equal(list->count, 1);
    store_list_destroy(list);
    assert_int_equal(store_find(store, good, NULL, id), SOL_OK);
    assert_int_equal(store_record_read(store, good, &record), SOL_OK);
    store_record_destroy(record);
    store_close(store);
}

/* Tables whose columns allow what ours forbid, and triggers. */
static void test_hostile_tables(void **state)
{
    (void)state;
    struct store *store = hostile_store();
    char id[STORE_ID_SIZE], other[STORE_ID_SIZE];
    struct store_record *record;
    finished(store, "bench", NULL, id);
    finished(store, "bench", NULL, other);
    store_close(store);
    sql_in_store("DROP TABLE artifact; DROP TABLE advice; DROP TABLE sample; DROP TABLE metric;"
                 "CREATE TABLE artifact(run, kind, path, size, hash);"
                 "CREATE TABLE advice(id, run, rule, subject, text, evidence, window_ns, "
                 "ceiling_ns, likely_ns);"
                 "CREATE TABLE sample(metric, idx, value, started, process, warmup, outlier, "
                 "repeated, cause);"
                 "CREATE TABLE metric(id, run, name, unit, better, value_limit, test);"
                 "INSERT INTO artifact(run) VALUES('%s');"
                 "INSERT INTO advice(run) VALUES('%s');"
                 "INSERT INTO metric(run) VALUES('%s');"
                 "CREATE TRIGGER t AFTER DELETE ON run BEGIN DELETE FROM run; END;",
                 id, id, id);
    char path[128];
    snprintf(path, sizeof path, "%s/store", temp_folder());
    assert_int_equal(store_open(path, &store), SOL_OK);
    assert_int_equal(store_record_read(store, id, &record), SOL_OK);
    assert_non_null(record->artifacts[0].kind);
    assert_non_null(record->artifacts[0].path);
    assert_non_null(record->advice[0].rule);
    assert_non_null(record->metrics[0].name);
    assert_non_null(record->metrics[0].unit);
    store_record_destroy(record);
    assert_int_equal(store_run_delete(store, id), SOL_E_FORMAT);
    assert_int_equal(store_run_delete(store, other), SOL_OK); /* the trigger has not run */
    store_close(store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_remove)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),    TEST(test_all_or_nothing), TEST(test_find),
        TEST(test_delete),        TEST(test_iterations),     TEST(test_ledger),
        TEST(test_facts),         TEST(test_newer_version),  TEST(test_not_a_store),
        TEST(test_folder),        TEST(test_killed_writers), TEST(test_live_process_keeps_running),
        TEST(test_zombie),        TEST(test_many_killed),    TEST(test_owners),
        TEST(test_hostile_paths), TEST(test_hostile_links),  TEST(test_hostile_new_file),
        TEST(test_hostile_ids),   TEST(test_hostile_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
