/* sol advise: what a profile or benchmark says about where time can be won. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advise/advice.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/gate_options.h"
#include "import/import.h"
#include "profile/store.h"
#include "trace/trace_file.h"
#include "trace/trace_read.h"

struct advise_options {
    const char *store, *format, *range, *phase;
    double inflation, null_gap, tokens;
    bool rules, json;
    struct gate_options gates;
};

static const struct option options[] = {
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where runs are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
                 offsetof(struct advise_options, store), 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default) or json",
                 offsetof(struct advise_options, format), 0, 0),
    OPTION_ENTRY(FLAG, 0, "json", NULL, "same as -o json", offsetof(struct advise_options, json), 0,
                 0),
    OPTION_ENTRY(FLAG, 0, "rules", NULL, "list the rules with their thresholds, and nothing else",
                 offsetof(struct advise_options, rules), 0, 0),
    OPTION_ENTRY(GROUP, 0, "About a trace", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "range", "NAME", "a step is an NVTX range of this name",
                 offsetof(struct advise_options, range), 0, 0),
    OPTION_ENTRY(PERCENT, 0, "inflation", "PERCENT",
                 "how much slower tracing made the program; over 5 gaps are not judged",
                 offsetof(struct advise_options, inflation), -100, 10000),
    OPTION_ENTRY(FLOAT, 0, "null-gap", "NS",
                 "gap between two empty kernels on this device (default 1000)",
                 offsetof(struct advise_options, null_gap), 1, 1e6),
    OPTION_ENTRY(FLOAT, 0, "tokens", "N", "tokens of a step, for counts per token (default 1)",
                 offsetof(struct advise_options, tokens), 0.001, 1e9),
    OPTION_ENTRY(STRING, 0, "phase", "PHASE", "gates look at decode or prefill alone",
                 offsetof(struct advise_options, phase), 0, 0),
    GATE_OPTIONS(struct advise_options, gates),
    {0},
};

static const struct command_spec spec = {
    .name = "advise",
    .summary = "where time can be won, with evidence, and the one next step",
    .arguments = "[RUN | TRACE | FILE]",
    .notes =
        "RUN is a stored profile or benchmark (with --ops): an id, a label, last (the default).\n"
        "TRACE is a folder or file that sol profile --output kept; FILE an export of another tool\n"
        "(see sol import). Advice on a stored run is kept with it.\n"
        "`gain at most` is all that a rule's time could save, `likely` that times the share of\n"
        "this rule's predictions that came true so far (1/2 to start with). No two counted lines\n"
        "touch the same time. Exit status 13: the run is invalid.\n",
    .options = options,
};

struct advise {
    struct advise_options o;
    struct store *store; /* NULL where none is needed */
    struct manifest *manifest;
    struct timeline *timeline;
    struct trace_window_set windows;
    struct import *import;
    struct store_record *record;
    char id[STORE_ID_SIZE];
    struct gate_kernel *kernels;
    size_t n_kernels;
    const struct rules_violation *violations;
    size_t n_violations;
};

/* ---- sources ---- */

static enum sol_status find_steps(struct advise *a, const struct timeline *t)
{
    struct trace_summary summary = {0};
    SOL_TRY(trace_windows_find(t, a->o.range, &a->windows));
    enum sol_status status = profile_steady_summary(t, &a->windows, &summary);
    double tokens = a->o.tokens * (double)a->windows.count;
    if (status == SOL_OK)
        status = gate_kernels_of_summary(t, &summary, tokens, &a->kernels, &a->n_kernels);
    trace_summary_free(&summary);
    return status;
}

static enum sol_status open_folder(struct advise *a, const char *path)
{
    SOL_TRY(timeline_create(&a->timeline));
    SOL_TRY(trace_read_folder(a->timeline, path));
    return find_steps(a, a->timeline);
}

static bool holds_trace(const void *data, size_t size)
{
    uint64_t magic = 0;
    if (size >= sizeof magic) memcpy(&magic, data, sizeof magic);
    return magic == TRACE_FILE_MAGIC;
}

static bool is_trace(const char *path)
{
    struct mapped_file file;
    if (mapped_file_open(path, &file) != SOL_OK) return false;
    bool yes = holds_trace(file.data, file.size);
    mapped_file_close(&file);
    return yes;
}

static enum sol_status counter_kernels(struct advise *a)
{
    const struct counters *c = &a->import->counters;
    a->kernels = calloc(c->count + a->import->n_kernels + 1, sizeof *a->kernels);
    if (!a->kernels) return status_set(SOL_E_MEMORY, "out of memory for gates");
    for (size_t i = 0; i < c->count; i++)
        a->kernels[a->n_kernels++] =
            (struct gate_kernel){c->kernels[i].name, category_name(category_of(c->kernels[i].name)),
                                 (double)c->kernels[i].calls, (double)NAN,
                                 (double)c->kernels[i].calls * c->kernels[i].duration_ns};
    return SOL_OK;
}

static enum sol_status open_file(struct advise *a, const char *path)
{
    if (is_trace(path)) {
        SOL_TRY(timeline_create(&a->timeline));
        SOL_TRY(trace_read_file(a->timeline, path));
        SOL_TRY(timeline_finish(a->timeline));
        return find_steps(a, a->timeline);
    }
    SOL_TRY(import_file(path, &a->import));
    if (a->import->timeline) return find_steps(a, a->import->timeline);
    if (a->import->counters.count) return counter_kernels(a);
    return status_set(SOL_E_ARGUMENT,
                      "%s: %s files hold no profile; import and compare them instead", path,
                      import_format_name(a->import->format));
}

static enum sol_status add_trace(struct advise *a, const struct store_artifact *file)
{
    char *data;
    size_t size;
    enum sol_status status = store_artifact_read(a->store, a->id, file, &data, &size);
    if (status == SOL_E_IO) {
        LOG_WARN("a trace of run %s is left out: %s", a->id, sol_last_error());
        return SOL_OK;
    }
    SOL_TRY(status);
    if (holds_trace(data, size)) {
        if (!a->timeline) status = timeline_create(&a->timeline);
        if (status == SOL_OK) status = trace_read_memory(a->timeline, data, size, file->path);
    }
    free(data);
    return status;
}

/* The traces that a profile kept. */
static enum sol_status open_artifacts(struct advise *a)
{
    for (size_t i = 0; i < a->record->n_artifacts; i++)
        if (strcmp(a->record->artifacts[i].kind, "trace") == 0)
            SOL_TRY(add_trace(a, &a->record->artifacts[i]));
    if (!a->timeline) return SOL_OK;
    SOL_TRY(timeline_finish(a->timeline));
    return find_steps(a, a->timeline);
}

static enum sol_status open_run(struct advise *a, const char *name)
{
    SOL_TRY(store_open(a->o.store, &a->store));
    SOL_TRY(store_find(a->store, name, NULL, a->id));
    SOL_TRY(store_record_read(a->store, a->id, &a->record));
    SOL_TRY(open_artifacts(a));
    if (a->timeline) return SOL_OK;
    if (!advice_has_times(a->record) && a->record->n_advice == 0 && manifest_empty(a->manifest))
        return status_set(SOL_E_ARGUMENT,
                          "run %s (%s) has no times of kernels; make one with sol profile, or sol "
                          "bench --ops",
                          a->id, a->record->run.kind);
    return gate_kernels_of_record(a->record->kernels, a->record->n_kernels, a->o.phase, &a->kernels,
                                  &a->n_kernels);
}

static enum sol_status open_target(struct advise *a, const char *target)
{
    struct stat info;
    if (stat(target, &info) != 0) return open_run(a, target);
    return S_ISDIR(info.st_mode) ? open_folder(a, target) : open_file(a, target);
}

/* ---- judging ---- */

static enum sol_status judge(struct advise *a, struct rules_report *report)
{
    struct rules_input input = {
        .timeline = a->timeline ? a->timeline
                    : a->import ? a->import->timeline
                                : NULL,
        .windows = &a->windows,
        .inflation = a->o.inflation / 100,
        .null_gap_ns = (int64_t)a->o.null_gap,
        .counters = a->import ? &a->import->counters : NULL,
        .violations = a->violations,
        .n_violations = a->n_violations,
    };
    if (a->record) return advice_of_record(a->record, a->store, &input, report);
    if (!a->store) SOL_TRY(store_open_optional(a->o.store, &a->store));
    return rules_run(&input, a->store, report);
}

/* Imports keep what only their file could say. */
static enum sol_status print_kept(const struct advise *a)
{
    const struct store_record *r = a->record;
    if (a->o.json) {
        json_t *list = json_array();
        for (size_t i = 0; i < r->n_advice; i++) {
            const struct store_advice *row = &r->advice[i];
            json_t *evidence = row->evidence_json ? json_loads(row->evidence_json, 0, NULL) : NULL;
            json_array_append_new(
                list, json_pack("{s:s, s:s?, s:s?, s:f, s:f, s:f, s:o}", "rule", row->rule,
                                "subject", row->subject, "text", row->text, "window_ns",
                                isnan(row->window_ns) ? 0 : row->window_ns, "ceiling_ns",
                                row->ceiling_ns, "likely_ns", row->likely_ns, "evidence",
                                evidence ? evidence : json_null()));
        }
        const struct rule *first = r->n_advice ? rule_find(r->advice[0].rule) : NULL;
        return json_print(json_pack("{s:s, s:s, s:o, s:b, s:s}", "schema", "sol.advice.1", "run",
                                    a->id, "advice", list, "invalid", r->run.state == STORE_INVALID,
                                    "next", first ? first->next : "Nothing to do: no rule fired."));
    }
    printf("advice kept with %s\n\n", a->id);
    for (size_t i = 0; i < r->n_advice; i++) {
        const struct store_advice *row = &r->advice[i];
        double percent = row->window_ns > 0 ? 100 * row->ceiling_ns / row->window_ns : 0;
        printf("%zu. %s (at most %.1f %%): %s\n", i + 1, row->rule, percent,
               row->text ? row->text : "");
    }
    const struct rule *first = rule_find(r->advice[0].rule);
    if (r->run.state == STORE_INVALID)
        printf("\nthis run is invalid: its figures must not be used\n");
    if (first) printf("\nnext: %s (%s)\n", first->next, first->name);
    return SOL_OK;
}

static enum sol_status work(struct advise *a, const char *target, bool *invalid)
{
    struct rules_report report;
    SOL_TRY(gate_options_create(&a->o.gates, &a->manifest));
    SOL_TRY(open_target(a, target));
    SOL_TRY(gate_options_apply(&a->o.gates, a->manifest, a->kernels, a->n_kernels, &a->violations,
                               &a->n_violations));
    bool limits = false;
    for (size_t i = 0; a->record && i < a->record->n_kernels; i++)
        limits = limits || a->record->kernels[i].limit_ns > 0;
    *invalid = a->record && a->record->run.state == STORE_INVALID;
    if (a->record && !a->timeline && !limits && a->record->n_advice && a->n_violations == 0)
        return print_kept(a);
    SOL_TRY(judge(a, &report));
    const char *id = a->record ? a->id : NULL;
    *invalid = *invalid || report.invalid;
    enum sol_status status =
        a->o.json ? json_print(advice_json(&report, id)) : advice_print(&report, id, stdout);
    if (status == SOL_OK && id) status = advice_store(a->store, id, &report);
    rules_report_free(&report);
    return status;
}

static enum sol_status check_format(struct advise_options *o)
{
    if (!o->format || strcmp(o->format, "table") == 0) return SOL_OK;
    if (strcmp(o->format, "json") != 0)
        return status_set(SOL_E_ARGUMENT, "-o %s: the formats are table and json", o->format);
    o->json = true;
    return SOL_OK;
}

static int advise(struct advise *a, const char *target)
{
    bool invalid = false;
    int exit_status = cli_fail(work(a, target, &invalid));
    manifest_destroy(a->manifest);
    timeline_destroy(a->timeline);
    trace_windows_free(&a->windows);
    import_destroy(a->import);
    store_record_destroy(a->record);
    free(a->kernels);
    store_close(a->store);
    return exit_status == 0 && invalid ? MANIFEST_EXIT_INVALID : exit_status;
}

static int run(int argc, char **argv)
{
    static struct advise a;
    const char *args[OPTION_LIST_MAX];
    int n, exit_status;
    a.o = (struct advise_options){.inflation = (double)NAN, .null_gap = 1000, .tokens = 1};
    if (argc > OPTION_LIST_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many arguments"));
    if (!cli_parse(&spec, argc, argv, &a.o, args, &n, &exit_status)) return exit_status;
    enum sol_status status = check_format(&a.o);
    if (status == SOL_OK && n > 1)
        status = status_set(SOL_E_ARGUMENT, "one run or trace at a time, not '%s' too", args[1]);
    if (status != SOL_OK) return cli_fail(status);
    if (a.o.rules) return cli_fail(advice_print_rules(stdout));
    return advise(&a, n ? args[0] : "last");
}

const struct command cmd_advise = {&spec, run, false};
