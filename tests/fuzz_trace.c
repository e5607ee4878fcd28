/* Trace files: whatever is accepted is a time line that every reader of it can walk. */
#include <string.h>

#include "support/fuzz.h"
#include "trace/chrome.h"
#include "trace/communication.h"
#include "trace/summary.h"
#include "trace/trace_file.h"
#include "trace/trace_read.h"
#include "trace/window.h"

/* Gives blocks the checksums that they should have, so that mutations reach the records. */
static void repair(uint8_t *data, size_t size)
{
    struct trace_file_header header = {TRACE_FILE_MAGIC, TRACE_FILE_VERSION, sizeof header};
    if (size < sizeof header) return;
    memcpy(data, &header, sizeof header);
    for (size_t at = sizeof header; size - at >= sizeof(struct trace_block);) {
        struct trace_block block;
        memcpy(&block, data + at, sizeof block);
        block.magic = TRACE_BLOCK_MAGIC;
        if (block.size > size - at - sizeof block)
            block.size = (uint32_t)((size - at - sizeof block) & ~(size_t)7);
        block.size &= ~7u;
        if (block.size > TRACE_BLOCK_MAX) block.size = TRACE_BLOCK_MAX;
        block.checksum = trace_checksum(data + at + sizeof block, block.size);
        memcpy(data + at, &block, sizeof block);
        at += sizeof block + block.size;
    }
}

static void use(const struct timeline *t)
{
    struct trace_summary summary;
    struct trace_window_set windows;
    int64_t last = INT64_MIN;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        FUZZ_REQUIRE(e->start >= last && e->end >= e->start && e->end <= t->end);
        FUZZ_REQUIRE(e->kind < EVENT_KIND_COUNT && e->process < t->n_processes);
        FUZZ_REQUIRE(e->device == TRACE_NO_DEVICE || e->device < t->n_devices);
        last = e->start;
    }
    FUZZ_REQUIRE(trace_summarize(t, TRACE_NO_DEVICE, 0, INT64_MAX, &summary) == SOL_OK);
    FUZZ_REQUIRE(summary.busy >= 0 && summary.gap >= 0 && summary.tracer >= 0);
    trace_summary_free(&summary);
    FUZZ_REQUIRE(trace_windows_find(t, NULL, &windows) == SOL_OK);
    for (size_t i = 0; i < windows.count; i++)
        FUZZ_REQUIRE(windows.windows[i].begin <= windows.windows[i].end);
    struct trace_communication c;
    FUZZ_REQUIRE(trace_communicate(t, &windows, &c) == SOL_OK);
    for (size_t i = 0; i < c.n_ranks; i++)
        FUZZ_REQUIRE(c.ranks[i].waiting >= 0 && c.ranks[i].waiting <= c.ranks[i].exposed &&
                     c.ranks[i].exposed <= c.ranks[i].total);
    trace_communication_free(&c);
    trace_windows_free(&windows);
    FILE *to = fopen("/dev/null", "w");
    FUZZ_REQUIRE(to && chrome_write(t, to, "fuzz") == SOL_OK);
    fclose(to);
}

static void read_once(const uint8_t *data, size_t size)
{
    struct timeline *t;
    FUZZ_REQUIRE(timeline_create(&t) == SOL_OK);
    enum sol_status status = trace_read_memory(t, data, size, "fuzz");
    FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_FORMAT);
    if (status == SOL_OK) {
        status = timeline_finish(t);
        FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_FORMAT);
        if (status == SOL_OK) use(t);
    }
    timeline_destroy(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_once(data, size);
    uint8_t *copy = malloc(size ? size : 1);
    FUZZ_REQUIRE(copy);
    memcpy(copy, data, size);
    repair(copy, size);
    read_once(copy, size);
    free(copy);
    return 0;
}
