/* Files of other tools: what each holds, and what is said of damaged ones. */
#include "import/import.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "advise/advice.h"
#include "base/memory.h"
#include "base/status.h"
#include "profile/store.h"
#include "store/store_json.h"
#include "trace/window.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != SOL_OK) fail_msg("%s", sol_last_error());                                    \
    } while (0)
#define DATA SOL_SOURCE_DIR "/tests/data/import/"

static const struct store_metric *metric(const struct import *import, const char *name)
{
    for (size_t i = 0; i < import->n_metrics; i++)
        if (strcmp(import->metrics[i].name, name) == 0) return &import->metrics[i];
    fail_msg("no metric '%s'", name);
    return NULL;
}

static bool noted(const struct import *import, const char *text)
{
    for (size_t i = 0; i < import->n_notes; i++)
        if (strstr(import->notes[i], text)) return true;
    return false;
}

static void wrong(const char *data, enum sol_status status, const char *text)
{
    struct import *import;
    enum sol_status got = import_memory(data, strlen(data), "some.file", &import);
    if (got != status) fail_msg("'%s': %s", data, sol_status_name(got));
    assert_null(import);
    if (!strstr(sol_last_error(), text)) fail_msg("'%s' has no '%s'", sol_last_error(), text);
    assert_non_null(strstr(sol_last_error(), "some.file"));
}

/* ---- llama-bench ---- */

static void test_llama_bench(void **state)
{
    (void)state;
    struct import *import;
    OK(import_file(DATA "llama_bench_new.json", &import));
    assert_int_equal(import->format, IMPORT_LLAMA_BENCH);
    assert_int_equal(import->n_metrics, 4);
    const struct store_metric *m = metric(import, "tg4 @ d32");
    assert_string_equal(m->unit, "ns/token");
    assert_int_equal(m->n_samples, 3);
    assert_true(m->samples[0].value > 1000 && m->samples[0].value < 1e9);
    assert_string_equal(import->backend, "CPU");
    assert_string_equal(import->model, "builtin.gguf");
    assert_true(import->model_size > 1000000 && import->created_ns > 0);
    import_destroy(import);

    /* lines, and a setting that tells two tests apart */
    OK(import_file(DATA "llama_bench_new.jsonl", &import));
    assert_int_equal(import->n_metrics, 4);
    assert_int_equal(metric(import, "pp16 (n_threads 1)")->n_samples, 3);
    assert_int_equal(metric(import, "tg4 (n_threads 2)")->n_samples, 3);
    import_destroy(import);

    OK(import_file(DATA "llama_bench_old.json", &import));
    assert_int_equal(import->n_metrics, 2);
    assert_int_equal(metric(import, "tg4")->n_samples, 3);
    assert_string_equal(import->backend, "CPU");
    assert_non_null(strstr(import->tool, "8337e4cd3"));
    import_destroy(import);
}

static void test_llama_bench_values(void **state)
{
    (void)state;
    struct import *import;
    static const char text[] =
        "[{\"n_prompt\": 8, \"n_gen\": 2, \"cuda\": true, \"gpu_info\": \"H100\", \"unknown\": {},"
        "\"avg_ns\": 1000, \"samples_ns\": [1000, 3000]},"
        "{\"n_prompt\": 4, \"n_gen\": 0, \"n_gpu_layers\": 9, \"avg_ns\": 100}]";
    OK(import_memory(text, strlen(text), "x", &import));
    const struct store_metric *m = metric(import, "pp8+tg2");
    assert_float_equal(m->samples[0].value, 100, 1e-9);
    assert_float_equal(m->samples[1].value, 300, 1e-9);
    assert_float_equal(metric(import, "pp4")->samples[0].value, 25, 1e-9);
    assert_true(noted(import, "only the mean"));
    assert_string_equal(import->backend, "cuda");
    assert_string_equal(import->device, "H100");
    import_destroy(import);
    wrong("[{\"avg_ns\": 5}]", SOL_E_FORMAT, "record 1");
    wrong("[{\"avg_ns\": 5, \"n_gen\": 1, \"n_prompt\": -7}]", SOL_E_FORMAT, "record 1");
    wrong("[{\"n_gen\": 1, \"avg_ns\": \"x\"}]", SOL_E_FORMAT, "no test in it has a time");
    wrong("[{\"n_gen\": 1, \"avg_ns\": 1}, 5]", SOL_E_FORMAT, "record 2");
}

/* ---- Nsight Compute ---- */

static void test_ncu(void **state)
{
    (void)state;
    struct import *import;
    OK(import_file(DATA "ncu_raw.csv", &import));
    assert_int_equal(import->format, IMPORT_NCU);
    assert_int_equal(import->counters.count, 2);
    const struct kernel_counters *k = &import->counters.kernels[0];
    assert_string_equal(k->name, "void gemm_kernel<128, 64>(const float *, float *)");
    assert_int_equal(k->calls, 2);
    assert_float_equal(k->duration_ns, 13000, 1e-6);
    assert_float_equal(k->dram_bytes, 33554432, 1e-3);
    assert_float_equal(k->memory, 85.2, 1e-9);
    assert_float_equal(k->wavefronts, 250000, 1e-6);
    assert_float_equal(k->stalls[STALL_LONG_SCOREBOARD], 4.1, 1e-9);
    assert_float_equal(k->bytes_per_sector, 32, 1e-9);
    k = &import->counters.kernels[1];
    assert_true(isnan(k->bytes_per_sector)); /* n/a */
    assert_float_equal(k->local_sectors, 8192, 1e-9);

    struct rules_report r;
    OK(rules_run(&(struct rules_input){.counters = &import->counters}, NULL, &r));
    bool occupancy = false, stall = false, spill = false, other = false;
    for (size_t i = 0; i < r.count; i++) {
        const char *rule = r.findings[i].rule->name;
        other = other || strstr(r.findings[i].subject, "gemm") != NULL;
        occupancy = occupancy || strcmp(rule, "occupancy") == 0;
        stall = stall || strcmp(rule, "stall") == 0;
        spill = spill || strcmp(rule, "spill") == 0;
    }
    assert_true(occupancy && stall && spill && !other);
    rules_report_free(&r);
    import_destroy(import);

    OK(import_file(DATA "ncu_metrics.csv", &import));
    assert_int_equal(import->counters.count, 1);
    k = &import->counters.kernels[0];
    assert_int_equal(k->calls, 2);
    assert_float_equal(k->dram_bytes, 2e6, 1e-3); /* read and written */
    assert_float_equal(k->duration_ns, 5000, 1e-6);
    assert_true(noted(import, "no speed-of-light"));
    import_destroy(import);

    wrong("ID,Kernel Name,gpu__time_duration.sum\n", SOL_E_FORMAT, "units");
    wrong("ID,Kernel Name,gpu__time_duration.sum\n,,ns\n1,k\n", SOL_E_FORMAT,
          ":3: a row of another");
    wrong("ID,Kernel Name,x\n,,ns\n1,k,3\n", SOL_E_FORMAT, "none of its columns");
    wrong("ID,Kernel Name,x\n,,ns\n\"1,k,3\n", SOL_E_FORMAT, "quote");
    wrong("\"Kernel Name\",\"Metric Name\"\n1,2\n", SOL_E_FORMAT, "no header");
}

/* ---- NVBench ---- */

static void test_nvbench(void **state)
{
    (void)state;
    struct import *import;
    OK(import_file(DATA "nvbench.json", &import));
    assert_int_equal(import->format, IMPORT_NVBENCH);
    assert_int_equal(import->n_metrics, 2);
    assert_float_equal(metric(import, "gemm K=1024")->samples[0].value, 12500, 1e-6);
    assert_float_equal(metric(import, "gemm K=4096")->samples[0].value, 50000, 1e-6);
    assert_non_null(strstr(metric(import, "gemm K=1024")->test_json, "2048"));
    assert_true(noted(import, "not enough memory"));
    assert_string_equal(import->device, "NVIDIA H100 80GB HBM3");
    import_destroy(import);
    wrong("{\"benchmarks\": []}", SOL_E_FORMAT, "no state");
    wrong("{\"benchmarks\": [{\"states\": [{\"summaries\": [{\"tag\": "
          "\"nv/cold/time/gpu/mean\", \"data\": [{\"name\": \"value\", \"value\": \"nan\"}]}]}]}]}",
          SOL_E_FORMAT, "no state");
}

/* ---- Nsight Systems ---- */

static void run_sql(sqlite3 *db, const char *sql)
{
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) fail_msg("%s", why);
}

/* The database of nsys.sql, changed by `more`. Freed with sqlite3_free. */
static unsigned char *database(const char *more, size_t *size)
{
    struct mapped_file file;
    sqlite3 *db;
    sqlite3_int64 n;
    OK(mapped_file_open(DATA "nsys.sql", &file));
    char *text = strndup(file.data, file.size);
    mapped_file_close(&file);
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    run_sql(db, text);
    free(text);
    run_sql(db, more);
    unsigned char *data = sqlite3_serialize(db, "main", &n, 0);
    assert_non_null(data);
    *size = (size_t)n;
    sqlite3_close(db);
    return data;
}

static enum sol_status import_database(const char *more, struct import **out)
{
    size_t size;
    unsigned char *data = database(more, &size);
    enum sol_status status = import_memory(data, size, "nsys.sqlite", out);
    sqlite3_free(data);
    return status;
}

static void test_nsys(void **state)
{
    (void)state;
    struct import *import;
    OK(import_database("", &import));
    assert_int_equal(import->format, IMPORT_NSYS);
    assert_int_equal(import->n_notes, 0);
    const struct timeline *t = import->timeline;
    size_t counts[EVENT_KIND_COUNT] = {0};
    for (size_t i = 0; i < t->count; i++) counts[t->events[i].kind]++;
    assert_int_equal(counts[EVENT_KERNEL], 30);
    assert_int_equal(counts[EVENT_COPY], 10);
    assert_int_equal(counts[EVENT_API], 50);
    assert_int_equal(counts[EVENT_SYNC], 10);
    assert_int_equal(counts[EVENT_MARKER], 10);
    assert_string_equal(import->device, "NVIDIA H100");
    assert_int_equal(t->devices[0].sm_count, 132);
    assert_int_equal(t->processes[0].pid, 100);
    for (size_t i = 0; i < t->count; i++) {
        const struct transfer *c = timeline_event_transfer(t, &t->events[i]);
        if (t->events[i].kind != EVENT_COPY) continue;
        assert_int_equal(c->to, MEMORY_PAGEABLE);
        assert_true(c->flags & TRANSFER_ASYNC);
    }

    /* the faults in it are found */
    struct trace_window_set windows = {0};
    struct rules_report r;
    OK(trace_windows_find(t, NULL, &windows));
    assert_int_equal(windows.method, WINDOW_MARKER);
    assert_int_equal(windows.count, 10);
    OK(rules_run(&(struct rules_input){.timeline = t, .windows = &windows}, NULL, &r));
    bool pageable = false, unfused = false;
    for (size_t i = 0; i < r.count; i++) {
        pageable = pageable || strcmp(r.findings[i].rule->name, "pageable") == 0;
        unfused = unfused || strcmp(r.findings[i].rule->name, "unfused") == 0;
    }
    assert_true(pageable && !unfused); /* one silu a step is no pattern */
    rules_report_free(&r);
    trace_windows_free(&windows);
    import_destroy(import);
}

static void test_nsys_incomplete(void **state)
{
    (void)state;
    struct import *import;
    OK(import_database("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE NVTX_EVENTS;"
                       "DROP TABLE TARGET_INFO_GPU; DROP TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;"
                       "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN demangledName;"
                       "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN deviceId;"
                       "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN end",
                       &import));
    assert_true(noted(import, "RUNTIME") && noted(import, "TARGET_INFO_GPU") &&
                noted(import, "SYNCHRONIZATION") && noted(import, "MEMCPY has no column end"));
    assert_int_equal(import->timeline->count, 30);
    assert_string_equal(timeline_text(import->timeline, import->timeline->events[0].name),
                        "gemm_kernel"); /* the short name */
    import_destroy(import);
    OK(import_database("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 0, end = 0 WHERE rowid < 4",
                       &import));
    assert_int_equal(import->timeline->lost.timestamps, 3);
    import_destroy(import);
    assert_int_equal(import_database("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL;"
                                     "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY",
                                     &import),
                     SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "no kernels"));
    assert_int_equal(
        import_database("DROP TABLE StringIds; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", &import),
        SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "no export of nsys"));

    size_t size;
    unsigned char *data = database("", &size);
    memset(data + 4096, 0x5a, size - 4096);
    assert_int_equal(import_memory(data, size, "damaged", &import), SOL_E_FORMAT);
    assert_int_equal(import_memory(data, 100, "cut", &import), SOL_E_FORMAT);
    sqlite3_free(data);
}

/* ---- formats, and the store ---- */

static void test_unknown(void **state)
{
    (void)state;
    wrong("", SOL_E_FORMAT, "an empty file");
    wrong("  \n", SOL_E_FORMAT, "an empty file");
    wrong("hello", SOL_E_FORMAT, "of no known format");
    wrong("[]", SOL_E_FORMAT, "an empty list");
    wrong("[1]", SOL_E_FORMAT, "no known kind");
    wrong("{\"a\": 1}", SOL_E_FORMAT, "no known kind");
    wrong("{\"a\": 1}\n{\"b\": \n", SOL_E_FORMAT, ":2: no JSON");
    wrong("[1,", SOL_E_FORMAT, "no JSON");
    struct import *import;
    assert_int_equal(import_file("/nowhere/at.all", &import), SOL_E_IO);
}

static struct store *open_store(char folder[64])
{
    struct store *store;
    strcpy(folder, "/tmp/sol-import-XXXXXX");
    assert_non_null(mkdtemp(folder));
    OK(store_open(folder, &store));
    return store;
}

static void remove_store(struct store *store, const char *folder)
{
    char command[128];
    store_close(store);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_store(void **state)
{
    (void)state;
    char folder[64], id[STORE_ID_SIZE], again[STORE_ID_SIZE], word[] = "import";
    char *argv[] = {word};
    struct store *store = open_store(folder);
    struct import *import;
    struct store_record *record, *copy;
    OK(import_file(DATA "llama_bench_new.json", &import));
    OK(import_store(store, import, "x/llama.json", "mine", 1, argv, id));
    import_destroy(import);
    OK(store_record_read(store, id, &record));
    assert_string_equal(record->run.kind, "import");
    assert_string_equal(record->run.label, "mine");
    assert_int_equal(record->n_metrics, 4);

    /* sol's own JSON brings the same back */
    json_t *json = store_record_json(record);
    char *text = json_dumps(json, 0);
    json_decref(json);
    OK(import_memory(text, strlen(text), "run.json", &import));
    free(text);
    assert_int_equal(import->format, IMPORT_SOL);
    OK(import_store(store, import, "run.json", NULL, 1, argv, again));
    import_destroy(import);
    OK(store_record_read(store, again, &copy));
    assert_int_equal(copy->n_metrics, record->n_metrics);
    for (size_t i = 0; i < copy->n_metrics; i++) {
        assert_string_equal(copy->metrics[i].name, record->metrics[i].name);
        assert_int_equal(copy->metrics[i].n_samples, record->metrics[i].n_samples);
        assert_float_equal(copy->metrics[i].samples[0].value, record->metrics[i].samples[0].value,
                           1e-9);
    }
    store_record_destroy(copy);
    store_record_destroy(record);

    OK(import_database("", &import));
    OK(import_store(store, import, "nsys.sqlite", NULL, 1, argv, id));
    import_destroy(import);
    OK(store_record_read(store, id, &record));
    assert_string_equal(record->run.kind, "profile");
    assert_int_equal(record->n_kernels, 3);
    assert_string_equal(record->kernels[0].metric, "step");
    assert_string_equal(store_record_metric(record, "step")->unit, "ns");
    assert_int_equal(store_record_metric(record, "step")->n_samples, 10);
    store_record_destroy(record);

    OK(import_file(DATA "ncu_raw.csv", &import));
    OK(import_store(store, import, "ncu.csv", NULL, 1, argv, id));
    OK(store_record_read(store, id, &record));
    assert_int_equal(record->n_kernels, 2);
    store_record_destroy(record);
    struct rules_report r;
    OK(rules_run(&(struct rules_input){.counters = &import->counters}, store, &r));
    OK(advice_store(store, id, &r));
    OK(advice_store(store, id, &r)); /* once */
    OK(store_record_read(store, id, &record));
    assert_int_equal(record->n_advice, r.count);
    assert_float_equal(record->advice[0].likely_ns, record->advice[0].ceiling_ns / 2, 1e-6);
    store_record_destroy(record);
    rules_report_free(&r);
    import_destroy(import);
    remove_store(store, folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_bench), cmocka_unit_test(test_llama_bench_values),
        cmocka_unit_test(test_ncu),         cmocka_unit_test(test_nvbench),
        cmocka_unit_test(test_nsys),        cmocka_unit_test(test_nsys_incomplete),
        cmocka_unit_test(test_unknown),     cmocka_unit_test(test_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
