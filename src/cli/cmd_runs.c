/* sol runs: what the store holds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/number.h"
#include "base/suggest.h"
#include "base/table.h"
#include "bench/rating.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "compare/report.h"
#include "stats/metric.h"
#include "store/run_text.h"
#include "store/store_json.h"

struct runs_options {
    const char *store, *format, *kind, *label, *model, *state, *ratings;
    int64_t limit;
    bool json, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where runs are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
                 offsetof(struct runs_options, store), 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default), md, csv or json",
                 offsetof(struct runs_options, format), 0, 0),
    JSON_OPTION(struct runs_options, json),
    OPTION_ENTRY(STRING, 0, "ratings", "FILE",
                 "show: rate speeds against this table too (JSON; see sol ratings)",
                 offsetof(struct runs_options, ratings), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Which ones to list", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "kind", "bench|serve|train|profile|compare|import", "only such runs",
                 offsetof(struct runs_options, kind), 0, 0),
    OPTION_ENTRY(STRING, 0, "label", "LABEL", "with this label",
                 offsetof(struct runs_options, label), 0, 0),
    OPTION_ENTRY(STRING, 0, "model", "NAME", "of this model", offsetof(struct runs_options, model),
                 0, 0),
    OPTION_ENTRY(STRING, 0, "state", "STATE", "running, ok, partial or invalid",
                 offsetof(struct runs_options, state), 0, 0),
    OPTION_ENTRY(INT, 'n', "limit", "N", "the newest N (default 20, 0: all)",
                 offsetof(struct runs_options, limit), 0, 1 << 30),
    WIDE_OPTION(struct runs_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol runs", "the newest ones: verdict or state, command, source", NULL},
    {"sol runs show last", "what it measured, or how the comparison ended", NULL},
    {"sol runs label last evening", "a name to find it by", NULL},
    {"sol runs export evening > evening.json", "all of it, for programs", NULL},
    {"sol runs --kind bench -n 5 -o csv", "some of them, for a table", NULL},
    {"sol runs delete last~1", "with its samples, kernels and files", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "runs",
    .summary = "list, show, label, export and delete stored runs",
    .arguments = "[list | show RUN | export RUN | label RUN NAME | delete RUN...]",
    .notes = "RUN is an id, its start, a label, last, or last~2 for the second before the last.\n"
             "export prints everything as one JSON object.",
    .examples = examples,
    .options = options,
};

/* ---- list ---- */

static enum sol_status make_filter(const struct runs_options *o, struct store_filter *filter)
{
    *filter = (struct store_filter){
        .kind = o->kind, .label = o->label, .model = o->model, .limit = o->limit};
    if (!o->state) return SOL_OK;
    filter->states_set = true;
    for (int i = 0; i < STORE_STATE_COUNT; i++)
        if (strcmp(o->state, store_state_name(i)) == 0) filter->states = 1u << i;
    if (filter->states) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "--state %s: the states are running, ok, partial, invalid",
                      o->state);
}

/* How long a run is said to run already: that of another machine or container may be dead. */
static const char *running_for(const struct store_run *r, char text[40])
{
    double minutes = (double)(store_now_ns() - r->created_ns) / 60e9;
    if (minutes < 120)
        snprintf(text, 40, "for %.0f min", minutes);
    else if (minutes < 48 * 60)
        snprintf(text, 40, "for %.0f h", minutes / 60);
    else
        snprintf(text, 40, "for %.0f days", minutes / 60 / 24);
    return text;
}

/* "5 min": lists are of today's work, and a whole date is in --wide, csv and json. */
static const char *age_of(int64_t ns, char text[24])
{
    double seconds = 1e-9 * (double)(store_now_ns() - ns);
    if (seconds < 90)
        snprintf(text, 24, "%.0f s", seconds < 0 ? 0 : seconds);
    else if (seconds < 90 * 60)
        snprintf(text, 24, "%.0f min", seconds / 60);
    else if (seconds < 36 * 3600)
        snprintf(text, 24, "%.0f h", seconds / 3600);
    else
        snprintf(text, 24, "%.0f days", seconds / 86400);
    return text;
}

/* What came of it: a comparison's verdict, else its state, with the reason. */
static const char *result_of(const struct store_run *r, const struct store_outcome *outcome,
                             char text[160])
{
    char age[40];
    const char *what = *outcome->verdict ? outcome->verdict : store_run_badge(r);
    const char *why = r->reason ? r->reason : r->noise;
    if (r->state == STORE_RUNNING)
        snprintf(text, 160, "running %s", running_for(r, age));
    else
        snprintf(text, 160, "%s%s%s", what, why ? ": " : "", why ? why : "");
    return text;
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static void add_run(struct table *table, const struct store_run *r, enum table_format format)
{
    char created[32], age[24], result[160];
    struct store_outcome outcome;
    store_run_outcome(r, &outcome);
    store_time_text(r->created_ns, created);
    char *command = store_command_text(r->argv_json);
    table_cell(table, "%s", r->id);
    table_cell(table, "%s", r->kind);
    table_cell(table, "%s", or_empty(r->label));
    if (format == TABLE_CSV) {
        const char *cells[] = {created,
                               store_run_badge(r),
                               outcome.verdict,
                               or_empty(r->reason ? r->reason : r->noise),
                               or_empty(r->model),
                               or_empty(r->device)};
        for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) table_cell(table, "%s", cells[i]);
    } else {
        table_cell(table, "%s", age_of(r->created_ns, age));
        table_cell(table, "%s", result_of(r, &outcome, result));
        table_cell(table, "%s", or_empty(r->model));
        table_cell(table, "%s", or_empty(r->device));
        table_cell(table, "%s", created);
    }
    table_cell(table, "%s", outcome.source);
    table_cell(table, "%s", or_empty(command));
    free(command);
}

static enum sol_status print_list(const struct store_list *list, enum table_format format)
{
    struct table *table;
    SOL_TRY(table_create(format == TABLE_CSV
                             ? "id|kind|label|created|state|verdict|reason|model|device|source|"
                               "command"
                             : "id|kind|=label|>age|~result|-model|----device|---created|--source|"
                               "~command",
                         &table));
    for (size_t i = 0; i < list->count; i++) add_run(table, &list->runs[i], format);
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status list_runs(struct store *store, const struct runs_options *o,
                                 enum table_format format, bool json)
{
    struct store_filter filter;
    struct store_list *list;
    SOL_TRY(make_filter(o, &filter));
    SOL_TRY(store_list_read(store, &filter, &list));
    enum sol_status status;
    if (json) {
        json_t *runs = json_array();
        for (size_t i = 0; i < list->count; i++)
            json_array_append_new(runs, store_run_json(&list->runs[i]));
        status = json_print(json_pack("{s:s, s:o}", "store", store_path(store), "runs", runs));
    } else if (list->count) {
        status = print_list(list, format);
    } else {
        fprintf(stderr, "no runs in %s\n", store_path(store));
        status = SOL_OK;
    }
    store_list_destroy(list);
    return status;
}

/* ---- show ---- */

static enum sol_status add_known(struct table *table, bool known, int decimals, double value)
{
    return known ? table_cell(table, "%.*f", decimals, value) : table_cell(table, "%s", "");
}

/* "good", or "": by the kind of model, and where no row knows that, by its file. */
static const char *rating_of(const struct rating_table *ratings, const struct store_run *r,
                             const char *metric, double speed)
{
    const char *models[] = {r->model_type, r->model};
    const struct rating *rating = NULL;
    for (int i = 0; i < 2 && !rating && r->device; i++)
        if (models[i]) rating = rating_find(ratings, r->device, models[i], metric);
    return rating ? rating_name(rating, speed) : "";
}

static enum sol_status add_metric(struct table *table, const struct store_run *run,
                                  const struct store_metric *m, const struct rating_table *ratings)
{
    struct metric_figure figure;
    char half[24];
    SOL_TRY(metric_figure_of(m, &figure));
    const struct figure *f = &figure.shown;
    table_cell(table, "%s", m->name);
    if (isfinite(f->value) && !figure.speed)
        table_number(table, f->value, 5);
    else
        add_known(table, isfinite(f->value), 2, f->value);
    table_cell(table, "%s", figure.unit);
    table_cell(table, "%s", isnan(f->half) ? "" : figure_percent_text(f->half, half));
    add_known(table, figure.speed && isfinite(f->value), 0, figure.stored.value);
    add_known(table, isfinite(f->reached), 1, 100 * f->reached);
    if (f->starts > 1)
        table_cell(table, "%zu in %zu starts", f->count, f->starts);
    else
        table_cell(table, "%zu", f->count);
    return table_cell(table, "%s", figure.speed ? rating_of(ratings, run, m->name, f->value) : "");
}

static enum sol_status print_metrics(const struct store_record *r, enum table_format format,
                                     const struct rating_table *ratings)
{
    struct table *table;
    enum sol_status status = SOL_OK;
    SOL_TRY(table_create("=metric|>median|unit|>+-%|>ns/token|>% limit|>n|rating", &table));
    for (size_t i = 0; i < r->n_metrics && status == SOL_OK; i++)
        status = add_metric(table, &r->run, &r->metrics[i], ratings);
    if (status == SOL_OK) table_print(table, format, stdout);
    table_destroy(table);
    return status;
}

static enum sol_status print_kernels(const struct store_record *r, enum table_format format)
{
    struct table *table;
    if (r->n_kernels == 0) return SOL_OK;
    SOL_TRY(table_create("-metric|-phase|=kernel|---numerics|>calls|>--expected|>us|>% of limit",
                         &table));
    for (size_t i = 0; i < r->n_kernels; i++) {
        const struct store_kernel *k = &r->kernels[i];
        table_cell(table, "%s", k->metric ? k->metric : "");
        table_cell(table, "%s", k->phase ? k->phase : "");
        table_cell(table, "%s%s%s",
                   k->op     ? k->op
                   : k->name ? k->name
                             : "",
                   k->variant ? "/" : "", k->variant ? k->variant : "");
        table_cell(table, "%s", k->numerics ? k->numerics : "");
        add_known(table, k->calls >= 0, 0, (double)k->calls);
        add_known(table, k->expected >= 0, 0, (double)k->expected);
        add_known(table, !isnan(k->total_ns), 1, 1e-3 * k->total_ns);
        add_known(table, !isnan(k->limit_ns / k->total_ns), 1, 100 * k->limit_ns / k->total_ns);
    }
    putchar('\n');
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static void print_heading(const struct store_run *r)
{
    char when[32];
    struct store_outcome outcome;
    store_run_outcome(r, &outcome);
    char *command = store_command_text(r->argv_json);
    store_time_text(r->created_ns, when);
    const struct {
        const char *name, *value;
    } facts[] = {
        {"label", r->label},
        {"created", when},
        {"state", store_run_badge(r)},
        {"verdict", outcome.verdict},
        {"reason", r->reason},
        {"noise", r->noise},
        {"source", outcome.source},
        {"model", r->model},
        {"type", r->model_type},
        {"device", r->device},
        {"backend", r->backend},
        {"command", command},
        {"folder", r->cwd},
        {"environment", r->environment},
    };
    printf("%s %s\n", r->kind, r->id);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (facts[i].value && *facts[i].value)
            printf("  %-12s %s\n", facts[i].name, facts[i].value);
    putchar('\n');
    free(command);
}

/* As sol compare printed it. */
static enum sol_status print_comparison(const struct store_run *r, enum table_format format)
{
    struct compare_result result;
    if (format == TABLE_CSV)
        return status_set(SOL_E_ARGUMENT, "-o csv: a comparison is shown as table, md or json");
    json_t *payload = r->payload_json ? json_loads(r->payload_json, 0, NULL) : NULL;
    enum sol_status status = SOL_OK;
    if (payload) status = compare_report_read(payload, &result);
    if (payload && status == SOL_OK) {
        status = compare_report_write(&result, format, stdout);
        compare_result_free(&result);
    }
    json_decref(payload);
    return status;
}

static enum sol_status print_record(const struct store *store, const struct store_record *r,
                                    enum table_format format, const struct rating_table *ratings)
{
    if (format != TABLE_CSV) print_heading(&r->run);
    if (strcmp(r->run.kind, "compare") == 0) SOL_TRY(print_comparison(&r->run, format));
    if (r->n_metrics) SOL_TRY(print_metrics(r, format, ratings));
    if (format == TABLE_CSV) return SOL_OK;
    SOL_TRY(print_kernels(r, format));
    for (size_t i = 0; i < r->n_advice; i++)
        printf("%s%s: %s\n", i ? "" : "\n", r->advice[i].rule,
               r->advice[i].text ? r->advice[i].text : r->advice[i].subject);
    for (size_t i = 0; i < r->n_artifacts; i++)
        printf("%s%s: %s/%s\n", i ? "" : "\n", r->artifacts[i].kind, store_path(store),
               r->artifacts[i].path);
    return SOL_OK;
}

static enum sol_status show(struct store *store, const struct runs_options *o, const char *name,
                            enum table_format format, bool json)
{
    char id[STORE_ID_SIZE];
    struct store_record *record = NULL;
    struct rating_table *ratings = NULL;
    SOL_TRY(store_find(store, name, NULL, id));
    if (o->ratings) SOL_TRY(rating_table_open(o->ratings, &ratings));
    enum sol_status status = store_record_read(store, id, &record);
    if (status == SOL_OK)
        status = json ? json_print(metric_record_json(record))
                      : print_record(store, record, format, ratings);
    rating_table_close(ratings);
    store_record_destroy(record);
    return status;
}

/* ---- changing ---- */

/* Names are resolved before anything is deleted, since deleting moves what `last` means. A run that
 * names files which are not its own does not keep the others. */
static enum sol_status delete_each(struct store *store, char (*ids)[STORE_ID_SIZE], int count,
                                   json_t *deleted)
{
    enum sol_status status = SOL_OK;
    for (int i = 0; i < count; i++) {
        enum sol_status one = store_run_delete(store, ids[i]);
        if (one == SOL_OK && deleted)
            json_array_append_new(deleted, json_string(ids[i]));
        else if (one == SOL_OK)
            printf("deleted %s\n", ids[i]);
        else if (one == SOL_E_FORMAT)
            status = one;
        else
            return one;
    }
    return status;
}

static enum sol_status delete_runs(struct store *store, const char *const *names, int count,
                                   bool json)
{
    char ids[OPTION_LIST_MAX][STORE_ID_SIZE];
    for (int i = 0; i < count; i++) SOL_TRY(store_find(store, names[i], NULL, ids[i]));
    json_t *deleted = json ? json_array() : NULL;
    enum sol_status status = delete_each(store, ids, count, deleted);
    if (!json) return status;
    enum sol_status printed = json_print(json_pack("{s:o}", "deleted", deleted));
    return status == SOL_OK ? printed : status;
}

static enum sol_status label(struct store *store, const char *name, const char *text, bool json)
{
    char id[STORE_ID_SIZE];
    SOL_TRY(store_label_check(text));
    SOL_TRY(store_find(store, name, NULL, id));
    SOL_TRY(store_run_label(store, id, text));
    if (json) return json_print(json_pack("{s:s, s:s}", "run", id, "label", text));
    printf("%s is now labelled %s\n", id, text);
    return SOL_OK;
}

static const struct {
    const char *name;
    int least, most; /* words behind it */
} verbs[] = {
    {"list", 0, 0}, {"show", 1, 1}, {"export", 1, 1}, {"label", 2, 2}, {"delete", 1, 60},
};
enum { LIST, SHOW, EXPORT, LABEL, DELETE, VERBS };

static enum sol_status find_verb(const char *word, int n_args, int *verb)
{
    const char *names[VERBS];
    for (*verb = 0; *verb < VERBS; ++*verb) {
        names[*verb] = verbs[*verb].name;
        if (strcmp(word, verbs[*verb].name) == 0) break;
    }
    if (*verb == VERBS) {
        const char *near = suggest_name(word, names, VERBS);
        return status_set(SOL_E_ARGUMENT, "sol runs does not know '%s'%s%s%s", word,
                          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (n_args >= verbs[*verb].least && n_args <= verbs[*verb].most) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "usage: sol runs %s", spec.arguments);
}

static enum sol_status work(const struct runs_options *o, const char *const *args, int n_args)
{
    enum table_format format;
    bool json;
    int verb;
    struct store *store;
    SOL_TRY(cli_table_format(o->format, &format, &json));
    SOL_TRY(find_verb(n_args ? args[0] : "list", n_args ? n_args - 1 : 0, &verb));
    SOL_TRY(store_open(o->store, &store));
    enum sol_status status = SOL_OK;
    switch (verb) {
    case LIST:
        status = list_runs(store, o, format, json);
        break;
    case SHOW:
        status = show(store, o, args[1], format, json);
        break;
    case EXPORT:
        status = show(store, o, args[1], format, true);
        break;
    case LABEL:
        status = label(store, args[1], args[2], json);
        break;
    default:
        status = delete_runs(store, args + 1, n_args - 1, json);
        break;
    }
    store_close(store);
    return status;
}

static int run(int argc, char **argv)
{
    struct runs_options o = {.format = "table", .limit = 20};
    const char *args[OPTION_LIST_MAX];
    int exit_status, n_args;
    if (argc > OPTION_LIST_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many arguments"));
    if (!cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status)) return exit_status;
    return cli_fail(work(&o, args, n_args));
}

const struct command cmd_runs = {&spec, run, false};
