/* sol advise: what a profile or benchmark says about where time can be won. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise/advice.h"
#include "advise/whatif.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/gate_options.h"
#include "cli/next_steps.h"
#include "cli/target.h"
#include "profile/store.h"

struct advise_options {
    const char *store, *format, *range, *phase;
    double inflation, null_gap, tokens;
    bool rules, json, wide;
    struct string_list what_if;
    struct gate_options gates;
};

static const struct option options[] = {
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where runs are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
                 offsetof(struct advise_options, store), 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default) or json",
                 offsetof(struct advise_options, format), 0, 0),
    JSON_OPTION(struct advise_options, json),
    OPTION_ENTRY(FLAG, 0, "rules", NULL, "list the rules with their thresholds, and nothing else",
                 offsetof(struct advise_options, rules), 0, 0),
    OPTION_ENTRY(
        STRINGS, 0, "what-if", "CHANGE",
        "instead of advice, how long a step would take, by replaying it: NAME=FACTOR "
        "(kernels of a role, op, category or name), 'fuse A B', 'overlap A B', gap=FACTOR, "
        "gap.host=FACTOR or gap.launch=FACTOR; may be repeated",
        offsetof(struct advise_options, what_if), 0, 0),
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
    OPTION_ENTRY(STRING, 0, "phase", "PHASE", "gates and --what-if look at decode or prefill alone",
                 offsetof(struct advise_options, phase), 0, 0),
    GATE_OPTIONS(struct advise_options, gates),
    WIDE_OPTION(struct advise_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol advise last", "what the last profile or benchmark says should be done", NULL},
    {"sol advise last --what-if attention=0.5 --what-if gap=0",
     "how long a step would be with attention twice as fast, and without idle time", NULL},
    {"sol advise --rules", "every rule, and when it fires", NULL},
    {"sol advise baseline --json", "of the run of that label, for programs", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "advise",
    .summary = "where time can be won, with evidence, and the one next step",
    .arguments = "[RUN | TRACE | FILE]",
    .notes =
        "RUN is a stored profile or benchmark (with --ops): an id, a label, last (the newest of "
        "those;\n"
        "the default).\n"
        "TRACE is a folder or file that sol profile --output kept; FILE an export of another tool\n"
        "(see sol import). Advice on a stored run is kept with it.\n"
        "`gain at most` is all that a rule's time could save, `likely` that times the share of\n"
        "this rule's predictions that came true so far (1/2 to start with). No two counted lines\n"
        "touch the same time. Exit status 13: the run is invalid.\n"
        "--what-if follows what waited for what (streams, launches of the host, waits), so that a\n"
        "gap which the host caused stays when the kernel ahead of it gets shorter. Fused kernels\n"
        "take as long as the longer one; those that overlap do not slow each other down. How far\n"
        "such answers were off for changes that were really made is printed with each.",
    .examples = examples,
    .options = options,
};

struct advise {
    struct advise_options o;
    struct store *store; /* NULL where none is needed */
    struct manifest *manifest;
    struct target target;
    struct gate_kernel *kernels;
    size_t n_kernels;
    const struct rules_violation *violations;
    size_t n_violations;
};

/* ---- sources ---- */

static enum sol_status timeline_kernels(struct advise *a)
{
    const struct target *target = &a->target;
    struct trace_summary summary = {0};
    enum sol_status status = profile_steady_summary(target->timeline, &target->windows, &summary);
    double tokens = a->o.tokens * (double)target->windows.count;
    if (status == SOL_OK)
        status =
            gate_kernels_of_summary(target->timeline, &summary, tokens, &a->kernels, &a->n_kernels);
    trace_summary_free(&summary);
    return status;
}

static enum sol_status counter_kernels(struct advise *a)
{
    const struct import *import = a->target.import;
    const struct counters *c = &import->counters;
    a->kernels = calloc(c->count + import->n_kernels + 1, sizeof *a->kernels);
    if (!a->kernels) return status_set(SOL_E_MEMORY, "out of memory for gates");
    for (size_t i = 0; i < c->count; i++)
        a->kernels[a->n_kernels++] =
            (struct gate_kernel){c->kernels[i].name, category_name(category_of(c->kernels[i].name)),
                                 (double)c->kernels[i].calls, (double)NAN,
                                 (double)c->kernels[i].calls * c->kernels[i].duration_ns};
    return SOL_OK;
}

static enum sol_status record_kernels(struct advise *a)
{
    const struct store_record *record = a->target.record;
    if (!advice_has_times(record) && record->n_advice == 0 && manifest_empty(a->manifest))
        return status_set(SOL_E_ARGUMENT,
                          "run %s (%s) has no times of kernels; make one with sol profile, or sol "
                          "bench --ops",
                          a->target.id, record->run.kind);
    return gate_kernels_of_record(record->kernels, record->n_kernels, a->o.phase, &a->kernels,
                                  &a->n_kernels);
}

static enum sol_status open_target(struct advise *a, const char *name)
{
    const struct target_options how = {a->o.range, a->o.what_if.count > 0};
    bool file = access(name, F_OK) == 0;
    SOL_TRY(file ? store_open_optional(a->o.store, &a->store) : store_open(a->o.store, &a->store));
    SOL_TRY(target_open(a->store, name, &how, &a->target));
    if (a->o.what_if.count) return SOL_OK;
    if (a->target.timeline) return timeline_kernels(a);
    if (a->target.record) return record_kernels(a);
    if (a->target.import->counters.count) return counter_kernels(a);
    return status_set(SOL_E_ARGUMENT,
                      "%s: %s files hold no profile; import and compare them instead", name,
                      import_format_name(a->target.import->format));
}

/* ---- judging ---- */

static enum sol_status judge(struct advise *a, struct rules_report *report)
{
    struct rules_input input = {
        .timeline = a->target.timeline,
        .windows = &a->target.windows,
        .inflation = a->o.inflation / 100,
        .null_gap_ns = (int64_t)a->o.null_gap,
        .counters = a->target.import ? &a->target.import->counters : NULL,
        .violations = a->violations,
        .n_violations = a->n_violations,
    };
    if (a->target.record) return advice_of_record(a->target.record, a->store, &input, report);
    return rules_run(&input, a->store, report);
}

/* Imports keep what only their file could say. */
static enum sol_status print_kept(const struct advise *a)
{
    const struct store_record *r = a->target.record;
    const struct rule *rule = rule_find(r->advice[0].rule);
    const char *text = r->advice[0].evidence_json;
    json_t *evidence = text ? json_loads(text, 0, NULL) : NULL;
    const char *own = json_string_value(json_object_get(evidence, "todo"));
    struct next next;
    next_of_advice(&next,
                   own    ? own
                   : rule ? rule->next
                          : "see what is kept",
                   a->target.id, a->o.store);
    json_decref(evidence);
    if (a->o.json) return json_print(advice_kept_json(r, &next));
    printf("advice kept with %s\n\n", a->target.id);
    if (r->run.noise) printf("note: %s\n\n", r->run.noise);
    for (size_t i = 0; i < r->n_advice; i++) {
        const struct store_advice *row = &r->advice[i];
        double percent = row->window_ns > 0 ? 100 * row->ceiling_ns / row->window_ns : 0;
        printf("%zu. %s (at most %.1f %%): %s\n", i + 1, row->rule, percent,
               row->text ? row->text : "");
    }
    if (r->run.state == STORE_INVALID)
        printf("\nthis run is invalid: its figures must not be used\n");
    putchar('\n');
    next_print(&next, stdout);
    return SOL_OK;
}

static enum sol_status what_if(const struct advise *a)
{
    const struct string_list *changes = &a->o.what_if;
    const struct timeline *t = a->target.timeline;
    const struct store_record *record = a->target.record;
    const char *id = record ? a->target.id : NULL;
    struct whatif_report report = {0};
    enum sol_status status;
    if (t)
        status =
            whatif_of_timeline(t, &a->target.windows, changes->values, changes->count, &report);
    else if (record)
        status = whatif_of_record(record, a->o.phase, changes->values, changes->count, &report);
    else
        status = status_set(SOL_E_ARGUMENT, "counters have no order and no times between kernels; "
                                            "--what-if needs a profile or a trace");
    if (status == SOL_OK)
        status =
            a->o.json ? json_print(whatif_json(&report, id)) : whatif_print(&report, id, stdout);
    whatif_report_free(&report);
    return status;
}

static enum sol_status work(struct advise *a, const char *target, bool *invalid)
{
    struct rules_report report;
    SOL_TRY(gate_options_create(&a->o.gates, &a->manifest));
    SOL_TRY(open_target(a, target));
    if (a->o.what_if.count) return what_if(a);
    SOL_TRY(gate_options_apply(&a->o.gates, a->manifest, a->kernels, a->n_kernels, &a->violations,
                               &a->n_violations));
    const struct store_record *record = a->target.record;
    bool limits = false;
    for (size_t i = 0; record && i < record->n_kernels; i++)
        limits = limits || record->kernels[i].limit_ns > 0;
    *invalid = record && record->run.state == STORE_INVALID;
    if (record && !a->target.timeline && !limits && record->n_advice && a->n_violations == 0)
        return print_kept(a);
    SOL_TRY(judge(a, &report));
    const char *id = record ? a->target.id : NULL;
    *invalid = *invalid || report.invalid;
    /* Nothing is more important to know about figures than that they are unsure. */
    if (record && record->run.noise) report.caveat = record->run.noise;
    struct next next;
    next_of_advice(&next, report.todo, id, a->o.store);
    enum sol_status status = a->o.json ? json_print(advice_json(&report, id, &next))
                                       : advice_print(&report, id, &next, stdout);
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
    target_close(&a->target);
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
    if (a.o.rules)
        return cli_fail(a.o.json ? json_print(advice_rules_json()) : advice_print_rules(stdout));
    return advise(&a, n ? args[0] : "last");
}

const struct command cmd_advise = {&spec, run, false};
