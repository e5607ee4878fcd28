#include "import/import.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "import/import_private.h"
#include "profile/store.h"
#include "store/store_json.h"
#include "trace/window.h"

enum { TEXT_MAX = 4096, ARENA_BLOCK = 1 << 16, PATH_SIZE = 4096 };

static const char sqlite_magic[] = "SQLite format 3";

const char *import_format_name(enum import_format format)
{
    static const char *const names[IMPORT_FORMAT_COUNT] = {"nsys", "ncu", "llama-bench", "nvbench",
                                                           "sol"};
    return (unsigned)format < IMPORT_FORMAT_COUNT ? names[format] : "?";
}

/* ---- life ---- */

static enum sol_status create(struct import **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "out of memory for an import");
    enum sol_status status = arena_create(ARENA_BLOCK, &(*out)->arena);
    if (status != SOL_OK) {
        import_destroy(*out);
        *out = NULL;
    }
    return status;
}

void import_destroy(struct import *import)
{
    if (!import) return;
    timeline_destroy(import->timeline);
    counters_free(&import->counters);
    free(import->metrics);
    free(import->kernels);
    free(import->notes);
    arena_destroy(import->arena);
    free(import);
}

/* ---- what the readers use ---- */

const char *import_text(struct import *import, const char *text, enum sol_status *status)
{
    if (!text) return NULL;
    const char *copy = arena_strndup(import->arena, text, strnlen(text, TEXT_MAX));
    if (!copy) *status = SOL_E_MEMORY;
    return copy;
}

enum sol_status import_note(struct import *import, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (size_t i = 0; i < import->n_notes; i++)
        if (strcmp(import->notes[i], text) == 0) return SOL_OK;
    SOL_TRY(array_grow(&import->notes, import->n_notes, &import->note_room, sizeof *import->notes,
                       "an import"));
    const char *copy = arena_strndup(import->arena, text, strlen(text));
    if (!copy) return SOL_E_MEMORY;
    import->notes[import->n_notes++] = copy;
    return SOL_OK;
}

static enum sol_status append_samples(struct import *import, struct store_metric *into,
                                      const struct store_metric *from)
{
    size_t total = into->n_samples + from->n_samples;
    struct store_sample *samples = ARENA_NEW(import->arena, struct store_sample, total);
    enum sol_status status = SOL_OK;
    if (!samples) return SOL_E_MEMORY;
    if (into->n_samples) memcpy(samples, into->samples, into->n_samples * sizeof *samples);
    for (size_t i = 0; i < from->n_samples; i++) {
        samples[into->n_samples + i] = from->samples[i];
        samples[into->n_samples + i].cause = import_text(import, from->samples[i].cause, &status);
    }
    into->samples = samples;
    into->n_samples = total;
    return status;
}

enum sol_status import_metric(struct import *import, const struct store_metric *metric)
{
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < import->n_metrics; i++)
        if (strcmp(import->metrics[i].name, metric->name) == 0)
            return append_samples(import, &import->metrics[i], metric);
    SOL_TRY(array_grow(&import->metrics, import->n_metrics, &import->metric_room,
                       sizeof *import->metrics, "an import"));
    struct store_metric *into = &import->metrics[import->n_metrics];
    *into = *metric;
    into->samples = NULL;
    into->n_samples = 0;
    into->name = import_text(import, metric->name, &status);
    into->unit = import_text(import, metric->unit, &status);
    into->test_json = import_text(import, metric->test_json, &status);
    if (status == SOL_OK) status = append_samples(import, into, metric);
    if (status == SOL_OK) import->n_metrics++;
    return status;
}

enum sol_status import_kernel(struct import *import, const struct store_kernel *kernel)
{
    enum sol_status status = SOL_OK;
    SOL_TRY(array_grow(&import->kernels, import->n_kernels, &import->kernel_room,
                       sizeof *import->kernels, "an import"));
    struct store_kernel *k = &import->kernels[import->n_kernels];
    *k = *kernel;
    k->metric = import_text(import, kernel->metric, &status);
    k->phase = import_text(import, kernel->phase, &status);
    k->op = import_text(import, kernel->op, &status);
    k->variant = import_text(import, kernel->variant, &status);
    k->name = import_text(import, kernel->name, &status);
    k->category = import_text(import, kernel->category, &status);
    k->numerics = import_text(import, kernel->numerics, &status);
    if (status == SOL_OK) import->n_kernels++;
    return status;
}

int64_t import_time(const char *text)
{
    struct tm tm = {0};
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
    if (!end || (*end != 'Z' && *end != '.' && *end != '\0')) return 0;
    time_t seconds = timegm(&tm);
    return seconds > 0 && seconds < (time_t)1 << 33 ? (int64_t)seconds * 1000000000 : 0;
}

/* ---- telling formats ---- */

static bool has(const json_t *object, const char *key)
{
    return json_object_get(object, key) != NULL;
}

static enum sol_status unknown(const char *name, const char *seen)
{
    return status_set(SOL_E_FORMAT,
                      "%s: %s; known are nsys SQLite exports, ncu CSV, llama-bench JSON and JSONL, "
                      "NVBench JSON and sol's own JSON",
                      name, seen);
}

static enum sol_status dispatch_json(struct import *import, const json_t *root, const char *name)
{
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const json_t *first = json_is_array(root) ? json_array_get(root, 0) : root;
    if (json_is_array(root) && json_array_size(root) == 0)
        return status_set(SOL_E_FORMAT, "%s: an empty list", name);
    if (has(first, "avg_ns") || has(first, "samples_ns")) {
        import->format = IMPORT_LLAMA_BENCH;
        return import_llama_bench(import, root, name);
    }
    if (has(root, "benchmarks") && json_is_array(json_object_get(root, "benchmarks"))) {
        import->format = IMPORT_NVBENCH;
        return import_nvbench(import, root, name);
    }
    import->format = IMPORT_SOL;
    if (schema && strncmp(schema, "sol.profile.", 12) == 0)
        return import_sol_profile(import, root, name);
    if (has(root, "kind") && has(root, "metrics")) return import_sol_record(import, root, name);
    return unknown(name, "JSON of no known kind");
}

/* One document, or one on each line. */
static enum sol_status read_json(struct import *import, const char *text, size_t size,
                                 const char *name)
{
    json_error_t error;
    json_t *root = json_loadb(text, size, 0, &error);
    if (!root && error.line >= 1 && text[0] == '{') {
        int line = 1;
        root = json_array();
        for (const char *at = text, *end = text + size; root && at < end; line++) {
            const char *stop = memchr(at, '\n', (size_t)(end - at));
            size_t length = (size_t)((stop ? stop : end) - at);
            json_t *item = json_loadb(at, length, 0, &error);
            bool blank = strspn(at, " \t\r") >= length;
            at += length + 1;
            if (blank && !item) continue;
            if (!item || json_array_append_new(root, item) != 0) {
                json_decref(root);
                root = NULL;
                error.line = line;
            }
        }
    }
    if (!root) return status_set(SOL_E_FORMAT, "%s:%d: no JSON: %s", name, error.line, error.text);
    enum sol_status status = dispatch_json(import, root, name);
    json_decref(root);
    return status;
}

static enum sol_status read_database(struct import *import, const void *data, size_t size,
                                     const char *name)
{
    sqlite3 *db = NULL;
    enum sol_status status = SOL_OK;
    if (sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        status = status_set(SOL_E_MEMORY, "out of memory for a database");
    /* Read only, so the cast takes no liberty. */
    if (status == SOL_OK &&
        sqlite3_deserialize(db, "main", (unsigned char *)(uintptr_t)data, (sqlite3_int64)size,
                            (sqlite3_int64)size, SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
        status = status_set(SOL_E_FORMAT, "%s: a damaged database", name);
    import->format = IMPORT_NSYS;
    if (status == SOL_OK) status = import_nsys(import, db, name);
    sqlite3_close(db);
    return status;
}

static enum sol_status read_any(struct import *import, const char *text, size_t size,
                                const char *name)
{
    size_t at = 0;
    if (size >= sizeof sqlite_magic && memcmp(text, sqlite_magic, sizeof sqlite_magic) == 0)
        return read_database(import, text, size, name);
    while (at < size && strchr(" \t\r\n", text[at]) && text[at]) at++;
    if (at == size) return status_set(SOL_E_FORMAT, "%s: an empty file", name);
    if (text[at] == '[' || text[at] == '{') return read_json(import, text + at, size - at, name);
    import->format = IMPORT_NCU;
    if (memmem(text, size, "Kernel Name", 11)) return import_ncu(import, text, size, name);
    return unknown(name, "of no known format");
}

enum sol_status import_memory(const void *data, size_t size, const char *name, struct import **out)
{
    *out = NULL;
    struct import *import;
    SOL_TRY(create(&import));
    enum sol_status status = read_any(import, data, size, name);
    if (status != SOL_OK)
        import_destroy(import);
    else
        *out = import;
    return status;
}

static bool is_database(const struct mapped_file *file)
{
    return file->size >= sizeof sqlite_magic &&
           memcmp(file->data, sqlite_magic, sizeof sqlite_magic) == 0;
}

/* Page by page, since exports can be larger than memory. */
static enum sol_status import_database(const char *path, struct import **out)
{
    sqlite3 *db = NULL;
    SOL_TRY(create(out));
    (*out)->format = IMPORT_NSYS;
    enum sol_status status =
        sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK
            ? import_nsys(*out, db, path)
            : status_set(SOL_E_IO, "cannot open '%s': %s", path, sqlite3_errmsg(db));
    sqlite3_close(db);
    if (status == SOL_OK) return SOL_OK;
    import_destroy(*out);
    *out = NULL;
    return status;
}

enum sol_status import_file(const char *path, struct import **out)
{
    struct mapped_file file;
    *out = NULL;
    SOL_TRY(mapped_file_open(path, &file));
    if (is_database(&file)) {
        mapped_file_close(&file);
        return import_database(path, out);
    }
    enum sol_status status = import_memory(file.data ? file.data : "", file.size, path, out);
    mapped_file_close(&file);
    return status;
}

/* ---- storing ---- */

static char *payload_text(const struct import *import, const char *path)
{
    json_t *notes = json_array();
    for (size_t i = 0; i < import->n_notes; i++)
        json_array_append_new(notes, json_string(import->notes[i]));
    const char *slash = strrchr(path, '/');
    json_t *root = json_pack("{s:s, s:o, s:s?, s:o}", "format", import_format_name(import->format),
                             "source", store_json_string(slash ? slash + 1 : path), "tool",
                             import->tool, "notes", notes);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static enum sol_status store_counters(struct store *store, const struct import *import,
                                      const char *id)
{
    for (size_t i = 0; i < import->counters.count; i++) {
        const struct kernel_counters *k = &import->counters.kernels[i];
        double calls = (double)k->calls;
        struct store_kernel row = {.metric = "kernels",
                                   .layer = -1,
                                   .name = k->name,
                                   .category = profile_category(category_of(k->name)),
                                   .calls = k->calls,
                                   .expected = -1,
                                   .calls_per_token = (double)NAN,
                                   .total_ns = calls * k->duration_ns,
                                   .bytes = calls * k->dram_bytes,
                                   .flops = calls * k->flops,
                                   .limit_ns = (double)NAN};
        SOL_TRY(store_run_add(store, id, &(struct store_batch){.kernels = &row, .n_kernels = 1}));
    }
    return SOL_OK;
}

static enum sol_status add_contents(struct store *store, const struct import *import,
                                    const char *id)
{
    struct store_batch batch = {.metrics = import->metrics,
                                .n_metrics = import->n_metrics,
                                .kernels = import->kernels,
                                .n_kernels = import->n_kernels};
    SOL_TRY(store_run_add(store, id, &batch));
    SOL_TRY(store_counters(store, import, id));
    if (!import->timeline) return SOL_OK;
    struct trace_window_set windows = {0};
    enum sol_status status = trace_windows_find(import->timeline, NULL, &windows);
    if (status == SOL_OK) status = profile_store_timeline(store, id, import->timeline, &windows, 0);
    if (status == SOL_OK) status = profile_store_steps(store, id, import->timeline, &windows);
    trace_windows_free(&windows);
    return status;
}

/* Without an environment: that of here is not where it was measured. */
static enum sol_status run_begin(struct store *store, const struct store_run *run, int argc,
                                 char *const *argv, char id[STORE_ID_SIZE])
{
    char cwd[PATH_SIZE];
    json_t *list = json_array();
    for (int i = 0; i < argc; i++) {
        json_array_append_new(list, store_json_string(argv[i]));
    }
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    if (!text) return status_set(SOL_E_MEMORY, "out of memory for a run");
    struct store_run full = *run;
    full.argv_json = text;
    full.cwd = getcwd(cwd, sizeof cwd);
    enum sol_status status = store_run_begin(store, &full, id);
    free(text);
    return status;
}

enum sol_status import_store(struct store *store, const struct import *import, const char *path,
                             const char *label, int argc, char *const *argv, char id[STORE_ID_SIZE])
{
    char *payload = payload_text(import, path);
    struct store_run run = {.kind =
                                import->timeline || import->counters.count ? "profile" : "import",
                            .label = label,
                            .created_ns = import->created_ns,
                            .backend = import->backend,
                            .device = import->device,
                            .model = import->model,
                            .model_type = import->model_type,
                            .model_size = import->model_size,
                            .payload_json = payload};
    enum sol_status status = payload ? run_begin(store, &run, argc, argv, id)
                                     : status_set(SOL_E_MEMORY, "out of memory for a run");
    free(payload);
    SOL_TRY(status);
    status = add_contents(store, import, id);
    if (status == SOL_OK && import->noise) status = store_run_noise(store, id, import->noise);
    enum sol_status finished = status == SOL_OK ? store_run_finish(store, id, STORE_OK, NULL, NULL)
                                                : store_run_delete(store, id);
    return status != SOL_OK ? status : finished;
}
