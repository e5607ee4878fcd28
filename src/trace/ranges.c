/* See ranges.h. */
#include "trace/ranges.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trace/timeline.h"
#include "trace/trace_file.h"

enum { BUFFER = 16 << 10, TEXT_MAX = 56, HEAD = sizeof(struct trace_block) };

struct trace_ranges {
    int file;
    const char *names[RANGES_NAMES];
    int n_names;
    struct {
        uint32_t id, name;
    } open[RANGES_DEPTH];
    int depth;
    uint32_t next_id;
    size_t size;                         /* of records that are not written yet */
    unsigned char buffer[HEAD + BUFFER]; /* a block */
};

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t); /* CUPTI's clock too */
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A full disk costs the ranges; the reader says so. */
static void flush(struct trace_ranges *r)
{
    const struct trace_block head = {TRACE_BLOCK_MAGIC, (uint32_t)r->size,
                                     trace_checksum(r->buffer + HEAD, (uint32_t)r->size)};
    if (r->size == 0) return;
    memcpy(r->buffer, &head, HEAD);
    ssize_t written = write(r->file, r->buffer, HEAD + r->size);
    (void)written;
    r->size = 0;
}

static void put(struct trace_ranges *r, const void *record, size_t size)
{
    if (r->size + size > BUFFER) flush(r);
    memcpy(r->buffer + HEAD + r->size, record, size);
    r->size += size;
}

/* Its number in the file. */
static uint32_t name_of(struct trace_ranges *r, const char *name)
{
    struct {
        struct trace_record head;
        char text[TEXT_MAX];
    } record = {.head = {TRACE_STRING, sizeof record, 0}};
    for (int i = 0; i < r->n_names; i++)
        if (strcmp(r->names[i], name) == 0) return (uint32_t)i + 1;
    if (r->n_names == RANGES_NAMES) return 0;
    r->names[r->n_names++] = name;
    record.head.name = (uint32_t)r->n_names;
    snprintf(record.text, sizeof record.text, "%s", name);
    put(r, &record, sizeof record);
    return record.head.name;
}

static bool start_file(struct trace_ranges *r)
{
    const struct trace_file_header header = {TRACE_FILE_MAGIC, TRACE_FILE_VERSION, sizeof header};
    const char *level = getenv(TRACE_ENV_LEVEL);
    struct trace_process_record process = {.record = {TRACE_PROCESS, sizeof process, 0},
                                           .pid = getpid(),
                                           .parent = getppid(),
                                           .start = now(),
                                           .level = TRACE_GRAPH,
                                           .flags = TRACE_PROCESS_MORE};
    for (int i = 0; level && i < TRACE_LEVEL_COUNT; i++)
        if (strcmp(level, trace_level_name((enum trace_level)i)) == 0) process.level = (uint32_t)i;
    if (write(r->file, &header, sizeof header) != (ssize_t)sizeof header) return false;
    put(r, &process, sizeof process);
    return true;
}

struct trace_ranges *trace_ranges_open(void)
{
    const char *folder = getenv(TRACE_ENV_FOLDER);
    char path[4096];
    if (!folder || !*folder) return NULL;
    struct trace_ranges *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    /* Behind the process's own file in the order of names. */
    snprintf(path, sizeof path, "%s/%lld-ranges" TRACE_FILE_SUFFIX, folder, (long long)getpid());
    r->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (r->file >= 0 && start_file(r)) return r;
    if (r->file >= 0) close(r->file);
    free(r);
    return NULL;
}

void trace_ranges_close(struct trace_ranges *r)
{
    if (!r) return;
    while (r->depth) trace_ranges_end(r);
    const struct trace_end_record end = {{TRACE_END, sizeof end, 0}, now()};
    put(r, &end, sizeof end);
    flush(r);
    close(r->file);
    free(r);
}

void trace_ranges_expect(struct trace_ranges *r, const char *name, int64_t kernels)
{
    if (!r || kernels < 0) return;
    const uint32_t number = name_of(r, name);
    const struct trace_expected_record record = {{TRACE_EXPECTED, sizeof record, number},
                                                 (uint64_t)kernels};
    put(r, &record, sizeof record);
}

static void mark(struct trace_ranges *r, uint32_t flag)
{
    const struct trace_marker_record record = {
        .record = {TRACE_MARKER, sizeof record, r->open[r->depth - 1].name},
        .time = now(),
        .id = r->open[r->depth - 1].id,
        .flags = flag,
        .thread = (uint32_t)getpid()};
    put(r, &record, sizeof record);
}

void trace_ranges_begin(struct trace_ranges *r, const char *name)
{
    if (!r || r->depth == RANGES_DEPTH) return;
    const uint32_t number = name_of(r, name);
    r->open[r->depth].id = ++r->next_id;
    r->open[r->depth++].name = number;
    mark(r, TRACE_MARKER_START);
}

void trace_ranges_end(struct trace_ranges *r)
{
    if (!r || r->depth == 0) return;
    mark(r, TRACE_MARKER_END);
    if (--r->depth == 0) flush(r);
}
