/* sol compare: is B faster than A? Two commands run in turn, or two stored runs. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "lab/compare_live.h"
#include "lab/compare_report.h"

struct compare_options {
    struct string_list metrics, expect;
    int64_t min_pairs, max_pairs, warmup, seed;
    double max_seconds, timeout, delta;
    const char *format, *output, *ignore_lines;
    bool live, same_output, across, quiet;
};

static const struct option options[] = {
    OPTION_ENTRY(FLAG, 0, "live", NULL, "A and B are commands: run them in turn",
                 offsetof(struct compare_options, live), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "metric", "METRIC",
                 "what decides; may be repeated. Live: wall, user, cpu, test:NAME, regex:PATTERN, "
                 "json:PATH (rate: before the last two when higher is better); stored: a test's "
                 "name. Default: every test that both have, else wall time",
                 offsetof(struct compare_options, metrics), 0, 0),
    OPTION_ENTRY(FLOAT, 0, "delta", "PERCENT",
                 "smallest effect that counts (default: 1, or what --calibrate found)",
                 offsetof(struct compare_options, delta), 0.01, 100),
    OPTION_ENTRY(GROUP, 0, "Live", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(INT, 0, "min-pairs", "N", "at least so many pairs (default 6)",
                 offsetof(struct compare_options, min_pairs), COMPARE_PAIRS_MIN, COMPARE_PAIRS_MAX),
    OPTION_ENTRY(INT, 0, "max-pairs", "N", "at most so many (default 40)",
                 offsetof(struct compare_options, max_pairs), COMPARE_PAIRS_MIN, COMPARE_PAIRS_MAX),
    OPTION_ENTRY(FLOAT, 0, "max-seconds", "S", "begin no pair later (default 600)",
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
    OPTION_ENTRY(GROUP, 0, "Output", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "text (default), md or json",
                 offsetof(struct compare_options, format), 0, 0),
    OPTION_ENTRY(STRING, 0, "output", "FILE", "write it there instead of to standard output",
                 offsetof(struct compare_options, output), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr",
                 offsetof(struct compare_options, quiet), 0, 0),
    {0},
};

static const struct command_spec spec = {
    .name = "compare",
    .summary = "is B faster than A? commands run in turn, or stored runs",
    .arguments = "A B",
    .notes =
        "Live, A and B run in turn (A B, B A, ...) until the difference is known to half the\n"
        "smallest effect that counts, or to a quarter of itself; paired ratios, Hodges-Lehmann\n"
        "shift, exact sign-flip test of signed ranks and the interval that inverts it. Metrics\n"
        "that were not named before are exploratory and decide nothing. Several are corrected\n"
        "after Holm. Stored runs (files of sol bench -o json or llama-bench -o json) are compared\n"
        "by Mann-Whitney and marked historical.\n\n"
        "Verdicts and exit statuses:\n"
        "    0  same          any difference is below the smallest that counts\n"
        "   10  faster        the second takes less time\n"
        "   11  slower        the second takes more time\n"
        "   12  inconclusive  more repetitions are needed; it says how many\n"
        "   13  invalid       throttled, environment changed, or an expected kernel is missing\n"
        "    7  incorrect     the outputs differ\n"
        "   14  failed        a command failed\n\n"
        "  sol compare --live 'old/sol bench -n 64 -p 0 --ops -o json' \\\n"
        "                     'new/sol bench -n 64 -p 0 --ops -o json'\n"
        "  sol compare --live --metric 'rate:regex:speed: ([0-9.]+)' './a.out 1' './a.out 2'\n"
        "  sol compare before.json after.json -o md",
    .options = options,
};

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

static enum sol_status run_stored(const struct compare_options *o, struct compare_params *common,
                                  const char *const names[2], struct compare_result *out)
{
    struct records a, b = {0};
    enum sol_status status = records_read(names[0], &a);
    if (status == SOL_OK) status = records_read(names[1], &b);
    common->tests = o->metrics.values;
    common->n_tests = o->metrics.count;
    common->across_machines = o->across;
    if (status == SOL_OK) status = compare_historical(common, names, &a, &b, out);
    records_free(&a);
    records_free(&b);
    return status;
}

static void choose_delta(const struct compare_options *o, struct compare_params *common)
{
    common->delta = COMPARE_DELTA_PPM * 1e-6;
    common->delta_source = "the least anywhere";
    if (o->delta > 0) {
        common->delta = o->delta / 100;
        common->delta_source = "--delta";
    }
}

/* ---- output ---- */

static enum sol_status write_report(const struct compare_options *o,
                                    const struct compare_result *result, FILE *to)
{
    if (strcmp(o->format, "json") != 0)
        return compare_report_write(result,
                                    strcmp(o->format, "md") == 0 ? TABLE_MARKDOWN : TABLE_TEXT, to);
    json_t *json = compare_report_json(result);
    if (!json) return status_set(SOL_E_MEMORY, "no memory for the report");
    json_dumpf(json, to, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', to);
    json_decref(json);
    return SOL_OK;
}

static enum sol_status report(const struct compare_options *o, const struct compare_result *result)
{
    if (!o->output) return write_report(o, result, stdout);
    FILE *file = fopen(o->output, "w");
    if (!file) return status_set(SOL_E_IO, "cannot write '%s': %s", o->output, strerror(errno));
    enum sol_status status = write_report(o, result, file);
    bool lost = ferror(file) != 0;
    if ((fclose(file) != 0 || lost) && status == SOL_OK)
        status = status_set(SOL_E_IO, "cannot write '%s': %s", o->output, strerror(errno));
    return status;
}

static enum sol_status check_usage(const struct compare_options *o, const char *const *args, int n)
{
    if (n > 2)
        return status_set(SOL_E_ARGUMENT,
                          "sol compare takes two things, the third is '%s'; put commands in quotes",
                          args[2]);
    if (n < 2)
        return status_set(SOL_E_ARGUMENT,
                          "sol compare A B: what should be compared? (see sol compare --help)");
    if (strcmp(o->format, "text") != 0 && strcmp(o->format, "md") != 0 &&
        strcmp(o->format, "json") != 0)
        return status_set(SOL_E_ARGUMENT, "-o %s: the formats are text, md and json", o->format);
    return SOL_OK;
}

static enum sol_status run(const struct compare_options *o, const char *const *args, int n_args,
                           enum verdict *verdict)
{
    struct compare_params common = {.seed = (uint64_t)o->seed};
    struct compare_result result;
    SOL_TRY(check_usage(o, args, n_args));
    choose_delta(o, &common);
    SOL_TRY(o->live ? run_live(o, &common, args, &result) : run_stored(o, &common, args, &result));
    enum sol_status status = report(o, &result);
    *verdict = result.verdict;
    compare_result_free(&result);
    return status;
}

static int run_command(int argc, char **argv)
{
    struct compare_options o = {.min_pairs = COMPARE_PAIRS_MIN,
                                .max_pairs = 40,
                                .max_seconds = 600,
                                .timeout = 600,
                                .warmup = 1,
                                .seed = 1,
                                .format = "text"};
    const char **args = calloc((size_t)argc + 1, sizeof *args);
    int exit_status, n_args;
    enum verdict verdict = VERDICT_SAME;
    if (!args) return cli_fail(status_set(SOL_E_MEMORY, "no memory for the command line"));
    if (cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status)) {
        progress_quiet(o.quiet);
        exit_status = cli_fail(run(&o, args, n_args, &verdict));
        if (exit_status == 0) exit_status = verdict_exit_status(verdict);
    }
    free(args);
    return exit_status;
}

const struct command cmd_compare = {&spec, run_command};
