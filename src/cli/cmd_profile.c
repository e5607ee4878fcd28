/* sol profile: runs any CUDA program with the tracing library in it and shows what its device did.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/inject_library.h"
#include "cli/profile_report.h"
#include "format/output_file.h"
#include "trace/capture.h"
#include "trace/chrome.h"
#include "trace/summary.h"
#include "trace/trace_file.h"
#include "trace/trace_read.h"
#include "trace/window.h"

/* What sol itself reports once the command runs, so that its statuses stay its own. */
enum { PROFILE_FAILED = 125, PATH_SIZE = 4096 };

struct profile_command {
    const char *output, *trace, *report, *folder, *level, *library, *range, *read;
};

static const struct option options[] = {
    {OPTION_STRING, 'o', "format", "FORMAT", "table, csv or json (default table)",
     offsetof(struct profile_command, output), 0, 0},
    {OPTION_STRING, 0, "report", "FILE", "write the report to FILE instead of standard output",
     offsetof(struct profile_command, report), 0, 0},
    {OPTION_STRING, 0, "trace", "FILE",
     "write the time line as JSON for ui.perfetto.dev or chrome://tracing",
     offsetof(struct profile_command, trace), 0, 0},
    {OPTION_STRING, 0, "output", "DIR", "keep the trace files in DIR",
     offsetof(struct profile_command, folder), 0, 0},
    {OPTION_STRING, 0, "read", "DIR", "no command: read the trace files that --output kept",
     offsetof(struct profile_command, read), 0, 0},
    {OPTION_STRING, 0, "level", "LEVEL",
     "off, graph (CUDA graphs as wholes) or node (every kernel in them); default graph",
     offsetof(struct profile_command, level), 0, 0},
    {OPTION_STRING, 0, "range", "NAME", "a step is an NVTX range of this name",
     offsetof(struct profile_command, range), 0, 0},
    {OPTION_STRING, 0, "inject-library", "FILE", "instead of the library within sol",
     offsetof(struct profile_command, library), 0, 0},
    {0},
};

static const struct command_spec spec = {
    .name = "profile",
    .summary = "trace a CUDA program: kernels, copies, gaps, steps",
    .arguments = "-- COMMAND [ARGUMENT...]",
    .notes =
        "The command and every process that it starts are traced where they use CUDA; their\n"
        "output and input are untouched. The exit status is the command's, 128 + N when signal N\n"
        "ended it, 127 when it was not found, 126 when it could not be run, 125 when sol failed\n"
        "after it had started. The report comes last on standard output, or in --report FILE.\n"
        "A step is found by NVTX ranges, else by CUDA graph runs, else by the order of kernels.\n"
        "CUPTI comes from the program itself (PyTorch brings it), from the CUDA toolkit, or from\n"
        "the file that SOL_CUPTI names.\n"
        "example: sol profile --level node -o csv -- llama-bench -m model.gguf -n 32\n",
    .options = options,
};

struct profile {
    struct profile_command c;
    enum report_format format;
    enum trace_level level;
    char folder[PATH_SIZE];
    bool temporary;
    struct capture_result result;
};

/* ---- options ---- */

static enum sol_status choose(const char *option, const char *value, const char *const *names,
                              int n, int *out)
{
    for (int i = 0; i < n; i++)
        if (strcmp(value, names[i]) == 0) {
            *out = i;
            return SOL_OK;
        }
    return status_set(SOL_E_ARGUMENT, "--%s %s: it is %s, %s or %s", option, value, names[0],
                      names[1], names[2]);
}

static enum sol_status check_options(struct profile *p, int n_args)
{
    static const char *const formats[] = {"table", "csv", "json"};
    static const char *const levels[] = {"off", "graph", "node"};
    int format = REPORT_TABLE, level = TRACE_GRAPH;
    if (p->c.output) SOL_TRY(choose("format", p->c.output, formats, 3, &format));
    if (p->c.level) SOL_TRY(choose("level", p->c.level, levels, 3, &level));
    p->format = (enum report_format)format;
    p->level = (enum trace_level)level;
    if (p->c.read && (n_args > 0 || p->c.folder))
        return status_set(SOL_E_ARGUMENT, "--read takes no command and no --output");
    if (!p->c.read && n_args == 0)
        return status_set(SOL_E_ARGUMENT,
                          "no command; put it after --: sol profile -- python train.py");
    return SOL_OK;
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
        if (rmdir(p->folder) != 0 || mkdir(p->folder, 0777) != 0)
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

static enum sol_status print_to_file(const struct profile_report *report, const struct profile *p)
{
    FILE *to = fopen(p->c.report, "w");
    if (!to) return status_set(SOL_E_IO, "cannot create '%s': %s", p->c.report, strerror(errno));
    enum sol_status status = profile_report_print(report, p->format, to);
    bool failed = ferror(to) != 0;
    if ((fclose(to) != 0 || failed) && status == SOL_OK)
        status = status_set(SOL_E_IO, "cannot write '%s': %s", p->c.report, strerror(errno));
    return status;
}

static enum sol_status write_trace(const struct timeline *t, const char *path)
{
    enum { BUFFER = 1 << 20 };
    FILE *to = fopen(path, "w");
    if (!to) return status_set(SOL_E_IO, "cannot create '%s': %s", path, strerror(errno));
    setvbuf(to, NULL, _IOFBF, BUFFER);
    enum sol_status status = chrome_write(t, to, path);
    if (fclose(to) != 0 && status == SOL_OK)
        status = status_set(SOL_E_IO, "cannot write '%s': %s", path, strerror(errno));
    return status;
}

static enum sol_status show(const struct profile *p, const struct timeline *t)
{
    struct trace_summary summary = {0};
    struct trace_window_set windows = {0};
    struct profile_report report = {t, &summary, &windows, p->result.exit_status, p->result.signal};
    enum sol_status status = trace_summarize(t, 0, INT64_MAX, &summary);
    if (status == SOL_OK) status = trace_windows_find(t, p->c.range, &windows);
    if (status == SOL_E_ARGUMENT) { /* the rest is still worth showing */
        log_write(LOG_WARN, "%s", sol_last_error());
        status = SOL_OK;
    }
    if (status == SOL_OK)
        status = p->c.report ? print_to_file(&report, p)
                             : profile_report_print(&report, p->format, stdout);
    trace_summary_free(&summary);
    trace_windows_free(&windows);
    if (status == SOL_OK && p->c.trace) status = write_trace(t, p->c.trace);
    return status;
}

static enum sol_status analyse(const struct profile *p, const char *folder)
{
    struct timeline *t;
    SOL_TRY(timeline_create(&t));
    enum sol_status status = trace_read_folder(t, folder);
    if (status == SOL_E_FORMAT && !p->c.read) {
        /* Not a fault of the trace: the library was never called. */
        log_write(LOG_WARN, "the command did not start CUDA, so there is nothing to show");
        status = SOL_OK;
    } else if (status == SOL_OK) {
        status = show(p, t);
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
    return capture_run(
        command,
        &(struct capture_options){.library = library, .folder = p->folder, .level = p->level},
        &p->result);
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

static int run(int argc, char **argv)
{
    static struct profile p;
    const char **args = calloc((size_t)argc + 1, sizeof *args);
    int n_args = 0, exit_status;
    if (!args) return cli_fail(status_set(SOL_E_MEMORY, "out of memory"));
    if (!cli_parse(&spec, argc, argv, &p.c, args, &n_args, &exit_status)) {
        free(args);
        return exit_status;
    }
    enum sol_status status = check_options(&p, n_args);
    if (status != SOL_OK)
        exit_status = cli_fail(status);
    else if (p.c.read)
        exit_status = cli_fail(analyse(&p, p.c.read));
    else
        exit_status = run_command(&p, (char *const *)args);
    free(args);
    return exit_status;
}

const struct command cmd_profile = {&spec, run};
