/* sol report: a stored run, or the history of many, as one HTML file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/status.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/next_steps.h"
#include "format/output_file.h"
#include "report/report.h"
#include "store/store_json.h"

struct report_options {
    const char *store, *output, *kind, *label, *model, *device, *tree;
    struct string_list metrics;
    int64_t limit;
    bool history, json;
};

static const struct option options[] = {
    OPTION_ENTRY(STRING, 'o', "output", "FILE",
                 "where to write; - for standard output (default report-RUN.html here, and in a "
                 "tree of sol opt in the store's folder)",
                 offsetof(struct report_options, output), 0, 0),
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where runs are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
                 offsetof(struct report_options, store), 0, 0),
    OPTION_ENTRY(FLAG, 0, "json", NULL, "say what was written as one JSON object",
                 offsetof(struct report_options, json), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Of many runs", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(FLAG, 0, "history", NULL,
                 "metrics over runs, attempts, and how predictions came true",
                 offsetof(struct report_options, history), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "metric", "NAME",
                 "such as \"tg128\"; may be repeated (default: the first of each kind of test)",
                 offsetof(struct report_options, metrics), 0, 0),
    OPTION_ENTRY(STRING, 0, "kind", "KIND", "runs of this kind (default bench)",
                 offsetof(struct report_options, kind), 0, 0),
    OPTION_ENTRY(STRING, 0, "label", "NAME", "runs with this label",
                 offsetof(struct report_options, label), 0, 0),
    OPTION_ENTRY(STRING, 0, "model", "NAME", "runs of this model (default: the newest run's)",
                 offsetof(struct report_options, model), 0, 0),
    OPTION_ENTRY(STRING, 0, "device", "NAME", "runs on this machine (default: the newest run's)",
                 offsetof(struct report_options, device), 0, 0),
    OPTION_ENTRY(STRING, 0, "tree", "FOLDER", "attempts in this working directory (default: all)",
                 offsetof(struct report_options, tree), 0, 0),
    OPTION_ENTRY(INT, 'n', "limit", "N", "the newest N runs (default 100, 0: all)",
                 offsetof(struct report_options, limit), 0, 1 << 30),
    {0},
};

static const struct command_example examples[] = {
    {"sol bench -p 512 -n 128 && sol report", "of what was just measured", NULL},
    {"sol report baseline -o baseline.html", "of the run of that label", NULL},
    {"sol report wide narrow -o both.html", "two training runs, their curves in one chart",
     "training runs"},
    {"sol report --history --metric tg128", "one test over all runs", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "report",
    .summary = "write a run, or the history of many, as an HTML file",
    .arguments = "[RUN | RUN|LOG... | --history]",
    .notes =
        "RUN is an id, its start, a label, last (the default), or last~2 for the second before the "
        "last.\n"
        "Several training runs, or their logs (log.jsonl of sol train --out), are drawn in one "
        "chart.\n"
        "The file holds everything it needs: no script, no other file, no network. It prints well.",
    .examples = examples,
    .options = options,
};

static enum sol_status check(const struct report_options *o, int n_args)
{
    if (o->history && n_args)
        return status_set(SOL_E_ARGUMENT, "--history takes no run: it reports on many");
    const char *alone = o->metrics.count ? "--metric"
                        : o->kind        ? "--kind"
                        : o->label       ? "--label"
                        : o->model       ? "--model"
                        : o->device      ? "--device"
                        : o->tree        ? "--tree"
                                         : NULL;
    if (alone && !o->history) return status_set(SOL_E_ARGUMENT, "%s needs --history", alone);
    return SOL_OK;
}

/* `name` becomes what the file is called unless it was said. */
static enum sol_status make_run(struct store *store, const char *run, struct html **html,
                                char name[64], const char **state)
{
    char id[STORE_ID_SIZE];
    struct store_record *record;
    SOL_TRY(store_find(store, run, NULL, id));
    SOL_TRY(store_record_read(store, id, &record));
    enum sol_status status = report_run(store, record, html);
    *state = store_state_name(record->run.state);
    snprintf(name, 64, "%s", id);
    store_record_destroy(record);
    return status;
}

enum { SOURCES_MAX = 64 };

/* A file of that name, which no run can have. */
static bool is_log(const char *text)
{
    const size_t length = strlen(text);
    return length > 6 && strcmp(text + length - 6, ".jsonl") == 0 && access(text, F_OK) == 0;
}

/* Of training: several, or a log. */
static enum sol_status make_training(struct store *store, const char *const *args, size_t n_args,
                                     struct html **html)
{
    struct report_source sources[SOURCES_MAX];
    struct store_record *records[SOURCES_MAX] = {NULL};
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < n_args && status == SOL_OK; i++) {
        char id[STORE_ID_SIZE];
        sources[i] = (struct report_source){.log = is_log(args[i]) ? args[i] : NULL};
        if (sources[i].log) continue;
        status = store_find(store, args[i], NULL, id);
        if (status == SOL_OK) status = store_record_read(store, id, &records[i]);
        sources[i].record = records[i];
    }
    if (status == SOL_OK) status = report_training(store, sources, n_args, html);
    for (size_t i = 0; i < n_args; i++) store_record_destroy(records[i]);
    return status;
}

static enum sol_status write_file(const struct report_options *o, const struct html_text *text,
                                  const char *path, const char *name, const char *state)
{
    if (strcmp(path, "-") == 0) {
        fwrite(text->data, 1, text->size, stdout);
        return SOL_OK; /* main looks at stdout's errors */
    }
    SOL_TRY(output_file_text(path, text->data, text->size));
    if (!o->json) {
        printf("%s\n", path);
        return SOL_OK;
    }
    return json_print(json_pack("{s:s, s:s, s:o, s:s?, s:I}", "schema", "sol.report.1", "report",
                                name, "file", store_json_string(path), "state", state, "bytes",
                                (json_int_t)text->size));
}

static enum sol_status make(const struct report_options *o, const char *const *args, size_t n_args)
{
    struct store *store;
    struct html *html = NULL;
    struct html_text text;
    char name[64], path[4400];
    const char *run = n_args ? args[0] : "last";
    const bool training = n_args > 1 || is_log(run);
    snprintf(name, sizeof name, "%s", training ? "training" : "history");
    const char *state = NULL;
    SOL_TRY(store_open(o->store, &store));
    struct report_history history = {.metrics = &o->metrics,
                                     .kind = o->kind,
                                     .label = o->label,
                                     .model = o->model,
                                     .device = o->device,
                                     .tree = o->tree,
                                     .limit = o->limit};
    enum sol_status status = store_apart(store, o->output);
    if (status == SOL_OK)
        status = o->history ? report_history(store, &history, &html)
                 : training ? make_training(store, args, n_args, &html)
                            : make_run(store, run, &html, name, &state);
    if (status == SOL_OK) status = html_finish(html, &text);
    /* In a tree of sol opt it would become part of the change that is tried there. */
    bool away = next_in_prepared_tree();
    snprintf(path, sizeof path, "%s%sreport-%s.html", away ? store_path(store) : "",
             away ? "/" : "", name);
    if (status == SOL_OK) status = write_file(o, &text, o->output ? o->output : path, name, state);
    html_destroy(html);
    store_close(store);
    return status;
}

static int run_command(int argc, char **argv)
{
    struct report_options o = {.limit = 100};
    const char *args[SOURCES_MAX];
    int n_args, exit_status;
    if (argc > SOURCES_MAX)
        return cli_fail(status_set(SOL_E_ARGUMENT, "sol report: too many arguments"));
    if (!cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status)) return exit_status;
    enum sol_status status = check(&o, n_args);
    if (status == SOL_OK) status = make(&o, args, (size_t)n_args);
    return cli_fail(status);
}

const struct command cmd_report = {&spec, run_command, false};
