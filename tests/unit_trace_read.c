/* Trace files: what is written comes back, and a file may end or be damaged anywhere. */
#include "trace/trace_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/demangle.h"
#include "trace/trace_file.h"

#define OK(call) assert_int_equal((call), SOL_OK)

struct builder {
    _Alignas(8) unsigned char data[1 << 16];
    size_t size, block; /* block: where the open one starts; 0: none */
};

static void begin(struct builder *b)
{
    struct trace_file_header header = {TRACE_FILE_MAGIC, TRACE_FILE_VERSION, sizeof header};
    memcpy(b->data, &header, sizeof header);
    b->size = sizeof header;
    b->block = 0;
}

static void put(struct builder *b, uint16_t type, const void *record, size_t size)
{
    if (b->block == 0) {
        b->block = b->size;
        b->size += sizeof(struct trace_block);
    }
    assert_true(b->size + size <= sizeof b->data);
    memcpy(b->data + b->size, record, size);
    struct trace_record *head = (void *)(b->data + b->size);
    head->type = type;
    head->size = (uint16_t)size;
    b->size += size;
}
#define PUT(b, type, ...) put(b, type, &(__VA_ARGS__), sizeof(__VA_ARGS__))

static void put_text(struct builder *b, uint32_t number, const char *text)
{
    char bytes[256] = "";
    memcpy(bytes, &(struct trace_record){.name = number}, sizeof(struct trace_record));
    strcpy(bytes + sizeof(struct trace_record), text);
    put(b, TRACE_STRING, bytes, sizeof(struct trace_record) + (strlen(text) + 7) / 8 * 8);
}

static void end_block(struct builder *b)
{
    uint32_t size = (uint32_t)(b->size - b->block - sizeof(struct trace_block));
    struct trace_block block = {TRACE_BLOCK_MAGIC, size,
                                trace_checksum(b->data + b->block + sizeof block, size)};
    memcpy(b->data + b->block, &block, sizeof block);
    b->block = 0;
}

static void put_kernel(struct builder *b, uint32_t name, int64_t start, uint64_t node)
{
    PUT(b, TRACE_KERNEL,
        (struct trace_work_record){.record.name = name,
                                   .start = start,
                                   .end = start + 100,
                                   .correlation = 5,
                                   .stream = 7,
                                   .context = 1,
                                   .shape = 1,
                                   .graph = node ? 3 : 0,
                                   .node = node});
}

enum { BASE = 1000000 };

/* Two blocks of everything. */
static void build(struct builder *b)
{
    begin(b);
    put_text(b, 1, "python run.py");
    PUT(b, TRACE_PROCESS,
        (struct trace_process_record){
            .record.name = 1, .pid = 11, .parent = 10, .start = BASE - 50, .level = TRACE_NODE});
    put_text(b, 2, "H100");
    PUT(b, TRACE_DEVICE,
        (struct trace_device_record){
            .record.name = 2, .uuid = {9}, .sm_count = 132, .memory_kbytes_per_s = 3000000000});
    put_text(b, 3, "gemm");
    PUT(b, TRACE_SHAPE,
        (struct trace_shape_record){
            .record.name = 1, .grid = {4, 2, 1}, .block = {128, 1, 1}, .registers = 99});
    put_kernel(b, 3, BASE + 1000, 0);
    put_kernel(b, 3, BASE + 2000, 77);
    put_text(b, 4, "copy HtoD");
    PUT(b, TRACE_COPY,
        (struct trace_work_record){.record.name = 4,
                                   .start = BASE + 500,
                                   .end = BASE + 600,
                                   .bytes = 4096,
                                   .from = MEMORY_PAGEABLE,
                                   .to = MEMORY_DEVICE,
                                   .flags = TRANSFER_ASYNC});
    end_block(b);
    put_text(b, 5, "cudaLaunchKernel");
    PUT(b, TRACE_API,
        (struct trace_host_record){.record.name = 5,
                                   .start = BASE + 900,
                                   .end = BASE + 950,
                                   .correlation = 5,
                                   .thread = 42});
    put_text(b, 6, "step");
    PUT(b, TRACE_MARKER,
        (struct trace_marker_record){
            .record.name = 6, .time = BASE, .id = 1, .flags = TRACE_MARKER_START, .thread = 42});
    PUT(b, TRACE_MARKER,
        (struct trace_marker_record){.time = BASE + 3000, .id = 1, .flags = TRACE_MARKER_END});
    PUT(b, TRACE_MARKER,
        (struct trace_marker_record){.time = BASE + 3000, .id = 8, .flags = TRACE_MARKER_END});
    PUT(b, TRACE_SAMPLE,
        (struct trace_sample_record){
            .time = BASE + 10, .sm_mhz = 1980, .throttle = 4, .temperature_c = INT32_MIN});
    PUT(b, TRACE_SAMPLE,
        (struct trace_sample_record){
            .time = BASE + 20, .power_mw = 300000, .temperature_c = INT32_MIN});
    PUT(b, TRACE_ALLOC,
        (struct trace_alloc_record){.time = BASE + 100, .bytes = 64, .kind = MEMORY_DEVICE});
    PUT(b, TRACE_LOST, (struct trace_lost_record){.records = 4, .timestamps = 2});
    PUT(b, TRACE_COUNT, (struct trace_count_record){.record.name = 3, .launched = 5});
    PUT(b, TRACE_COUNT, (struct trace_count_record){.record.name = 5, .in_graphs = 9});
    PUT(b, TRACE_COUNT,
        (struct trace_count_record){.record.name = 3, .launched = 1, .in_graphs = 2});
    put_text(b, 7, "a note");
    PUT(b, TRACE_NOTE, (struct trace_record){.name = 7});
    PUT(b, 999, (struct trace_record){.name = 7}); /* of a newer version */
    PUT(b, TRACE_END, (struct trace_end_record){.time = BASE + 5000});
    end_block(b);
}

static struct timeline *read_all(const struct builder *b, size_t size)
{
    struct timeline *t;
    OK(timeline_create(&t));
    OK(trace_read_memory(t, b->data, size, "test"));
    OK(timeline_finish(t));
    return t;
}

static const struct trace_event *find(const struct timeline *t, uint16_t kind, size_t nth)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].kind == kind && nth-- == 0) return &t->events[i];
    fail_msg("no event of kind %d", kind);
    return NULL;
}

static struct builder whole;

static void test_whole(void **state)
{
    (void)state;
    build(&whole);
    struct timeline *t = read_all(&whole, whole.size);
    assert_int_equal(t->count, 6);
    assert_int_equal(t->origin, BASE);
    const struct trace_event *kernel = find(t, EVENT_KERNEL, 0), *node = find(t, EVENT_KERNEL, 1);
    assert_string_equal(timeline_text(t, kernel->name), "gemm");
    assert_int_equal(kernel->start, 1000);
    assert_int_equal(kernel->end, 1100);
    assert_int_equal(kernel->track, 7);
    const struct kernel_shape *shape = timeline_event_shape(t, kernel);
    assert_int_equal(shape->grid[1], 2);
    assert_int_equal(shape->registers, 99);
    assert_int_equal(shape->node, 0);
    assert_int_equal(timeline_event_shape(t, node)->node, 77);
    assert_int_equal(timeline_event_shape(t, node)->grid[0], 4);
    const struct transfer *copy = timeline_event_transfer(t, find(t, EVENT_COPY, 0));
    assert_int_equal(copy->bytes, 4096);
    assert_int_equal(copy->from, MEMORY_PAGEABLE);
    const struct trace_event *api = find(t, EVENT_API, 0), *marker = find(t, EVENT_MARKER, 0);
    assert_int_equal(api->correlation, kernel->correlation);
    assert_string_equal(timeline_text(t, marker->name), "step");
    assert_int_equal(marker->end - marker->start, 3000);
    assert_int_equal(t->n_samples, 1); /* clock and power, 10 ns apart, are one */
    assert_int_equal(t->samples[0].sm_mhz, 1980);
    assert_int_equal(t->samples[0].power_mw, 300000);
    assert_int_equal(t->n_devices, 1);
    assert_int_equal(t->devices[0].sm_count, 132);
    assert_true(t->devices[0].memory_bandwidth == 3e12);
    assert_int_equal(t->n_counts, 2); /* one a kernel, most launches first */
    assert_int_equal(t->counts[0].in_graphs, 9);
    assert_string_equal(timeline_text(t, t->counts[1].name), "gemm");
    assert_int_equal(t->counts[1].launched, 6);
    assert_int_equal(t->counts[1].in_graphs, 2);
    assert_int_equal(t->lost.records, 4);
    assert_int_equal(t->lost.timestamps, 2);
    assert_int_equal(t->lost.unknown, 1);
    assert_int_equal(t->lost.unpaired, 1);
    assert_int_equal(t->lost.bytes, 0);
    assert_int_equal(t->n_notes, 1);
    assert_int_equal(t->n_processes, 1);
    assert_int_equal(t->processes[0].pid, 11);
    assert_true(t->processes[0].complete);
    assert_int_equal(t->processes[0].start, -50);
    assert_int_equal(t->processes[0].end, 5000);
    assert_string_equal(timeline_text(t, t->processes[0].command), "python run.py");
    assert_int_equal(t->level, TRACE_NODE);
    timeline_destroy(t);
}

/* From a copy that ends where the file does, so that the sanitizer sees a read behind it. */
static struct timeline *read_cut(size_t size)
{
    struct timeline *t;
    void *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, whole.data, size);
    OK(timeline_create(&t));
    enum sol_status status = trace_read_memory(t, copy, size, "cut");
    free(copy);
    assert_int_equal(status, size < sizeof(struct trace_file_header) ? SOL_E_FORMAT : SOL_OK);
    if (status == SOL_OK) OK(timeline_finish(t));
    return t;
}

static void test_cut(void **state)
{
    (void)state;
    build(&whole);
    size_t before = 0, steps = 0;
    for (size_t size = 1; size <= whole.size; size++) {
        struct timeline *t = read_cut(size);
        assert_true(t->count >= before);
        steps += t->count > before;
        before = t->count;
        if (size >= sizeof(struct trace_file_header) && size < whole.size) {
            if (t->n_processes) assert_false(t->processes[0].complete);
            assert_true(t->lost.bytes > 0 || t->count == 0 || t->count == 3);
        }
        timeline_destroy(t);
    }
    assert_int_equal(before, 6);
    assert_int_equal(steps, 2); /* block by block */
}

static void test_damaged(void **state)
{
    (void)state;
    build(&whole);
    for (size_t i = sizeof(struct trace_file_header); i < whole.size; i++) {
        whole.data[i] ^= 0x10;
        struct timeline *t = read_all(&whole, whole.size);
        assert_true(t->lost.bytes > 0);
        assert_true(t->count == 0 || t->count == 3);
        timeline_destroy(t);
        whole.data[i] ^= 0x10;
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct timeline *t;
    build(&whole);
    OK(timeline_create(&t));
    whole.data[8]++; /* version */
    assert_int_equal(trace_read_memory(t, whole.data, whole.size, "new"), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "version 2"));
    assert_int_equal(trace_read_memory(t, "not a trace at all", 16, "text"), SOL_E_FORMAT);
    assert_int_equal(trace_read_folder(t, "/nonexistent"), SOL_E_IO);
    timeline_destroy(t);
}

/* Numbers that nothing defined, sizes that do not fit, times that run backwards: checksums hold. */
static void test_senseless(void **state)
{
    (void)state;
    static struct builder b;
    begin(&b);
    put_text(&b, 1 << 20, "larger than a file of this size can define");
    put_kernel(&b, 1 << 20, BASE - 100, 0);
    put_kernel(&b, 12345, BASE, 0);
    PUT(&b, TRACE_KERNEL,
        (struct trace_work_record){.start = 9, .end = 5, .device = UINT32_MAX, .shape = 77});
    PUT(&b, TRACE_KERNEL, (struct trace_record){.name = 1}); /* too short */
    PUT(&b, TRACE_SHAPE, (struct trace_shape_record){.record.name = UINT32_MAX});
    PUT(&b, TRACE_COPY, (struct trace_work_record){.start = BASE, .end = BASE, .from = 200});
    PUT(&b, TRACE_DEVICE, (struct trace_device_record){.device = UINT32_MAX});
    put(&b, TRACE_NOTE, &(struct trace_record){0}, sizeof(struct trace_record));
    ((struct trace_record *)(void *)(b.data + b.size - 8))->size = 4096; /* beyond the block */
    end_block(&b);
    struct timeline *t = read_all(&b, b.size);
    assert_int_equal(t->count, 3);
    assert_int_equal(t->events[0].name, TRACE_NONE);
    assert_int_equal(t->events[1].name, TRACE_NONE);
    assert_int_equal(timeline_event_transfer(t, &t->events[2])->from, MEMORY_UNKNOWN);
    assert_int_equal(t->lost.unknown, 3);
    timeline_destroy(t);
}

static void test_two_files(void **state)
{
    (void)state;
    struct timeline *t;
    build(&whole);
    OK(timeline_create(&t));
    OK(trace_read_memory(t, whole.data, whole.size, "one"));
    OK(trace_read_memory(t, whole.data, whole.size, "two"));
    OK(timeline_finish(t));
    assert_int_equal(t->n_processes, 2);
    assert_int_equal(t->n_devices, 1); /* the same uuid */
    assert_int_equal(t->count, 12);
    timeline_destroy(t);
}

static void test_demangle(void **state)
{
    (void)state;
    char *name = demangle("_Z8rms_normPfS_i", 16);
    if (!name) {
        print_message("skipped: no C++ runtime library here\n");
        return;
    }
    assert_string_equal(name, "rms_norm(float*, float*, int)");
    free(name);
    assert_null(demangle("gemm", 4));
    assert_null(demangle("_Z", 2));
    assert_null(demangle("_Znonsense", 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),     cmocka_unit_test(test_cut),
        cmocka_unit_test(test_damaged),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_senseless), cmocka_unit_test(test_two_files),
        cmocka_unit_test(test_demangle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
