/* What a program of sol's says of its steps to who traces it, beside the kernels that the tracer
 * saw: through files, as in sol profile. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "trace/expected.h"
#include "trace/ranges.h"
#include "trace/trace_file.h"
#include "trace/trace_read.h"
#include "trace/window.h"

#define OK(call) assert_int_equal((call), SOL_OK)

enum { STEPS = 5, MICRO = 7, UPDATE = 3 };

static char folder[] = "/tmp/sol-ranges-XXXXXX";
static uint32_t correlation;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the tracer's file of this process ---- */

struct tracer {
    unsigned char data[1 << 16];
    size_t size;
    int64_t device_time; /* the device's work comes later than the calls */
};

static void put(struct tracer *w, const void *record, size_t size)
{
    assert_true(w->size + size <= sizeof w->data);
    memcpy(w->data + w->size, record, size);
    w->size += size;
}

static void put_name(struct tracer *w, uint32_t number, const char *text)
{
    struct {
        struct trace_record head;
        char text[32];
    } record = {.head = {TRACE_STRING, sizeof record, number}};
    snprintf(record.text, sizeof record.text, "%s", text);
    put(w, &record, sizeof record);
}

static void begin(struct tracer *w, enum trace_level level)
{
    *w = (struct tracer){.device_time = now() + 1000000000};
    const struct trace_process_record process = {
        .record = {TRACE_PROCESS, sizeof process, 4}, .pid = getpid(), .level = (uint32_t)level};
    put_name(w, 1, "launch");
    put_name(w, 2, "matmul");
    put_name(w, 3, "transpose");
    put_name(w, 4, "sol train bench");
    put(w, &process, sizeof process);
}

/* One call that starts `kernels` kernels, as a graph does; the last `transposes` transpose.
 * `whole`: the graph is not taken apart. */
static void launch(struct tracer *w, int kernels, int transposes, bool whole)
{
    const int64_t at = now();
    const struct trace_host_record call = {.record = {TRACE_API, sizeof call, 1},
                                           .start = at,
                                           .end = at + 1,
                                           .correlation = ++correlation};
    put(w, &call, sizeof call);
    for (int i = 0; i < (whole ? 1 : kernels); i++) {
        const struct trace_work_record work = {.record = {whole ? TRACE_GRAPH_RUN : TRACE_KERNEL,
                                                          sizeof work,
                                                          i >= kernels - transposes ? 3 : 2},
                                               .start = w->device_time,
                                               .end = w->device_time + 100,
                                               .correlation = correlation,
                                               .graph = 9};
        w->device_time += 200;
        put(w, &work, sizeof work);
    }
}

static void finish(struct tracer *w)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%d-17.soltrace", folder, (int)getpid());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    const struct trace_end_record end = {{TRACE_END, sizeof end, 0}, now()};
    put(w, &end, sizeof end);
    const struct trace_file_header header = {TRACE_FILE_MAGIC, TRACE_FILE_VERSION, sizeof header};
    const struct trace_block block = {TRACE_BLOCK_MAGIC, (uint32_t)w->size,
                                      trace_checksum(w->data, (uint32_t)w->size)};
    fwrite(&header, sizeof header, 1, file);
    fwrite(&block, sizeof block, 1, file);
    fwrite(w->data, w->size, 1, file);
    assert_int_equal(fclose(file), 0);
}

static void clean(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* ---- a run of steps under it ---- */

struct fault {
    int step;       /* which step is wrong; -1: none */
    int kernels;    /* more in its update */
    int transposes; /* of each micro-batch */
    bool whole;
};

static struct timeline *trace(const struct fault *fault)
{
    static struct tracer w;
    struct timeline *t;
    setenv(TRACE_ENV_FOLDER, folder, 1);
    setenv(TRACE_ENV_LEVEL, "node", 1);
    struct trace_ranges *r = trace_ranges_open();
    assert_non_null(r);
    begin(&w, TRACE_NODE);
    launch(&w, 11, 0, false); /* before the first step */
    for (int i = 0; i < STEPS; i++) {
        trace_ranges_begin(r, "step");
        for (int m = 0; m < 2; m++) {
            trace_ranges_begin(r, "micro-batch");
            launch(&w, MICRO, fault->transposes, fault->whole);
            trace_ranges_end(r);
        }
        trace_ranges_begin(r, "update");
        launch(&w, UPDATE + (i == fault->step ? fault->kernels : 0), 0, false);
        trace_ranges_end(r);
        trace_ranges_end(r);
        if (i > 0) continue;
        trace_ranges_expect(r, "micro-batch", MICRO);
        trace_ranges_expect(r, "update", UPDATE);
    }
    trace_ranges_close(r);
    finish(&w);
    OK(timeline_create(&t));
    OK(trace_read_folder(t, folder));
    clean();
    return t;
}

static const struct fault none = {.step = -1};

static void test_steps(void **state)
{
    (void)state;
    struct trace_window_set windows;
    struct trace_launches launches;
    char text[TRACE_UNSOUND];
    struct timeline *t = trace(&none);
    assert_int_equal(t->n_processes, 1);
    assert_int_equal(t->level, TRACE_NODE);
    assert_true(t->processes[0].complete);
    assert_int_equal(t->lost.unknown + t->lost.unpaired + t->lost.bytes, 0);
    OK(trace_windows_find(t, NULL, &windows));
    assert_int_equal(windows.method, WINDOW_MARKER);
    assert_string_equal(timeline_text(t, windows.name), "step");
    assert_int_equal(windows.count, STEPS);
    for (size_t i = 0; i < windows.count; i++)
        assert_int_equal(windows.windows[i].works, 2 * MICRO + UPDATE);
    trace_windows_free(&windows);
    OK(trace_windows_find(t, "update", &windows));
    assert_int_equal(windows.count, STEPS);
    assert_int_equal(windows.windows[0].works, UPDATE);
    trace_windows_free(&windows);
    OK(trace_launches_count(t, &launches));
    assert_int_equal(launches.count, 2);
    assert_string_equal(timeline_text(t, launches.items[0].name), "micro-batch");
    assert_int_equal(launches.items[0].ranges, 2 * STEPS);
    assert_int_equal(launches.items[0].least, MICRO);
    assert_int_equal(launches.items[0].most, MICRO);
    assert_int_equal(launches.items[1].ranges, STEPS);
    assert_float_equal(trace_launches_preparing(&launches), 0, 0);
    assert_null(trace_launches_unsound(t, &launches, text));
    trace_launches_free(&launches);
    timeline_destroy(t);
}

static void check_unsound(const struct fault *fault, const char *wanted)
{
    struct trace_launches launches;
    char text[TRACE_UNSOUND];
    struct timeline *t = trace(fault);
    OK(trace_launches_count(t, &launches));
    const char *got = trace_launches_unsound(t, &launches, text);
    if (wanted) assert_string_equal(got, wanted);
    if (!wanted) assert_null(got);
    trace_launches_free(&launches);
    timeline_destroy(t);
}

static void test_faults(void **state)
{
    (void)state;
    check_unsound(&(struct fault){.step = 3, .kernels = 1},
                  "1 of 5 of 'update' launched 3 to 4 kernels, the plan has 3");
    check_unsound(&(struct fault){.step = 0, .kernels = -2},
                  "1 of 5 of 'update' launched 1 to 3 kernels, the plan has 3");
    /* 2 of 17 kernels of equal length */
    check_unsound(&(struct fault){.step = -1, .transposes = 1},
                  "quantising and transposing take 11.8 % of the kernels' time, more than 10 %");
    check_unsound(&(struct fault){.step = -1, .whole = true}, NULL); /* not known */
}

/* Without a tracer, and where its folder is gone. */
static void test_nobody(void **state)
{
    (void)state;
    unsetenv(TRACE_ENV_FOLDER);
    assert_null(trace_ranges_open());
    setenv(TRACE_ENV_FOLDER, "/nowhere/at/all", 1);
    assert_null(trace_ranges_open());
    trace_ranges_begin(NULL, "step");
    trace_ranges_end(NULL);
    trace_ranges_expect(NULL, "step", 3);
    trace_ranges_close(NULL);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_faults),
                                       cmocka_unit_test(test_nobody)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
