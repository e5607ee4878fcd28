/* sol profile: runs any CUDA program with the tracing library in it, or under another profiler, and
 * shows what its device did; without a command a model of sol's own. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advise/advice.h"
#include "advise/largest.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/gate_options.h"
#include "cli/inject_library.h"
#include "cli/next_steps.h"
#include "cli/profile_own.h"
#include "cli/profile_report.h"
#include "cli/profile_with.h"
#include "format/output_file.h"
#include "import/import.h"
#include "profile/payload.h"
#include "profile/store.h"
#include "store/environment.h"
#include "trace/capture.h"
#include "trace/chrome.h"
#include "trace/sampler.h"
#include "trace/summary.h"
#include "trace/trace_file.h"
#include "trace/trace_read.h"
#include "trace/window.h"

/* What sol itself reports once the command runs, so that its statuses stay its own. */
enum { PROFILE_FAILED = 125, PATH_SIZE = 4096 };

struct profile_command {
    const char *output, *trace, *report, *folder, *level, *library, *range, *read, *with, *counters;
    const char *store, *label;
    bool json, no_store, wide;
    double tokens;
    struct gate_options gates;
    struct profile_own_options own;
};

static const struct option options[] = {
    {OPTION_STRING, 'o', "format", "table|csv|json", "of the report (default table)",
     offsetof(struct profile_command, output), 0, 0},
    JSON_OPTION(struct profile_command, json),
    {OPTION_STRING, 0, "report", "FILE", "write the report to FILE instead of standard output",
     offsetof(struct profile_command, report), 0, 0},
    {OPTION_STRING, 0, "trace", "FILE",
     "write the time line as JSON for ui.perfetto.dev or chrome://tracing",
     offsetof(struct profile_command, trace), 0, 0},
    {OPTION_STRING, 0, "output", "DIR", "keep the trace files in DIR",
     offsetof(struct profile_command, folder), 0, 0},
    {OPTION_STRING, 0, "read", "DIR", "no command: read the trace files that --output kept",
     offsetof(struct profile_command, read), 0, 0},
    {OPTION_STRING, 0, "level", "off|launch|graph|node",
     "off, launch (calls and CUDA graphs timed, kernels counted, without CUPTI: disturbs least), "
     "graph (kernels timed, CUDA graphs as wholes) or node (every kernel in them); default graph",
     offsetof(struct profile_command, level), 0, 0},
    {OPTION_STRING, 0, "range", "NAME", "a step is an NVTX range of this name",
     offsetof(struct profile_command, range), 0, 0},
    {OPTION_STRING, 0, "inject-library", "FILE", "instead of the library within sol",
     offsetof(struct profile_command, library), 0, 0},
    {OPTION_STRING, 0, "with", "TOOL",
     "trace with nsys, or count with ncu, where it is installed, and import what it says; or count "
     "with cupti, without another tool",
     offsetof(struct profile_command, with), 0, 0},
    {OPTION_STRING, 0, "counters", "WHAT",
     "speed of light, occupancy and stalls, by ncu where it is installed and else by cupti, of the "
     "first 200 launches: quick (all kernels), "
     "or a group: routing, matmul, "
     "swiglu, "
     "attention, norm, rope; full: everything on every launch, slowly",
     offsetof(struct profile_command, counters), 0, 0},
    {OPTION_FLOAT, 0, "tokens", "N", "tokens of a step, for counts per token (default 1)",
     offsetof(struct profile_command, tokens), 0.001, 1e9},
    {OPTION_STRING, 0, "store", "FOLDER",
     "where runs are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
     offsetof(struct profile_command, store), 0, 0},
    {OPTION_FLAG, 0, "no-store", NULL, "do not keep the run",
     offsetof(struct profile_command, no_store), 0, 0},
    {OPTION_STRING, 0, "label", "NAME", "label of the run", offsetof(struct profile_command, label),
     0, 0},
    GATE_OPTIONS(struct profile_command, gates),
    PROFILE_OWN_OPTIONS(struct profile_command, own),
    WIDE_OPTION(struct profile_command, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol profile -m gpt-oss-20b.gguf --layers", "a model of sol's own, layer by layer", NULL},
    {"sol profile --level node -o csv -- llama-bench -m gpt-oss-20b.gguf -n 32",
     "another program's kernels, CUDA graphs taken apart", "a GPU and llama-bench"},
    {"sol profile --counters quick -- python3 train.py", "speed of light, occupancy and stalls",
     "a GPU and a program for it"},
    {0},
};

static const struct command_spec spec = {
    .name = "profile",
    .summary = "trace a CUDA program, or time a model layer by layer",
    .arguments = "[-- COMMAND [ARGUMENT...]]",
    .notes =
        "The command and every process that it starts are traced where they use CUDA; their\n"
        "output and input are untouched. The exit status is the command's, 128 + N when signal N\n"
        "ended it, 127 when it was not found, 126 when it could not be run, 125 when sol failed\n"
        "after it had started. The report comes last on standard output, or in --report FILE.\n"
        "A process that is killed, crashes or calls _exit or exec loses its last 0.1 s or so.\n"
        "A step is found by NVTX ranges, else by CUDA graph runs, else by the order of kernels.\n"
        "Of sol train on a GPU it is 'step', with --range micro-batch or --range update a part; "
        "at\n"
        "--level node the kernels of both are counted beside their plans', and others are an "
        "error.\n"
        "CUPTI comes from the program itself (PyTorch brings it), from the CUDA toolkit, or from\n"
        "the file that SOL_CUPTI names.\n"
        "A violated gate makes the exit status 13, unless the command failed by itself.\n"
        "Without a command, a model of sol's own runs under the timers of its plan: layer x op,\n"
        "prefill and decode, at two depths of context. Gates look at decode then.",
    .examples = examples,
    .options = options,
};

struct profile {
    struct profile_command c;
    enum report_format format;
    enum trace_level level;
    struct output_file *report, *trace; /* of --report and --trace */
    char folder[PATH_SIZE];
    bool temporary;
    struct capture_result result;
    struct manifest *manifest;
    const struct rules_violation *violations;
    size_t n_violations;
    char unsound[TRACE_UNSOUND]; /* why what ran is not what the program planned; "": it is */
    struct store *store;         /* NULL: nothing is kept */
    int argc;
    char **argv;
};

/* ---- options ---- */

/* The table of options lists them, so one of them it is. */
static int index_of(const char *value, const char *const *names)
{
    int i = 0;
    while (strcmp(value, names[i]) != 0) i++;
    return i;
}

static enum sol_status check_options(struct profile *p, int n_args)
{
    static const char *const formats[] = {"table", "csv", "json"};
    static const char *const levels[] = {"off", "graph", "node", "launch"};
    p->format = (enum report_format)(p->c.output ? index_of(p->c.output, formats) : REPORT_TABLE);
    p->level = (enum trace_level)(p->c.level ? index_of(p->c.level, levels) : TRACE_GRAPH);
    if (p->c.read && (n_args > 0 || p->c.folder))
        return status_set(SOL_E_ARGUMENT, "--read takes no command and no --output");
    if (n_args == 0 && !p->c.read && (p->c.with || p->c.counters || p->c.folder || p->c.library))
        return status_set(SOL_E_ARGUMENT,
                          "no command; put it after --: sol profile -- python train.py");
    return gate_options_create(&p->c.gates, &p->manifest);
}

/* ---- the folder of trace files ---- */

static enum sol_status absolute_path(const char *path, char *out)
{
    if (!realpath(path, out))
        return status_set(SOL_E_IO, "cannot use '%s': %s", path, strerror(errno));
    return SOL_OK;
}

static enum sol_status make_folder(struct profile *p)
{
    const char *base = getenv("TMPDIR");
    if (p->c.folder) {
        if (mkdir(p->c.folder, 0777) != 0 && errno != EEXIST)
            return status_set(SOL_E_IO, "cannot create '%s': %s", p->c.folder, strerror(errno));
        SOL_TRY(absolute_path(p->c.folder, p->folder));
        if (!output_folder_is_empty(p->folder))
            return status_set(SOL_E_ARGUMENT, "--output %s: the folder must be empty", p->c.folder);
        return SOL_OK;
    }
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/sol-profile-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path))
        return status_set(SOL_E_IO, "cannot create '%s': %s", path, strerror(errno));
    p->temporary = true;
    return absolute_path(path, p->folder);
}

static void remove_folder(const struct profile *p)
{
    if (p->temporary) output_folder_discard(p->folder);
}

/* ---- after the command ---- */

/* Before anything runs, so that what cannot be written is known in time. */
static enum sol_status open_outputs(struct profile *p)
{
    SOL_TRY(store_apart(p->store, p->c.report));
    SOL_TRY(store_apart(p->store, p->c.trace));
    if (p->c.read && p->c.report) SOL_TRY(output_file_apart(p->c.report, p->c.read));
    if (p->c.read && p->c.trace) SOL_TRY(output_file_apart(p->c.trace, p->c.read));
    if (p->c.report) SOL_TRY(output_file_create(p->c.report, 0, OUTPUT_STREAM, &p->report));
    return p->c.trace ? output_file_create(p->c.trace, 0, OUTPUT_STREAM, &p->trace) : SOL_OK;
}

static enum sol_status print_to_file(const struct profile_report *report, const struct profile *p)
{
    FILE *to;
    SOL_TRY(output_file_stream(p->report, &to));
    SOL_TRY(profile_report_print(report, p->format, to));
    return output_file_commit(p->report);
}

static enum sol_status write_trace(const struct timeline *t, const struct profile *p)
{
    FILE *to;
    SOL_TRY(output_file_stream(p->trace, &to));
    SOL_TRY(chrome_write(t, to, p->c.trace));
    return output_file_commit(p->trace);
}

/* ---- gates and the store ---- */

static enum sol_status check_gates(struct profile *p, const struct timeline *t,
                                   const struct trace_window_set *windows)
{
    struct trace_summary summary = {0};
    struct gate_kernel *kernels = NULL;
    size_t n = 0;
    double tokens = p->c.tokens * (double)windows->count;
    enum sol_status status = profile_steady_summary(t, windows, &summary);
    if (status == SOL_OK) status = gate_kernels_of_summary(t, &summary, tokens, &kernels, &n);
    if (status == SOL_OK)
        status = gate_options_apply(&p->c.gates, p->manifest, kernels, n, &p->violations,
                                    &p->n_violations);
    free(kernels);
    trace_summary_free(&summary);
    if (status == SOL_OK) gate_options_print(p->violations, p->n_violations);
    return status;
}

/* The trace files, unless they are many: advice can be taken again from them. Then a few steps. */
static enum sol_status keep_traces(const struct profile *p, const struct timeline *t,
                                   const struct trace_window_set *windows, const char *folder,
                                   const char *id)
{
    enum { KEPT_MAX = 64 << 20, FILES_MAX = 64 };
    struct dirent **entries;
    int64_t total = 0;
    enum sol_status status = SOL_OK;
    int n = folder ? scandir(folder, &entries, NULL, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        char path[PATH_SIZE];
        struct stat info;
        const char *name = entries[i]->d_name, *dot = strrchr(name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, name);
        bool trace = dot && strcmp(dot, TRACE_FILE_SUFFIX) == 0 && stat(path, &info) == 0;
        if (trace && (total += info.st_size) <= KEPT_MAX && i < FILES_MAX && status == SOL_OK)
            status = store_artifact_add(p->store, id, "trace", name, path);
        free(entries[i]);
    }
    if (n > 0) free(entries);
    bool whole = n > 0 && n <= FILES_MAX && total <= KEPT_MAX;
    return status == SOL_OK && !whole ? profile_store_steps(p->store, id, t, windows) : status;
}

static enum sol_status keep_advice(const struct profile *p, const struct timeline *t,
                                   const struct trace_window_set *windows, double inflation,
                                   const char *id, struct next *next, char **payload)
{
    struct rules_report report;
    struct rules_input input = {.timeline = t,
                                .windows = windows,
                                .inflation = inflation,
                                .violations = p->violations,
                                .n_violations = p->n_violations};
    SOL_TRY(rules_run(&input, p->store, &report));
    enum sol_status status = advice_store(p->store, id, &report);
    if (status == SOL_OK) status = profile_payload(t, windows, p->c.tokens, &report, payload);
    next_of_advice(next, report.todo, id, p->c.store);
    rules_report_free(&report);
    return status;
}

/* Fills in run and next of the report. */
static enum sol_status keep(const struct profile *p, struct profile_report *report,
                            const char *folder, char id[STORE_ID_SIZE], struct next *next)
{
    const struct timeline *t = report->timeline;
    const struct trace_window_set *windows = report->windows;
    struct store_run run = {.kind = "profile", .label = p->c.label, .backend = "cuda"};
    struct environment_device device = {.name = NULL};
    const char *invalid = *p->unsound ? p->unsound : p->n_violations ? p->violations[0].text : NULL;
    char *payload = NULL;
    if (!p->store) return SOL_OK;
    if (t->n_devices) run.device = device.name = timeline_text(t, t->devices[0].name);
    SOL_TRY(environment_run_begin(p->store, &run, p->argc, p->argv, &device, id));
    SOL_TRY(profile_store_timeline(p->store, id, t, windows, p->c.tokens));
    SOL_TRY(keep_traces(p, t, windows, folder, id));
    SOL_TRY(keep_advice(p, t, windows, report->inflation.share, id, next, &payload));
    report->run = id;
    report->next = next;
    enum sol_status status =
        store_run_finish(p->store, id, invalid ? STORE_INVALID : STORE_OK, invalid, payload);
    free(payload);
    return status;
}

/* Loudly: figures of kernels that nobody planned mean nothing. */
static enum sol_status check_plans(struct profile *p, const struct timeline *t,
                                   struct trace_launches *launches)
{
    SOL_TRY(trace_launches_count(t, launches));
    if (trace_launches_unsound(t, launches, p->unsound))
        log_write(LOG_ERROR, "the figures are not valid: %s", p->unsound);
    else
        p->unsound[0] = '\0';
    return SOL_OK;
}

/* `folder`: of the trace files; NULL for those of other tools. */
static enum sol_status show(struct profile *p, const struct timeline *t, const char *folder)
{
    struct trace_summary summary = {0};
    struct trace_window_set windows = {0};
    struct trace_launches launches = {0};
    struct trace_communication ranks = {0};
    struct profile_report report = {.timeline = t,
                                    .summary = &summary,
                                    .windows = &windows,
                                    .ranks = &ranks,
                                    .launches = &launches,
                                    .exit_status = p->result.exit_status,
                                    .signal = p->result.signal};
    char id[STORE_ID_SIZE];
    struct next next;
    enum sol_status status = trace_summarize(t, TRACE_NO_DEVICE, 0, INT64_MAX, &summary);
    if (status == SOL_OK) status = trace_windows_find(t, p->c.range, &windows);
    if (status == SOL_E_ARGUMENT) { /* the rest is still worth showing */
        log_write(LOG_WARN, "%s", sol_last_error());
        status = SOL_OK;
    }
    if (status == SOL_OK) status = trace_communicate(t, &windows, &ranks);
    if (status == SOL_OK) status = trace_inflation(t, &report.inflation);
    if (status == SOL_OK) status = check_gates(p, t, &windows);
    if (status == SOL_OK) status = check_plans(p, t, &launches);
    if (status == SOL_OK) status = keep(p, &report, folder, id, &next);
    if (status == SOL_OK)
        status = p->report ? print_to_file(&report, p)
                           : profile_report_print(&report, p->format, stdout);
    trace_summary_free(&summary);
    trace_windows_free(&windows);
    trace_launches_free(&launches);
    trace_communication_free(&ranks);
    if (status == SOL_OK && p->trace) status = write_trace(t, p);
    return status;
}

static enum sol_status analyse(struct profile *p, const char *folder)
{
    struct timeline *t;
    SOL_TRY(timeline_create(&t));
    enum sol_status status = trace_read_folder(t, folder);
    if (!p->c.read && (status == SOL_E_FORMAT || (status == SOL_OK && t->n_processes == 0))) {
        /* Not a fault of the trace: the library was never called. */
        log_write(LOG_WARN, "the command did not start CUDA, so there is nothing to show");
        status = SOL_OK;
    } else if (status == SOL_OK) {
        status = show(p, t, folder);
    }
    timeline_destroy(t);
    return status;
}

static enum sol_status capture(struct profile *p, char *const *command)
{
    char library[PATH_SIZE];
    SOL_TRY(make_folder(p));
    if (p->c.library)
        SOL_TRY(absolute_path(p->c.library, library));
    else
        SOL_TRY(inject_library_install(p->folder, library, sizeof library));
    fflush(stdout);
    struct capture_options how = {.library = library, .folder = p->folder, .level = p->level};
    struct trace_sampler *sampler = p->level == TRACE_OFF ? NULL : trace_sampler_start(p->folder);
    enum sol_status status = capture_run(command, &how, &p->result);
    trace_sampler_stop(sampler);
    return status;
}

static int run_command(struct profile *p, char *const *command)
{
    enum sol_status status = capture(p, command);
    if (status != SOL_OK) {
        int failed = cli_fail(status);
        remove_folder(p);
        /* 126 and 127 only when it was the command's fault. */
        return status == SOL_E_ARGUMENT && p->result.exit_status >= 126 ? p->result.exit_status
                                                                        : failed;
    }
    if (p->level != TRACE_OFF) status = analyse(p, p->folder);
    remove_folder(p);
    if (status != SOL_OK) {
        cli_fail(status);
        return p->result.exit_status ? p->result.exit_status : PROFILE_FAILED;
    }
    return p->result.exit_status;
}

/* ---- other tools ---- */

/* Counters have no time line: what they say is advice. */
static enum sol_status show_counters(struct profile *p, const struct import *import,
                                     const char *path)
{
    struct rules_report report;
    char id[STORE_ID_SIZE];
    SOL_TRY(rules_run(&(struct rules_input){.counters = &import->counters}, p->store, &report));
    enum sol_status status = SOL_OK;
    if (p->store) status = import_store(p->store, import, path, p->c.label, p->argc, p->argv, id);
    if (p->store && status == SOL_OK) status = advice_store(p->store, id, &report);
    const char *run = p->store && status == SOL_OK ? id : NULL;
    struct next next;
    next_of_advice(&next, report.todo, run, p->c.store);
    if (status == SOL_OK && p->format == REPORT_JSON) {
        json_t *json = advice_json(&report, run, &next);
        if (json) json_object_set_new(json, "largest", largest_json(&import->counters));
        status = json_print(json);
    } else if (status == SOL_OK) {
        largest_print(&import->counters, stdout);
        status = advice_print(&report, run, &next, stdout);
    }
    rules_report_free(&report);
    return status;
}

static enum sol_status with_tool(struct profile *p, char *const *command)
{
    char path[PATH_SIZE];
    struct import *import;
    SOL_TRY(make_folder(p));
    fflush(stdout);
    SOL_TRY(profile_with(p->c.with, p->c.counters, p->level, command, p->folder, path, sizeof path,
                         &p->result.exit_status));
    SOL_TRY(import_file(path, &import));
    for (size_t i = 0; i < import->n_notes; i++) log_write(LOG_WARN, "%s", import->notes[i]);
    enum sol_status status =
        import->timeline ? show(p, import->timeline, NULL) : show_counters(p, import, path);
    import_destroy(import);
    return status;
}

static int run_with(struct profile *p, char *const *command)
{
    int failed = cli_fail(with_tool(p, command));
    remove_folder(p);
    return failed ? failed : p->result.exit_status;
}

/* ---- a model of sol's own ---- */

static int run_own(struct profile *p)
{
    struct profile_own own = {.options = &p->c.own,
                              .gates = &p->c.gates,
                              .store = p->store,
                              .label = p->c.label,
                              .trace_name = p->c.trace,
                              .trace = p->trace,
                              .report = p->report,
                              .format = p->format,
                              .argc = p->argc,
                              .argv = p->argv};
    bool invalid;
    int failed = cli_fail(profile_own_run(&own, &invalid));
    return failed ? failed : invalid ? MANIFEST_EXIT_INVALID : 0;
}

static int dispatch(struct profile *p, char *const *command, int n_args)
{
    enum sol_status status = check_options(p, n_args);
    if (status == SOL_OK) status = store_label_check(p->c.label);
    if (status == SOL_OK && !p->c.no_store) status = store_open_optional(p->c.store, &p->store);
    if (status == SOL_OK) status = open_outputs(p);
    if (status != SOL_OK) return cli_fail(status);
    if (p->c.read) return cli_fail(analyse(p, p->c.read));
    if (n_args == 0) return run_own(p);
    return p->c.with || p->c.counters ? run_with(p, command) : run_command(p, command);
}

static int run(int argc, char **argv)
{
    static struct profile p;
    const char **args = calloc((size_t)argc + 1, sizeof *args);
    int n_args = 0, exit_status;
    if (!args) return cli_fail(status_set(SOL_E_MEMORY, "out of memory"));
    p.argc = argc;
    p.argv = argv;
    p.c.tokens = 1;
    profile_own_init(&p.c.own);
    if (cli_parse(&spec, argc, argv, &p.c, args, &n_args, &exit_status)) {
        exit_status = dispatch(&p, (char *const *)args, n_args);
        if (exit_status == 0 && (p.n_violations > 0 || *p.unsound))
            exit_status = MANIFEST_EXIT_INVALID;
    }
    output_file_destroy(p.report);
    output_file_destroy(p.trace);
    manifest_destroy(p.manifest);
    store_close(p.store);
    free(args);
    return exit_status;
}

const struct command cmd_profile = {&spec, run, false};
