/* Nsight Systems' SQLite export. Its tables come into being only with their first row, and columns
 * come and go with versions, so each query is built from the columns that are there. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/import_private.h"

#include "base/memory.h"

enum { COLUMNS_MAX = 24, SQL_SIZE = 2048, DEVICES_MAX = 64, PROCESSES_MAX = 4096 };

struct name {
    int64_t id;
    uint32_t string;
};

struct reader {
    struct import *import;
    sqlite3 *db;
    const char *file;
    struct timeline *t;
    struct name *names; /* by id */
    size_t n_names;
    int64_t *async; /* correlations (with process) of calls that do not wait, sorted */
    size_t n_async, async_room;
    int64_t pids[PROCESSES_MAX];
    uint16_t processes[PROCESSES_MAX];
    size_t n_processes;
    int64_t device_ids[DEVICES_MAX];
    uint16_t devices[DEVICES_MAX];
    size_t n_devices;
    uint16_t level;
};

static enum sol_status sql_failed(const struct reader *r)
{
    int code = sqlite3_errcode(r->db);
    return status_set(code == SQLITE_NOMEM ? SOL_E_MEMORY : SOL_E_FORMAT, "%s: %s", r->file,
                      sqlite3_errmsg(r->db));
}

/* ---- queries of what is there ---- */

static enum sol_status has_table(const struct reader *r, const char *table, bool *out)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(r->db, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
                           -1, &s, NULL) != SQLITE_OK)
        return sql_failed(r);
    sqlite3_bind_text(s, 1, table, -1, SQLITE_STATIC);
    int step = sqlite3_step(s);
    *out = step == SQLITE_ROW;
    sqlite3_finalize(s);
    return step == SQLITE_ROW || step == SQLITE_DONE ? SOL_OK : sql_failed(r);
}

static enum sol_status has_column(const struct reader *r, const char *table, const char *column,
                                  size_t length, bool *out)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(r->db, "SELECT 1 FROM pragma_table_info(?) WHERE name = ?", -1, &s,
                           NULL) != SQLITE_OK)
        return sql_failed(r);
    sqlite3_bind_text(s, 1, table, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, column, (int)length, SQLITE_STATIC);
    int step = sqlite3_step(s);
    *out = step == SQLITE_ROW;
    sqlite3_finalize(s);
    return step == SQLITE_ROW || step == SQLITE_DONE ? SOL_OK : sql_failed(r);
}

/* Adds the first of "a|b|c" that the table has, or NULL. */
static enum sol_status add_column(const struct reader *r, const char *table, const char *choices,
                                  char *sql, bool *found)
{
    size_t at = strlen(sql);
    *found = false;
    for (const char *c = choices; *c && !*found;) {
        size_t n = strcspn(c, "|");
        SOL_TRY(has_column(r, table, c, n, found));
        if (*found) snprintf(sql + at, SQL_SIZE - at, "\"%.*s\"", (int)n, c);
        c += n + (c[n] == '|');
    }
    if (!*found) snprintf(sql + at, SQL_SIZE - at, "NULL");
    return SOL_OK;
}

/* A query of these columns (each "name" or "name|older name"), NULL for those that are missing.
 * *out is NULL, with a note, when there is no such table or one of the first `required` is missing.
 */
static enum sol_status open_table(const struct reader *r, const char *table,
                                  const char *const *columns, int n, int required,
                                  sqlite3_stmt **out)
{
    char sql[SQL_SIZE] = "SELECT ";
    bool found = false;
    *out = NULL;
    SOL_TRY(has_table(r, table, &found));
    if (!found) return SOL_OK;
    for (int i = 0; i < n; i++) {
        SOL_TRY(add_column(r, table, columns[i], sql, &found));
        if (!found && i < required)
            return import_note(r->import, "%s has no column %s and is left out", table, columns[i]);
        if (i + 1 < n) strcat(sql, ", ");
    }
    size_t at = strlen(sql);
    snprintf(sql + at, sizeof sql - at, " FROM \"%s\"", table);
    return sqlite3_prepare_v2(r->db, sql, -1, out, NULL) == SQLITE_OK ? SOL_OK : sql_failed(r);
}

typedef enum sol_status row_fn(struct reader *r, sqlite3_stmt *row);

static enum sol_status each_row(struct reader *r, const char *table, const char *const *columns,
                                int n, int required, row_fn *fn, size_t *rows)
{
    sqlite3_stmt *s;
    *rows = 0;
    SOL_TRY(open_table(r, table, columns, n, required, &s));
    if (!s) return SOL_OK;
    enum sol_status status = SOL_OK;
    int step = SQLITE_DONE;
    while (status == SOL_OK && (step = sqlite3_step(s)) == SQLITE_ROW) {
        status = fn(r, s);
        ++*rows;
    }
    if (status == SOL_OK && step != SQLITE_DONE) status = sql_failed(r);
    sqlite3_finalize(s);
    return status;
}

/* ---- names, processes, devices ---- */

static enum sol_status read_name(struct reader *r, sqlite3_stmt *row)
{
    enum { ROOM_STEP = 4096 };
    if (r->n_names % ROOM_STEP == 0) {
        struct name *grown = realloc(r->names, (r->n_names + ROOM_STEP) * sizeof *grown);
        if (!grown) return status_set(SOL_E_MEMORY, "out of memory for names");
        r->names = grown;
    }
    const char *text = (const char *)sqlite3_column_text(row, 1);
    struct name *name = &r->names[r->n_names];
    name->id = sqlite3_column_int64(row, 0);
    if (!text) text = "";
    SOL_TRY(timeline_string(r->t, text, strlen(text), &name->string));
    r->n_names++;
    return SOL_OK;
}

static int by_id(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_number(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* A column holds an id of StringIds, or the text itself. */
static enum sol_status name_of(struct reader *r, sqlite3_stmt *row, int column, uint32_t *out)
{
    *out = TRACE_NONE;
    if (sqlite3_column_type(row, column) == SQLITE_TEXT) {
        const char *text = (const char *)sqlite3_column_text(row, column);
        return text ? timeline_string(r->t, text, strlen(text), out) : SOL_OK;
    }
    if (sqlite3_column_type(row, column) == SQLITE_NULL || r->n_names == 0) return SOL_OK;
    struct name key = {.id = sqlite3_column_int64(row, column)};
    const struct name *name = bsearch(&key, r->names, r->n_names, sizeof key, by_id);
    if (name) *out = name->string;
    return SOL_OK;
}

static enum sol_status fixed_name(struct reader *r, const char *text, uint32_t *out)
{
    return timeline_string(r->t, text, strlen(text), out);
}

/* globalPid and globalTid hold the process in bits 24 to 47. */
static enum sol_status process_of(struct reader *r, int64_t global, uint16_t *out)
{
    int64_t pid = (int64_t)((uint64_t)global >> 24 & 0xffffff);
    for (size_t i = r->n_processes; i-- > 0;)
        if (r->pids[i] == pid) {
            *out = r->processes[i];
            return SOL_OK;
        }
    if (r->n_processes == PROCESSES_MAX) {
        *out = r->processes[0];
        return SOL_OK;
    }
    struct trace_process process = {
        .pid = pid, .command = TRACE_NONE, .level = r->level, .complete = true};
    SOL_TRY(timeline_add_process(r->t, &process, out));
    r->pids[r->n_processes] = pid;
    r->processes[r->n_processes++] = *out;
    return SOL_OK;
}

static enum sol_status device_of(struct reader *r, int64_t id, uint16_t *out)
{
    for (size_t i = 0; i < r->n_devices; i++)
        if (r->device_ids[i] == id) {
            *out = r->devices[i];
            return SOL_OK;
        }
    *out = 0;
    if (r->n_devices == DEVICES_MAX) return SOL_OK;
    SOL_TRY(timeline_add_device(r->t, &(struct trace_device){.name = TRACE_NONE}, out));
    r->device_ids[r->n_devices] = id;
    r->devices[r->n_devices++] = *out;
    return SOL_OK;
}

static enum sol_status read_gpu(struct reader *r, sqlite3_stmt *row)
{
    struct trace_device d = {
        .memory_bytes = (uint64_t)sqlite3_column_int64(row, 2),
        .memory_bandwidth = sqlite3_column_double(row, 3),
        .sm_count = (uint32_t)sqlite3_column_int(row, 4),
        .clock_hz = sqlite3_column_double(row, 5),
        .compute_major = (uint32_t)sqlite3_column_int(row, 6),
        .compute_minor = (uint32_t)sqlite3_column_int(row, 7),
        .warp_size = (uint32_t)sqlite3_column_int(row, 8),
    };
    if (r->n_devices == DEVICES_MAX) return SOL_OK;
    SOL_TRY(name_of(r, row, 1, &d.name));
    enum sol_status status = SOL_OK;
    if (!r->import->device) {
        const char *text = timeline_text(r->t, d.name);
        r->import->device = import_text(r->import, *text ? text : NULL, &status);
    }
    SOL_TRY(status);
    SOL_TRY(timeline_add_device(r->t, &d, &r->devices[r->n_devices]));
    r->device_ids[r->n_devices++] = sqlite3_column_int64(row, 0);
    return SOL_OK;
}

/* ---- events ---- */

/* Columns that all device events begin with. */
#define DEVICE_COLUMNS                                                                             \
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"
enum { START, END, DEVICE, CONTEXT, STREAM, CORRELATION, PID, FIRST_OWN };

/* Fills in what all have; false when the times are missing, which is counted. */
static enum sol_status device_event(struct reader *r, sqlite3_stmt *row, enum event_kind kind,
                                    struct trace_event *e, bool *timed)
{
    *e = (struct trace_event){.start = sqlite3_column_int64(row, START),
                              .end = sqlite3_column_int64(row, END),
                              .name = TRACE_NONE,
                              .detail = TRACE_NONE,
                              .correlation = (uint32_t)sqlite3_column_int64(row, CORRELATION),
                              .track = (uint32_t)sqlite3_column_int64(row, STREAM),
                              .kind = (uint16_t)kind,
                              .context = (uint16_t)sqlite3_column_int64(row, CONTEXT)};
    *timed = e->end > 0 && e->start >= 0 && e->end >= e->start;
    if (!*timed) r->t->lost.timestamps++;
    SOL_TRY(process_of(r, sqlite3_column_int64(row, PID), &e->process));
    return device_of(r, sqlite3_column_int64(row, DEVICE), &e->device);
}

static uint32_t unsigned_of(sqlite3_stmt *row, int column)
{
    int64_t value = sqlite3_column_int64(row, column);
    return value < 0 || value > UINT32_MAX ? 0 : (uint32_t)value;
}

static const char *const kernel_columns[] = {DEVICE_COLUMNS,
                                             "demangledName|shortName|mangledName|name",
                                             "gridX",
                                             "gridY",
                                             "gridZ",
                                             "blockX",
                                             "blockY",
                                             "blockZ",
                                             "registersPerThread",
                                             "staticSharedMemory",
                                             "dynamicSharedMemory",
                                             "localMemoryPerThread",
                                             "graphNodeId"};

/* The upper half of a node's id is its graph's. */
static uint32_t graph_of_node(uint64_t node)
{
    return node == 0 ? 0 : node >> 32 ? (uint32_t)(node >> 32) : 1;
}

static enum sol_status read_kernel(struct reader *r, sqlite3_stmt *row)
{
    struct trace_event e;
    struct kernel_shape shape;
    bool timed;
    SOL_TRY(device_event(r, row, EVENT_KERNEL, &e, &timed));
    if (!timed) return SOL_OK;
    memset(&shape, 0, sizeof shape);
    for (int i = 0; i < 3; i++) {
        shape.grid[i] = unsigned_of(row, FIRST_OWN + 1 + i);
        shape.block[i] = unsigned_of(row, FIRST_OWN + 4 + i);
    }
    shape.registers = unsigned_of(row, FIRST_OWN + 7);
    shape.shared_static = unsigned_of(row, FIRST_OWN + 8);
    shape.shared_dynamic = unsigned_of(row, FIRST_OWN + 9);
    shape.local = unsigned_of(row, FIRST_OWN + 10);
    shape.node = (uint64_t)sqlite3_column_int64(row, FIRST_OWN + 11);
    shape.graph = graph_of_node(shape.node);
    SOL_TRY(name_of(r, row, FIRST_OWN, &e.name));
    SOL_TRY(timeline_shape(r->t, &shape, &e.detail));
    return timeline_add(r->t, &e);
}

static uint8_t memory_of(sqlite3_stmt *row, int column)
{
    static const uint8_t kinds[] = {MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE, MEMORY_ARRAY,
                                    MEMORY_MANAGED,  MEMORY_DEVICE, MEMORY_MANAGED};
    int64_t kind = sqlite3_column_int64(row, column);
    bool known = sqlite3_column_type(row, column) == SQLITE_INTEGER && kind >= 0 &&
                 kind < (int64_t)sizeof kinds;
    return known ? kinds[kind] : MEMORY_UNKNOWN;
}

static int64_t call_key(uint16_t process, uint32_t correlation)
{
    return (int64_t)process << 32 | correlation;
}

static const char *const copy_columns[] = {DEVICE_COLUMNS, "bytes",   "copyKind",
                                           "srcKind",      "dstKind", "graphNodeId"};

static enum sol_status read_copy(struct reader *r, sqlite3_stmt *row)
{
    static const char *const names[] = {"copy", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                        "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
    struct trace_event e;
    struct transfer c;
    bool timed;
    SOL_TRY(device_event(r, row, EVENT_COPY, &e, &timed));
    if (!timed) return SOL_OK;
    memset(&c, 0, sizeof c);
    int64_t kind = sqlite3_column_int64(row, FIRST_OWN + 1);
    int64_t key = call_key(e.process, e.correlation);
    c.bytes = (uint64_t)sqlite3_column_int64(row, FIRST_OWN);
    c.from = memory_of(row, FIRST_OWN + 2);
    c.to = memory_of(row, FIRST_OWN + 3);
    c.node = (uint64_t)sqlite3_column_int64(row, FIRST_OWN + 4);
    c.graph = graph_of_node(c.node);
    if (r->n_async && bsearch(&key, r->async, r->n_async, sizeof key, by_number))
        c.flags |= TRANSFER_ASYNC;
    if (kind == 10) c.flags |= TRANSFER_PEER;
    bool known = kind > 0 && kind < (int64_t)(sizeof names / sizeof *names);
    SOL_TRY(fixed_name(r, names[known ? kind : 0], &e.name));
    SOL_TRY(timeline_transfer(r->t, &c, &e.detail));
    return timeline_add(r->t, &e);
}

static const char *const set_columns[] = {DEVICE_COLUMNS, "bytes", "memKind|memoryKind",
                                          "graphNodeId"};

static enum sol_status read_set(struct reader *r, sqlite3_stmt *row)
{
    struct trace_event e;
    struct transfer c;
    bool timed;
    SOL_TRY(device_event(r, row, EVENT_SET, &e, &timed));
    if (!timed) return SOL_OK;
    memset(&c, 0, sizeof c);
    c.bytes = (uint64_t)sqlite3_column_int64(row, FIRST_OWN);
    c.to = memory_of(row, FIRST_OWN + 1);
    c.node = (uint64_t)sqlite3_column_int64(row, FIRST_OWN + 2);
    c.graph = graph_of_node(c.node);
    SOL_TRY(fixed_name(r, "memset", &e.name));
    SOL_TRY(timeline_transfer(r->t, &c, &e.detail));
    return timeline_add(r->t, &e);
}

static const char *const graph_columns[] = {DEVICE_COLUMNS, "graphExecId|graphId"};

static enum sol_status read_graph(struct reader *r, sqlite3_stmt *row)
{
    struct trace_event e;
    struct kernel_shape shape;
    char text[32];
    bool timed;
    SOL_TRY(device_event(r, row, EVENT_GRAPH, &e, &timed));
    if (!timed) return SOL_OK;
    memset(&shape, 0, sizeof shape);
    shape.graph = unsigned_of(row, FIRST_OWN);
    if (shape.graph == 0) shape.graph = 1;
    snprintf(text, sizeof text, "graph %u", shape.graph);
    SOL_TRY(fixed_name(r, text, &e.name));
    SOL_TRY(timeline_shape(r->t, &shape, &e.detail));
    return timeline_add(r->t, &e);
}

static const char *const sync_columns[] = {DEVICE_COLUMNS, "syncType"};

static enum sol_status read_sync(struct reader *r, sqlite3_stmt *row)
{
    enum { EVENT_WAIT = 1, STREAM_WAITS_FOR_EVENT = 2, STREAM_WAIT = 3, CONTEXT_WAIT = 4 };
    struct trace_event e;
    bool timed;
    int64_t type = sqlite3_column_int64(row, FIRST_OWN);
    if (type == STREAM_WAITS_FOR_EVENT) return SOL_OK; /* the host goes on */
    SOL_TRY(device_event(r, row, EVENT_SYNC, &e, &timed));
    if (!timed) return SOL_OK;
    e.device = TRACE_NO_DEVICE;
    SOL_TRY(fixed_name(r,
                       type == EVENT_WAIT     ? "event synchronize"
                       : type == STREAM_WAIT  ? "stream synchronize"
                       : type == CONTEXT_WAIT ? "context synchronize"
                                              : "synchronize",
                       &e.name));
    return timeline_add(r->t, &e);
}

static const char *const host_columns[] = {"start", "end", "globalTid", "nameId|name",
                                           "correlationId"};

static enum sol_status host_event(struct reader *r, sqlite3_stmt *row, enum event_kind kind,
                                  struct trace_event *e)
{
    int64_t thread = sqlite3_column_int64(row, 2);
    *e = (struct trace_event){.start = sqlite3_column_int64(row, 0),
                              .end = sqlite3_column_int64(row, 1),
                              .detail = TRACE_NONE,
                              .correlation = (uint32_t)sqlite3_column_int64(row, 4),
                              .track = (uint32_t)(thread & 0xffffff),
                              .kind = (uint16_t)kind,
                              .device = TRACE_NO_DEVICE};
    SOL_TRY(process_of(r, thread, &e->process));
    SOL_TRY(name_of(r, row, 3, &e->name));
    return e->end >= e->start && e->start >= 0 ? timeline_add(r->t, e) : SOL_OK;
}

/* Calls carry the version of their interface: "cudaLaunchKernel_v7000". */
static enum sol_status plain_call(struct reader *r, uint32_t *name)
{
    const char *text = timeline_text(r->t, *name), *v = strrchr(text, '_');
    if (!v || v[1] != 'v' || strspn(v + 2, "0123456789") != strlen(v + 2)) return SOL_OK;
    char plain[256];
    snprintf(plain, sizeof plain, "%.*s", (int)(v - text), text);
    return fixed_name(r, plain, name);
}

static enum sol_status read_names_again(struct reader *r)
{
    for (size_t i = 0; i < r->n_names; i++) {
        const char *text = timeline_text(r->t, r->names[i].string);
        if (strncmp(text, "cu", 2) == 0) SOL_TRY(plain_call(r, &r->names[i].string));
    }
    return SOL_OK;
}

static enum sol_status read_call(struct reader *r, sqlite3_stmt *row)
{
    struct trace_event e;
    SOL_TRY(host_event(r, row, EVENT_API, &e));
    if (!strstr(timeline_text(r->t, e.name), "Async") || e.correlation == 0) return SOL_OK;
    SOL_TRY(array_grow(&r->async, r->n_async, &r->async_room, sizeof *r->async, "calls"));
    r->async[r->n_async++] = call_key(e.process, e.correlation);
    return SOL_OK;
}

static enum sol_status read_overhead(struct reader *r, sqlite3_stmt *row)
{
    struct trace_event e;
    return host_event(r, row, EVENT_OVERHEAD, &e);
}

static const char *const range_columns[] = {"start",  "end",  "globalTid",
                                            "textId", "text", "eventType"};

static enum sol_status read_range(struct reader *r, sqlite3_stmt *row)
{
    enum { MARK = 34, PUSH_POP = 59, START_END = 60 };
    int64_t type = sqlite3_column_int64(row, 5), thread = sqlite3_column_int64(row, 2);
    bool typed = sqlite3_column_type(row, 5) != SQLITE_NULL;
    struct trace_event e = {.start = sqlite3_column_int64(row, 0),
                            .end = sqlite3_column_int64(row, 1),
                            .detail = TRACE_NONE,
                            .track = (uint32_t)(thread & 0xffffff),
                            .kind = EVENT_MARKER,
                            .device = TRACE_NO_DEVICE};
    if (typed && type != MARK && type != PUSH_POP && type != START_END) return SOL_OK;
    if (type == MARK) e.end = e.start;
    if (e.end < e.start || e.start < 0) {
        r->t->lost.unpaired++;
        return SOL_OK;
    }
    SOL_TRY(process_of(r, thread, &e.process));
    bool inline_text = sqlite3_column_type(row, 4) == SQLITE_TEXT;
    SOL_TRY(name_of(r, row, inline_text ? 4 : 3, &e.name));
    return timeline_add(r->t, &e);
}

/* ---- all tables ---- */

#define N(columns) ((int)(sizeof(columns) / sizeof *(columns)))

static enum sol_status read_level(struct reader *r)
{
    static const char *const columns[] = {"graphNodeId"};
    sqlite3_stmt *s;
    r->level = TRACE_GRAPH;
    SOL_TRY(open_table(r, "CUPTI_ACTIVITY_KIND_KERNEL", columns, 1, 0, &s));
    if (!s) return SOL_OK;
    while (r->level == TRACE_GRAPH && sqlite3_step(s) == SQLITE_ROW)
        if (sqlite3_column_int64(s, 0) != 0) r->level = TRACE_NODE;
    sqlite3_finalize(s);
    return SOL_OK;
}

static enum sol_status read_names(struct reader *r)
{
    static const char *const strings[] = {"id", "value"};
    static const char *const gpus[] = {"cuDevice|id",     "name",         "totalMemory",
                                       "memoryBandwidth", "smCount",      "clockRate",
                                       "computeMajor",    "computeMinor", "threadsPerWarp"};
    size_t rows;
    SOL_TRY(each_row(r, "StringIds", strings, N(strings), 2, read_name, &rows));
    if (rows == 0) SOL_TRY(import_note(r->import, "no StringIds: kernels and calls have no names"));
    if (r->n_names) qsort(r->names, r->n_names, sizeof *r->names, by_id);
    SOL_TRY(read_names_again(r));
    SOL_TRY(each_row(r, "TARGET_INFO_GPU", gpus, N(gpus), 1, read_gpu, &rows));
    if (rows == 0) SOL_TRY(import_note(r->import, "no TARGET_INFO_GPU: the device is not known"));
    return SOL_OK;
}

static enum sol_status read_events(struct reader *r, size_t *works)
{
    size_t calls, drivers, kernels, copies, sets, graphs, rows;
    SOL_TRY(each_row(r, "CUPTI_ACTIVITY_KIND_RUNTIME", host_columns, N(host_columns), 2, read_call,
                     &calls));
    SOL_TRY(each_row(r, "CUPTI_ACTIVITY_KIND_DRIVER", host_columns, N(host_columns), 2, read_call,
                     &drivers));
    if (r->n_async) qsort(r->async, r->n_async, sizeof *r->async, by_number);
    SOL_TRY(each_row(r, "CUPTI_ACTIVITY_KIND_KERNEL", kernel_columns, N(kernel_columns), 2,
                     read_kernel, &kernels));
    SOL_TRY(each_row(r, "CUPTI_ACTIVITY_KIND_MEMCPY", copy_columns, N(copy_columns), 2, read_copy,
                     &copies));
    SOL_TRY(
        each_row(r, "CUPTI_ACTIVITY_KIND_MEMSET", set_columns, N(set_columns), 2, read_set, &sets));
    SOL_TRY(each_row(r, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", graph_columns, N(graph_columns), 2,
                     read_graph, &graphs));
    SOL_TRY(each_row(r, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", sync_columns, N(sync_columns), 2,
                     read_sync, &rows));
    if (rows == 0)
        SOL_TRY(import_note(r->import, "no CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: waits are known "
                                       "by their calls alone"));
    SOL_TRY(
        each_row(r, "PROFILER_OVERHEAD", host_columns, N(host_columns), 2, read_overhead, &rows));
    SOL_TRY(each_row(r, "NVTX_EVENTS", range_columns, N(range_columns), 2, read_range, &rows));
    if (calls + drivers == 0)
        SOL_TRY(import_note(r->import, "no CUPTI_ACTIVITY_KIND_RUNTIME: gaps cannot be told by "
                                       "their causes"));
    *works = kernels + copies + sets + graphs;
    return SOL_OK;
}

static enum sol_status read_all(struct reader *r)
{
    size_t works = 0;
    bool strings, kernels;
    SOL_TRY(has_table(r, "StringIds", &strings));
    SOL_TRY(has_table(r, "CUPTI_ACTIVITY_KIND_KERNEL", &kernels));
    if (!strings && !kernels)
        return status_set(SOL_E_FORMAT, "%s: an SQLite database, but no export of nsys", r->file);
    SOL_TRY(timeline_create(&r->import->timeline));
    r->t = r->import->timeline;
    SOL_TRY(read_level(r));
    SOL_TRY(read_names(r));
    SOL_TRY(read_events(r, &works));
    if (works == 0)
        return status_set(SOL_E_FORMAT,
                          "%s: no kernels, copies or graphs in it; trace with nsys profile -t "
                          "cuda, by an nsys that is not older than the driver",
                          r->file);
    return timeline_finish(r->t);
}

enum sol_status import_nsys(struct import *import, sqlite3 *db, const char *name)
{
    static const struct reader empty;
    struct reader *r = malloc(sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "out of memory for an import");
    *r = empty;
    r->import = import;
    r->db = db;
    r->file = name;
    import->backend = "cuda";
    import->tool = "nsys";
    /* A file from elsewhere must not call functions or hide code in views and triggers. */
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    enum sol_status status = read_all(r);
    free(r->names);
    free(r->async);
    free(r);
    return status;
}
