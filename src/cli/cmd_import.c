/* sol import: results of other tools into the store. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "advise/advice.h"
#include "base/notes.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "import/import.h"
#include "store/store_json.h"
#include "trace/window.h"

struct import_options {
    const char *store, *label, *format;
    bool json;
};

static const struct option options[] = {
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where runs are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
                 offsetof(struct import_options, store), 0, 0),
    OPTION_ENTRY(STRING, 0, "label", "NAME", "label of the runs",
                 offsetof(struct import_options, label), 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default) or json",
                 offsetof(struct import_options, format), 0, 0),
    JSON_OPTION(struct import_options, json),
    {0},
};

static const struct command_example examples[] = {
    {"sol import llama-bench.json", "what llama-bench -o json wrote", NULL},
    {"sol import --label counted ncu.csv", "and find it by a name", NULL},
    {"sol import report.sqlite", "a time line of Nsight Systems", "an export of nsys"},
    {0},
};

static const struct command_spec spec = {
    .name = "import",
    .summary = "store results of nsys, ncu, llama-bench and nvbench",
    .arguments = "FILE...",
    .notes =
        "The format is told by the content:\n"
        "  SQLite export of Nsight Systems   nsys export --type sqlite report.nsys-rep\n"
        "  CSV of Nsight Compute             ncu --import report.ncu-rep --page raw --csv\n"
        "  JSON, JSONL of llama-bench        llama-bench -o json, of any version\n"
        "  JSON of NVBench                   benchmark --json FILE\n"
        "  JSON of sol                       sol runs export, sol profile --json\n"
        "Each file becomes a run; time lines and counters get advice with it (sol advise RUN).\n"
        "What a file lacks is named; the rest is taken.",
    .examples = examples,
    .options = options,
};

/* What only the file knows, so that it must be judged now. */
static enum sol_status store_advice_of(struct store *store, const struct import *import,
                                       const char *id, size_t *n_advice)
{
    struct rules_report report;
    struct trace_window_set windows = {0};
    struct rules_input input = {.timeline = import->timeline, .counters = &import->counters};
    *n_advice = 0;
    if (!import->timeline && import->counters.count == 0) return SOL_OK;
    if (import->timeline) {
        SOL_TRY(trace_windows_find(import->timeline, NULL, &windows));
        input.windows = &windows;
    }
    enum sol_status status = rules_run(&input, store, &report);
    if (status == SOL_OK) {
        *n_advice = report.count;
        status = advice_store(store, id, &report);
        rules_report_free(&report);
    }
    trace_windows_free(&windows);
    return status;
}

static void print_text(const struct import *import, const char *path, const char *id,
                       size_t n_advice)
{
    printf("%s  %s: %s", id, path, import_format_name(import->format));
    if (import->timeline) printf(", %zu events", import->timeline->count);
    if (import->counters.count) printf(", counters of %zu kernels", import->counters.count);
    if (import->n_metrics) printf(", %zu metrics", import->n_metrics);
    if (import->n_kernels) printf(", %zu kernels", import->n_kernels);
    if (n_advice) printf(", %zu pieces of advice (sol advise %s)", n_advice, id);
    printf("\n");
}

static json_t *import_json(const struct import *import, const char *path, const char *id,
                           size_t n_advice)
{
    json_t *notes = json_array();
    for (size_t i = 0; i < import->n_notes; i++)
        json_array_append_new(notes, store_json_string(import->notes[i]));
    return json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:o}", "run", id, "file",
                     store_json_string(path), "format", import_format_name(import->format),
                     "events", (json_int_t)(import->timeline ? import->timeline->count : 0),
                     "metrics", (json_int_t)import->n_metrics, "kernels",
                     (json_int_t)import->n_kernels + (json_int_t)import->counters.count, "advice",
                     (json_int_t)n_advice, "notes", notes);
}

/* Kept with the command that would read this file alone, whatever else was read with it. */
static enum sol_status one_file(struct store *store, const struct import_options *o,
                                const char *path, json_t *list, struct notes *said)
{
    char *argv[] = {(char *)(uintptr_t)spec.name, (char *)(uintptr_t)path};
    struct import *import;
    char id[STORE_ID_SIZE];
    size_t n_advice = 0;
    SOL_TRY(import_file(path, &import));
    enum sol_status status = import_store(store, import, path, o->label, 2, argv, id);
    if (status == SOL_OK) status = store_advice_of(store, import, id, &n_advice);
    if (status == SOL_OK && list)
        json_array_append_new(list, import_json(import, path, id, n_advice));
    else if (status == SOL_OK)
        print_text(import, path, id, n_advice);
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; i < import->n_notes && status == SOL_OK; i++)
        status = notes_add(said, slash ? slash + 1 : path, import->notes[i]);
    import_destroy(import);
    return status;
}

/* A file that cannot be read does not keep the others out; the first error is the command's. */
static int import_all(const struct import_options *o, const char **files, int n)
{
    bool json = o->format && strcmp(o->format, "json") == 0;
    struct store *store;
    if (o->format && !json && strcmp(o->format, "table") != 0)
        return cli_fail(
            status_set(SOL_E_ARGUMENT, "-o %s: the formats are table and json", o->format));
    if (n == 0) return cli_fail(status_set(SOL_E_ARGUMENT, "no file to import"));
    enum sol_status status = store_open(o->store, &store);
    if (status != SOL_OK) return cli_fail(status);
    json_t *list = json ? json_array() : NULL;
    int exit_status = 0;
    struct notes said = {.items = NULL};
    for (int i = 0; i < n; i++) {
        int failed = cli_fail(one_file(store, o, files[i], list, &said));
        if (exit_status == 0) exit_status = failed;
    }
    store_close(store);
    if (!json) notes_print(&said, "note: ", stdout);
    notes_free(&said);
    if (json) {
        int failed = cli_fail(json_print(json_pack("{s:o}", "imports", list)));
        if (exit_status == 0) exit_status = failed;
    }
    return exit_status;
}

static int run(int argc, char **argv)
{
    struct import_options o = {.store = NULL};
    const char *files[OPTION_LIST_MAX];
    int n, exit_status;
    if (argc > OPTION_LIST_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many files"));
    if (!cli_parse(&spec, argc, argv, &o, files, &n, &exit_status)) return exit_status;
    return import_all(&o, files, n);
}

const struct command cmd_import = {&spec, run, false};
