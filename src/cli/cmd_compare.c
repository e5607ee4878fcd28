/* sol compare: is B faster than A? Two commands run in turn, or two stored runs. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/progress.h"
#include "base/shell.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/next_steps.h"
#include "cli/target.h"
#include "compare/live.h"
#include "compare/noise.h"
#include "compare/report.h"
#include "compare/roles.h"
#include "compare/store.h"
#include "format/output_file.h"

struct compare_options {
    struct string_list metrics, expect;
    int64_t min_pairs, max_pairs, warmup, seed;
    double max_seconds, timeout, delta;
    struct int_list tokens;
    const char *format, *output, *ignore_lines, *store;
    bool json, live, calibrate, roles, same_output, across, quiet, no_store, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(FLAG, 0, "live", NULL, "A and B are commands: run them in turn",
                 offsetof(struct compare_options, live), 0, 0),
    OPTION_ENTRY(FLAG, 0, "calibrate", NULL,
                 "find out what this machine's own noise makes of two runs of the same command "
                 "(default: a short sol bench), and keep it as the smallest effect that counts",
                 offsetof(struct compare_options, calibrate), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "metric", "METRIC",
                 "what decides; may be repeated. Live: wall, user, cpu, test:NAME, regex:PATTERN, "
                 "json:PATH (rate: before the last two when higher is better); stored: a test's "
                 "name. Default: every test that both have, else wall time",
                 offsetof(struct compare_options, metrics), 0, 0),
    OPTION_ENTRY(PERCENT, 0, "delta", "PERCENT",
                 "smallest effect that counts (default: 1, or what --calibrate found)",
                 offsetof(struct compare_options, delta), 0.01, 100),
    OPTION_ENTRY(GROUP, 0, "Live", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(INT, 0, "min-pairs", "N", "at least so many pairs (default 6)",
                 offsetof(struct compare_options, min_pairs), COMPARE_PAIRS_MIN, COMPARE_PAIRS_MAX),
    OPTION_ENTRY(INT, 0, "max-pairs", "N", "at most so many (default: what the time allows)",
                 offsetof(struct compare_options, max_pairs), COMPARE_PAIRS_MIN, COMPARE_PAIRS_MAX),
    OPTION_ENTRY(FLOAT, 0, "max-seconds", "S",
                 "begin no pair later, but for the least (default 60)",
                 offsetof(struct compare_options, max_seconds), 0, 1e6),
    OPTION_ENTRY(FLOAT, 0, "timeout", "S", "end a command that takes longer (default 600)",
                 offsetof(struct compare_options, timeout), 0.01, 1e6),
    OPTION_ENTRY(INT, 0, "warmup", "N", "starts of each before the first pair (default 1)",
                 offsetof(struct compare_options, warmup), 1, 100),
    OPTION_ENTRY(FLAG, 0, "same-output", NULL, "standard output must be the same, else: incorrect",
                 offsetof(struct compare_options, same_output), 0, 0),
    OPTION_ENTRY(STRING, 0, "ignore-lines", "PATTERN", "lines of it that may differ (timings, say)",
                 offsetof(struct compare_options, ignore_lines), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "expect", "OP=VARIANT",
                 "kernel that B's benchmark JSON must list, else: invalid; or only OP; may be "
                 "repeated",
                 offsetof(struct compare_options, expect), 0, 0),
    OPTION_ENTRY(INT, 0, "seed", "N", "of random permutations (default 1)",
                 offsetof(struct compare_options, seed), 0, 9e18),
    OPTION_ENTRY(GROUP, 0, "Stored runs", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(FLAG, 0, "across", NULL, "they may be of different machines",
                 offsetof(struct compare_options, across), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Engines side by side", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(
        FLAG, 0, "roles", NULL,
        "A and B are profiles of any engine (runs, traces, exports of nsys): their kernels "
        "joined by what they do",
        offsetof(struct compare_options, roles), 0, 0),
    OPTION_ENTRY(INT_LIST, 0, "tokens", "A,B",
                 "tokens of a step of A and of B (default: what sol profile --tokens said, else 1)",
                 offsetof(struct compare_options, tokens), 1, 1e9),
    OPTION_ENTRY(GROUP, 0, "Output", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "text (default), md or json",
                 offsetof(struct compare_options, format), 0, 0),
    JSON_OPTION(struct compare_options, json),
    OPTION_ENTRY(STRING, 0, "output", "FILE", "write it there instead of to standard output",
                 offsetof(struct compare_options, output), 0, 0),
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where runs and calibration are kept (default $SOL_STORE, or sol in "
                 "$XDG_DATA_HOME)",
                 offsetof(struct compare_options, store), 0, 0),
    OPTION_ENTRY(FLAG, 0, "no-store", NULL, "keep nothing there, and read no calibration",
                 offsetof(struct compare_options, no_store), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr",
                 offsetof(struct compare_options, quiet), 0, 0),
    WIDE_OPTION(struct compare_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol compare --live --metric cpu './a.out 1' './a.out 2'",
     "two programs in turn, by processor time, which decides soonest", NULL},
    {"sol compare --live --metric test:tg64 --max-seconds 60 'old/sol bench --no-store -p 0 -n 64 "
     "-r 5 --json' 'new/sol bench --no-store -p 0 -n 64 -r 5 --json'",
     "two builds in turn, by a test that both print", NULL},
    {"sol compare --live --metric 'rate:regex:speed: ([0-9.]+)' --max-seconds 60 './a.out 1' "
     "'./a.out 2'",
     "two programs, by a figure that they print", NULL},
    {"sol compare last~1 last", "two stored runs", NULL},
    {"sol compare before.json after.json -o md", "two files, for a pull request", NULL},
    {"sol compare --roles mine theirs", "two engines, by what their kernels do",
     "profiles of two engines"},
    {"sol compare --calibrate", "what this machine's own noise makes of two equal runs", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "compare",
    .summary = "is B faster than A? commands run in turn, or stored runs",
    .arguments = "RUN_OR_FILE RUN_OR_FILE | --live 'COMMAND' 'COMMAND' | --roles A B | --calibrate "
                 "['COMMAND']",
    .notes =
        "Live, A and B run in turn (A B, B A, ...) until the difference is known to half the\n"
        "smallest effect that counts, or to a quarter of itself (when kernels were timed and\n"
        "something changed, at least 12 pairs); paired ratios, Hodges-Lehmann shift, exact\n"
        "sign-flip test of signed ranks and the interval that inverts it. Metrics that were not\n"
        "named before are exploratory and decide nothing. Several are corrected after Holm.\n"
        "With --roles the kernels of two engines (sol, llama.cpp, PyTorch) stand side by side by\n"
        "what they do: q, k and v, attention, router, experts and so on, told from their names,\n"
        "their launches and their order in a layer. What could not be placed is a row of its own,\n"
        "so that rows add up. --metric names the test of a stored run (default: generation).\n"
        "Stored runs (sol runs: an id, a label, last~1) and files of sol bench --json or\n"
        "llama-bench -o json are marked historical. Their unit is the start of a process\n"
        "(sol bench --starts N), since repetitions of one agree better than starts do: one "
        "against\n"
        "one is inconclusive until --calibrate has shown what starts differ by here.\n\n"
        "Verdicts and exit statuses:\n"
        "    0  same          any difference is below the smallest that counts\n"
        "   10  faster        the second takes less time\n"
        "   11  slower        the second takes more time\n"
        "   12  inconclusive  more repetitions are needed; it says how many\n"
        "   13  invalid       throttled, environment changed, or an expected kernel is missing\n"
        "    7  incorrect     the outputs differ\n"
        "   14  failed        a command failed\n"
        "\n"
        "Of --json: sol schema compare. In its blame delta_ns_per_token is kernels_ns + gaps_ns +\n"
        "clock_ns + residual_ns.",
    .examples = examples,
    .options = options,
};

/* Takes the reference. */
static enum sol_status write_json(json_t *json, FILE *to)
{
    if (!json) return status_set(SOL_E_MEMORY, "no memory for the report");
    json_dumpf(json, to, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', to);
    json_decref(json);
    return SOL_OK;
}

/* ---- engines side by side ---- */

/* Of a step; what the profile was told, where it was stored. */
static double tokens_of(const struct compare_options *o, const struct target *target, size_t side)
{
    const char *text = target->record ? target->record->run.payload_json : NULL;
    if (o->tokens.count) return (double)o->tokens.values[o->tokens.count > 1 ? side : 0];
    json_t *payload = text ? json_loads(text, 0, NULL) : NULL;
    double tokens =
        json_number_value(json_object_get(json_object_get(payload, "steady"), "tokens"));
    json_decref(payload);
    return tokens > 0 ? tokens : 1;
}

static enum sol_status read_side(const struct compare_options *o, struct store *store,
                                 const char *name, size_t i, struct roles_side *out)
{
    struct target target;
    const struct target_options how = {.few = true};
    enum sol_status status = target_open(store, name, &how, &target);
    if (status == SOL_OK && target.timeline)
        status = roles_of_timeline(target.timeline, &target.windows, tokens_of(o, &target, i), name,
                                   out);
    else if (status == SOL_OK && target.record)
        status = roles_of_record(target.record, o->metrics.count ? o->metrics.values[0] : NULL,
                                 name, out);
    else if (status == SOL_OK)
        status = status_set(SOL_E_ARGUMENT, "%s: %s files hold no profile", name,
                            import_format_name(target.import->format));
    target_close(&target);
    return status;
}

static enum sol_status write_roles(const struct compare_options *o,
                                   const struct roles_side sides[2], FILE *to)
{
    if (strcmp(o->format, "json") != 0)
        return roles_print(sides, strcmp(o->format, "md") == 0 ? TABLE_MARKDOWN : TABLE_TEXT, to);
    return write_json(roles_json(sides), to);
}

static enum sol_status run_roles(const struct compare_options *o, struct store *store,
                                 const char *const names[2])
{
    struct roles_side sides[2] = {{.name = NULL}, {.name = NULL}};
    struct output_file *to = NULL;
    FILE *file = stdout;
    enum sol_status status = SOL_OK;
    if (o->output) status = output_file_create(o->output, 0, OUTPUT_STREAM, &to);
    for (size_t i = 0; i < 2 && status == SOL_OK; i++)
        status = read_side(o, store, names[i], i, &sides[i]);
    if (status == SOL_OK && to) status = output_file_stream(to, &file);
    if (status == SOL_OK) status = write_roles(o, sides, file);
    if (status == SOL_OK && to) status = output_file_commit(to);
    for (size_t i = 0; i < 2; i++) roles_side_free(&sides[i]);
    output_file_destroy(to);
    return status;
}

/* ---- what is compared ---- */

static enum sol_status run_live(const struct compare_options *o,
                                const struct compare_params *common, const char *const names[2],
                                struct compare_result *out)
{
    struct compare_live_params p;
    compare_live_params_init(&p);
    p.commands[0] = names[0];
    p.commands[1] = names[1];
    p.common = common;
    p.metrics = &o->metrics;
    p.expect = &o->expect;
    p.min_pairs = (size_t)o->min_pairs;
    p.max_pairs = (size_t)(o->max_pairs > o->min_pairs ? o->max_pairs : o->min_pairs);
    p.max_seconds = o->max_seconds;
    p.timeout_s = o->timeout;
    p.warmup = (size_t)o->warmup;
    p.same_output = o->same_output;
    p.ignore_lines = o->ignore_lines;
    return compare_live(&p, out);
}

/* A file where there is one of that name, else a run of the store. */
static enum sol_status read_run(struct store *store, const char *name, struct records *out,
                                char id[STORE_ID_SIZE])
{
    id[0] = '\0';
    if (access(name, F_OK) == 0) return records_read(name, out);
    *out = (struct records){0};
    if (store) return compare_store_read(store, name, out, id);
    return status_set(SOL_E_ARGUMENT, "%s: no such file, and there is no store of runs", name);
}

static enum sol_status run_stored(const struct compare_options *o, struct store *store,
                                  struct compare_params *common, const char *const names[2],
                                  struct comparison_call *call, struct compare_result *out)
{
    struct records a, b = {0};
    enum sol_status status = read_run(store, names[0], &a, call->runs[0]);
    if (status == SOL_OK) status = read_run(store, names[1], &b, call->runs[1]);
    common->tests = o->metrics.values;
    common->n_tests = o->metrics.count;
    common->across_machines = o->across;
    if (status == SOL_OK && store)
        status = compare_store_noise(store, "prompt", &common->prompt_noise);
    if (status == SOL_OK && store)
        status = compare_store_noise(store, "generation", &common->generation_noise);
    if (status == SOL_OK) status = compare_historical(common, names, &a, &b, out);
    records_free(&a);
    records_free(&b);
    return status;
}

/* ---- the smallest effect that counts ---- */

/* "test" for "test:tg128"; what a program prints itself is "other". */
static const char *metric_kind_name(const char *metric)
{
    static const char *const plain[] = {"wall", "user", "cpu"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(metric, plain[i]) == 0) return plain[i];
    return strncmp(metric, "test:", 5) == 0 ? "test" : "other";
}

/* The largest that calibration found for what may decide. */
static enum sol_status choose_delta(const struct compare_options *o, struct store *store,
                                    struct compare_params *common)
{
    common->delta = o->delta > 0 ? o->delta / 100 : COMPARE_DELTA_PPM * 1e-6;
    common->delta_source = o->delta > 0 ? "--delta" : "the least on any machine";
    common->delta_is_given = o->delta > 0;
    if (o->delta > 0 || !store) return SOL_OK;
    const char *kinds[OPTION_LIST_MAX + 2];
    size_t count = 0;
    for (size_t i = 0; o->live && i < o->metrics.count; i++)
        kinds[count++] = metric_kind_name(o->metrics.values[i]);
    if (count == 0) kinds[count++] = "test";
    if (o->live && o->metrics.count == 0) kinds[count++] = "wall"; /* one of the two will decide */
    for (size_t i = 0; i < count; i++) {
        double found;
        SOL_TRY(compare_store_delta(store, kinds[i], &found));
        if (found <= common->delta) continue;
        common->delta = found;
        common->delta_source = "this machine's calibration";
    }
    return SOL_OK;
}

/* What one metric's starts did, in the order they were made: A B, B A, ... *limit: the noise of a
 * comparison of many pairs, the larger one of it and of what it was. */
static enum sol_status learn(const struct compare_metric *m, uint64_t seed, struct store *store,
                             double *limit)
{
    size_t n = m->count[0];
    double found, *values = malloc((2 * n + 1) * sizeof *values);
    if (!values) return status_set(SOL_E_MEMORY, "no memory for the calibration");
    for (size_t i = 0; i < n; i++) {
        values[2 * i] = m->values[i % 2][i];
        values[2 * i + 1] = m->values[1 - i % 2][i];
    }
    struct noise noise = {values, 2 * n};
    struct start_noise starts = {0};
    enum sol_status status = noise_limit(&noise, 40, 400, seed, &found);
    if (status == SOL_OK && found > *limit) *limit = found;
    start_noise_add(&starts, values, 2 * n);
    free(values);
    if (status != SOL_OK || strcmp(m->unit, "t/s") != 0) return status;
    const char *test = strncmp(m->name, "test:", 5) == 0 ? m->name + 5 : m->name;
    return compare_store_add_noise(store, compare_noise_kind(test), &starts);
}

/* This program, wherever it lies; in quotes for a shell where that is needed. */
static enum sol_status default_command(char text[4400])
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) return status_set(SOL_E_IO, "cannot find this program: %s", strerror(errno));
    path[length] = '\0';
    FILE *to = fmemopen(text, 4400, "w");
    if (!to) return status_set(SOL_E_MEMORY, "no memory for a command");
    shell_write(to, path);
    fputs(" bench --no-limits --no-store -q -p 64 -n 32 -r 5 -o json", to);
    fclose(to);
    return SOL_OK;
}

static enum sol_status print_calibration(const struct compare_options *o, const char *kind,
                                         double limit, const struct compare_result *r)
{
    double counts = fmax(limit, COMPARE_DELTA_PPM * 1e-6);
    if (strcmp(o->format, "json") == 0)
        return json_print(json_pack("{s:s, s:s, s:f, s:f, s:I, s:f}", "metric", r->metrics[0].name,
                                    "kind", kind, "noise_percent", 100 * limit, "delta_percent",
                                    100 * counts, "pairs", (json_int_t)r->pairs, "other_cores",
                                    r->other_cores));
    printf(
        "%s: 95 of 100 comparisons of the same thing differ by less than %.2f %% (%zu pairs; other "
        "programs kept %.1f cores busy)\nsmallest effect that counts here: %.2f %%\n",
        r->metrics[0].name, 100 * limit, r->pairs, r->other_cores, 100 * counts);
    return SOL_OK;
}

static enum sol_status calibrate(struct compare_options *o, struct store *store,
                                 const struct compare_params *common, const char *const *args,
                                 int n)
{
    char own[4400];
    const char *command = n ? args[0] : own;
    const char *const both[2] = {command, command};
    struct compare_result r;
    double limit = 0;
    if (n == 0) SOL_TRY(default_command(own));
    if (!store)
        return status_set(SOL_E_ARGUMENT, "--calibrate needs a store to keep what it finds in");
    o->min_pairs = o->max_pairs = o->min_pairs > 60 ? o->min_pairs : 60;
    SOL_TRY(run_live(o, common, both, &r));
    enum sol_status status = SOL_OK;
    const char *kind = o->metrics.count ? metric_kind_name(o->metrics.values[0]) : "wall";
    if (r.n_metrics && !o->metrics.count && strcmp(r.metrics[0].unit, "t/s") == 0) kind = "test";
    if (r.reason || r.pairs < COMPARE_PAIRS_MIN)
        status =
            status_set(SOL_E_ARGUMENT, "--calibrate: %s", r.reason ? r.reason : "too few pairs");
    for (size_t i = 0; i < r.n_metrics && status == SOL_OK; i++)
        if (r.metrics[i].deciding) status = learn(&r.metrics[i], common->seed, store, &limit);
    if (status == SOL_OK) status = compare_store_set_delta(store, kind, limit, command, &r);
    if (status == SOL_OK) status = print_calibration(o, kind, limit, &r);
    compare_result_free(&r);
    return status;
}

/* ---- output ---- */

/* `run`: the id that it is kept under, or "". */
static enum sol_status write_report(const struct compare_options *o,
                                    const struct compare_result *result, const char *run, FILE *to)
{
    if (strcmp(o->format, "json") != 0) {
        bool markdown = strcmp(o->format, "md") == 0;
        SOL_TRY(compare_report_write(result, markdown ? TABLE_MARKDOWN : TABLE_TEXT, to));
        if (*run) fprintf(to, "%srun %s\n", markdown ? "\n" : "", run);
        return SOL_OK;
    }
    json_t *json = compare_report_json(result);
    if (!json) return status_set(SOL_E_MEMORY, "no memory for the report");
    json_object_set_new(json, "run", *run ? json_string(run) : json_null());
    return write_json(json, to);
}

static enum sol_status report(const struct compare_options *o, const struct compare_result *result,
                              const char *run, struct output_file *to)
{
    FILE *file;
    if (!to) return write_report(o, result, run, stdout);
    SOL_TRY(output_file_stream(to, &file));
    SOL_TRY(write_report(o, result, run, file));
    return output_file_commit(to);
}

static enum sol_status check_usage(const struct compare_options *o, const char *const *args, int n)
{
    if (strcmp(o->format, "text") != 0 && strcmp(o->format, "md") != 0 &&
        strcmp(o->format, "json") != 0)
        return status_set(SOL_E_ARGUMENT, "-o %s: the formats are text, md and json", o->format);
    if (o->calibrate && n > 1)
        return status_set(SOL_E_ARGUMENT, "--calibrate takes one command; put it in quotes");
    if (o->roles && (o->live || o->calibrate))
        return status_set(SOL_E_ARGUMENT, "--roles compares profiles that were made before; leave "
                                          "--live and --calibrate out");
    if (o->tokens.count && !o->roles)
        return status_set(SOL_E_ARGUMENT, "--tokens belongs to --roles");
    if (o->tokens.count > 2)
        return status_set(SOL_E_ARGUMENT, "--tokens takes one number, or one each of A and B");
    if (o->calibrate) return SOL_OK;
    if (n > 2)
        return status_set(SOL_E_ARGUMENT,
                          "sol compare takes two things, the third is '%s'; put commands in quotes",
                          args[2]);
    if (n < 2 && o->live)
        return status_set(SOL_E_ARGUMENT, "sol compare --live wants two commands, each in quotes");
    if (n < 2)
        return status_set(SOL_E_ARGUMENT,
                          "sol compare A B: what should be compared? (see sol compare --help)");
    return SOL_OK;
}

struct invocation {
    int argc;
    char **argv;
    const char **args;
    int n_args;
};

/* `id` stays "" where nothing is kept. */
static enum sol_status keep(const struct compare_result *result, struct store *store,
                            const struct invocation *call, char id[STORE_ID_SIZE])
{
    id[0] = '\0';
    return store ? compare_store_keep(store, result, call->argc, call->argv, id) : SOL_OK;
}

static enum sol_status run_with(struct compare_options *o, struct store *store,
                                const struct invocation *call, enum verdict *verdict)
{
    struct compare_params common = {.seed = (uint64_t)o->seed};
    struct compare_result result;
    struct comparison_call asked = {.argc = call->argc,
                                    .argv = call->argv,
                                    .store_option = o->store,
                                    .max_seconds = o->max_seconds};
    SOL_TRY(choose_delta(o, store, &common));
    if (o->calibrate) return calibrate(o, store, &common, call->args, call->n_args);
    struct output_file *to = NULL;
    if (o->output) SOL_TRY(output_file_create(o->output, 0, OUTPUT_STREAM, &to));
    enum sol_status status = o->live ? run_live(o, &common, call->args, &result)
                                     : run_stored(o, store, &common, call->args, &asked, &result);
    if (status == SOL_OK) {
        char id[STORE_ID_SIZE];
        next_of_comparison(&asked, store, &result);
        enum sol_status kept = keep(&result, store, call, id);
        status = report(o, &result, kept == SOL_OK ? id : "", to);
        if (status == SOL_OK) status = kept;
        *verdict = result.verdict;
        compare_result_free(&result);
    }
    output_file_destroy(to);
    return status;
}

static enum sol_status run(struct compare_options *o, const struct invocation *call,
                           enum verdict *verdict)
{
    struct store *store = NULL;
    SOL_TRY(check_usage(o, call->args, call->n_args));
    if (!o->no_store) SOL_TRY(store_open_optional(o->store, &store));
    enum sol_status status = store_apart(store, o->output);
    if (status == SOL_OK)
        status = o->roles ? run_roles(o, store, call->args) : run_with(o, store, call, verdict);
    store_close(store);
    return status;
}

static int run_command(int argc, char **argv)
{
    struct compare_options o = {.min_pairs = COMPARE_PAIRS_MIN,
                                .max_pairs = COMPARE_PAIRS_MAX,
                                .max_seconds = COMPARE_SECONDS,
                                .timeout = 600,
                                .warmup = 1,
                                .seed = 1,
                                .format = "text"};
    struct invocation call = {argc, argv, calloc((size_t)argc + 1, sizeof *call.args), 0};
    int exit_status;
    enum verdict verdict = VERDICT_SAME;
    if (!call.args) return cli_fail(status_set(SOL_E_MEMORY, "no memory for the command line"));
    if (cli_parse(&spec, argc, argv, &o, call.args, &call.n_args, &exit_status)) {
        progress_quiet(o.quiet);
        exit_status = cli_fail(run(&o, &call, &verdict));
        if (exit_status == 0) exit_status = verdict_exit_status(verdict);
    }
    free(call.args);
    return exit_status;
}

const struct command cmd_compare = {&spec, run_command, false};
