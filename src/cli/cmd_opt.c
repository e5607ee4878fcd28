/* sol opt: try something, measure it against where you began, keep it or put it back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "opt/opt.h"

struct opt_command {
    struct opt_options o;
    const char *format;
    double predict; /* percent; NaN: none */
    bool json, quiet, wide;
};

#define AT(field) offsetof(struct opt_command, field)

static const struct option options[] = {
    OPTION_ENTRY(STRING, 0, "tree", "FOLDER",
                 "the git tree (default: that of the working directory)", AT(o.folder), 0, 0),
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where iterations are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
                 AT(o.store), 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "text (default) or json", AT(format), 0, 0),
    JSON_OPTION(struct opt_command, json),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr", AT(quiet), 0, 0),
    WIDE_OPTION(struct opt_command, wide),
    OPTION_ENTRY(GROUP, 0, "init", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "preset", "sol|llama.cpp|make",
                 "kind of tree (default: told by its files)", AT(o.preset), 0, 0),
    OPTION_ENTRY(STRING, 0, "build", "COMMAND", "builds the tree, in place of the preset's",
                 AT(o.build), 0, 0),
    OPTION_ENTRY(STRING, 0, "benchmark", "COMMAND",
                 "what is to become faster, in place of the preset's", AT(o.benchmark), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "metric", "NAME",
                 "decides: wall, cpu, user, test:NAME, json:PATH, regex:PATTERN; may be repeated",
                 AT(o.metrics), 0, 0),
    OPTION_ENTRY(STRING, 0, "correctness", "COMMAND",
                 "fails where the result is wrong, in place of the preset's", AT(o.correctness), 0,
                 0),
    OPTION_ENTRY(STRING, 0, "profile", "COMMAND", "says where the time goes, for sol opt profile",
                 AT(o.profile), 0, 0),
    OPTION_ENTRY(STRING, 'm', "model", "MODEL", "put into the preset's commands", AT(o.model), 0,
                 0),
    OPTION_ENTRY(FLAG, 0, "force", NULL, "replace " OPT_CONFIG_FILE, AT(o.force), 0, 0),
    OPTION_ENTRY(GROUP, 0, "start", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(PERCENT, 0, "predict", "PERCENT", "expected gain: so much less time per token",
                 AT(predict), 0.001, 99.9),
    OPTION_ENTRY(STRING, 0, "rule", "NAME", "advice that it follows (gap.host, occupancy, ...)",
                 AT(o.rule), 0, 0),
    OPTION_ENTRY(FLAG, 0, "with-changes", NULL, "what is already edited belongs to it",
                 AT(o.with_changes), 0, 0),
    OPTION_ENTRY(GROUP, 0, "compare", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(INT, 0, "max-pairs", "N", "at most so many pairs (default: as configured)",
                 AT(o.pairs), 6, 1000),
    OPTION_ENTRY(FLOAT, 0, "max-seconds", "S", "begin no pair later (default: as configured)",
                 AT(o.max_seconds), 0.001, 1e6),
    OPTION_ENTRY(GROUP, 0, "record, accept, revert", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "note", "TEXT", "what was learned, kept with it", AT(o.note), 0, 0),
    OPTION_ENTRY(STRING, 0, "even-if", "same|trade",
                 "accept without a gain, or with another test slower; needs --reason",
                 AT(o.even_if), 0, 0),
    OPTION_ENTRY(STRING, 0, "reason", "TEXT", "why, for the commit message", AT(o.reason), 0, 0),
    OPTION_ENTRY(STRING, 0, "message", "TEXT",
                 "first line of the commit message (default: perf: and the hypothesis)",
                 AT(o.subject), 0, 0),
    OPTION_ENTRY(FLAG, 0, "no-commit", NULL, "accept, but leave the commit to you", AT(o.no_commit),
                 0, 0),
    OPTION_ENTRY(FLAG, 0, "keep", NULL, "revert: end it and leave the files as they are",
                 AT(o.keep), 0, 0),
    OPTION_ENTRY(GROUP, 0, "history, summary", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(FLAG, 0, "all", NULL, "of all trees", AT(o.all), 0, 0),
    OPTION_ENTRY(FLAG, 0, "diff", NULL, "only the recorded diff, for git apply", AT(o.diff), 0, 0),
    OPTION_ENTRY(FLAG, 0, "staged", NULL, "only that of the index, which may hold other content",
                 AT(o.staged), 0, 0),
    OPTION_ENTRY(INT, 0, "change", "N",
                 "of several recorded changes (default: the newest); also of restore", AT(o.change),
                 1, 1 << 30),
    OPTION_ENTRY(INT, 'n', "limit", "N", "the newest N (default 20, 0: all)", AT(o.limit), 0,
                 1 << 30),
    {0},
};

static const struct command_example examples[] = {
    {"sol opt init --preset make", "writes sol-opt.json: how to build and check", NULL},
    {"sol opt start 'unroll by 4' --predict 5% --rule stall",
     "an iteration: the hypothesis, and what it should gain", NULL},
    {"sol opt status", "where it stands, and the next step", NULL},
    {"sol opt revert --note 'slower'", "put the files back and keep what was learned", NULL},
    {"sol opt history", "what was tried, and what came of it", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "opt",
    .summary = "try an optimisation: measure, check, then accept or revert it",
    .arguments = "init|start|benchmark|profile|compare|record|accept|revert|restore|status|history|"
                 "summary",
    .notes =
        "One iteration, step by step:\n\n"
        "  sol opt init --preset sol            writes " OPT_CONFIG_FILE
        ": how to build and check\n"
        "  sol opt start \"unroll by 4\" --predict 5% --rule stall\n"
        "  (edit)\n"
        "  sol opt benchmark                    one look at the change and at the baseline\n"
        "  sol opt compare                      both in turn, until the difference is known\n"
        "  sol opt accept                       gates, commit, ledger; or:\n"
        "  sol opt record, sol opt revert       keep the diff, put files and index back\n"
        "  sol opt restore [#N]                 bring a recorded change back\n"
        "  sol opt history [#N]                 what was tried; of one: its diff\n\n"
        "The baseline is the last commit, built in a folder of the store. accept refuses without "
        "a\n"
        "comparison that says faster, a correctness command that passes, and a perplexity within\n"
        "0.1 % (all configurable). Exit status of compare: as sol compare; of a refused accept: 2\n"
        "when a step is missing, 7 when a gate failed. docs/OPTIMISE.md walks through it.",
    .examples = examples,
    .options = options,
};

static enum sol_status find_verb(const char *name, enum opt_verb *verb)
{
    const char *names[OPT_VERB_COUNT];
    for (int i = 0; i < OPT_VERB_COUNT; i++) {
        names[i] = opt_verb_name((enum opt_verb)i);
        *verb = (enum opt_verb)i;
        if (strcmp(names[i], name) == 0) return SOL_OK;
    }
    const char *near = suggest_name(name, names, OPT_VERB_COUNT);
    return status_set(SOL_E_ARGUMENT, "sol opt %s: no such step%s%s%s (see sol opt --help)", name,
                      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum sol_status check_usage(struct opt_command *c, const char *const *args, int n,
                                   enum opt_verb *verb)
{
    if (n == 0) *verb = OPT_STATUS;
    if (n > 0) SOL_TRY(find_verb(args[0], verb));
    bool takes_text = *verb == OPT_START || *verb == OPT_HISTORY || *verb == OPT_RESTORE;
    if (n > 1 && takes_text) c->o.hypothesis = args[1];
    if (n > 2 || (n > 1 && !takes_text))
        return status_set(SOL_E_ARGUMENT, "unexpected argument '%s'%s",
                          args[n > 2 && takes_text ? 2 : 1],
                          *verb == OPT_START ? "; put the hypothesis in quotes" : "");
    if (strcmp(c->format, "text") != 0 && strcmp(c->format, "json") != 0)
        return status_set(SOL_E_ARGUMENT, "-o %s: the formats are text and json", c->format);
    c->o.predict = c->predict / 100;
    return SOL_OK;
}

static enum sol_status print(const struct opt_command *c, struct opt_answer *answer)
{
    if (strcmp(c->format, "json") == 0) return json_print(json_incref(answer->json));
    if (fflush(answer->text) != 0) return status_set(SOL_E_MEMORY, "no memory for an answer");
    fwrite(answer->lines, 1, answer->size, stdout); /* a diff may hold NULs */
    next_print(&answer->next, stdout);
    return SOL_OK;
}

/* What a program reads says the error too; people have it on stderr, and here what to do. */
static void print_after_error(const struct opt_command *c, struct opt_answer *answer)
{
    if (strcmp(c->format, "json") != 0)
        next_print(&answer->next, stdout);
    else if (json_object_size(answer->json))
        json_print(json_incref(answer->json));
}

static int run_verb(struct opt_command *c, enum opt_verb verb)
{
    struct opt_answer answer;
    enum sol_status status = opt_answer_init(&answer);
    if (status == SOL_OK) status = opt_do(verb, &c->o, &answer);
    if (status == SOL_OK) status = print(c, &answer);
    int exit_status = cli_fail(status);
    if (exit_status) print_after_error(c, &answer);
    if (exit_status == 0) exit_status = answer.exit_status;
    opt_answer_free(&answer);
    return exit_status;
}

static int run_command(int argc, char **argv)
{
    struct opt_command c = {.format = "text", .predict = NAN, .o = {.limit = 20}};
    const char **args = calloc((size_t)argc + 1, sizeof *args);
    int exit_status, n_args;
    enum opt_verb verb = OPT_STATUS;
    if (!args) return cli_fail(status_set(SOL_E_MEMORY, "no memory for the command line"));
    if (cli_parse(&spec, argc, argv, &c, args, &n_args, &exit_status)) {
        progress_quiet(c.quiet);
        exit_status = cli_fail(check_usage(&c, args, n_args, &verb));
        if (exit_status == 0) exit_status = run_verb(&c, verb);
    }
    free(args);
    return exit_status;
}

const struct command cmd_opt = {&spec, run_command, true};
