/* sol runs: what the store holds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/suggest.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "stats/statistics.h"
#include "store/store_json.h"

struct runs_options {
    const char *store, *format, *kind, *label, *model, *state;
    int64_t limit;
};

static const struct option options[] = {
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where runs are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
                 offsetof(struct runs_options, store), 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default), md, csv or json",
                 offsetof(struct runs_options, format), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Which ones to list", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "kind", "bench|profile|compare|import", "only such runs",
                 offsetof(struct runs_options, kind), 0, 0),
    OPTION_ENTRY(STRING, 0, "label", "NAME", "with this label",
                 offsetof(struct runs_options, label), 0, 0),
    OPTION_ENTRY(STRING, 0, "model", "NAME", "of this model", offsetof(struct runs_options, model),
                 0, 0),
    OPTION_ENTRY(STRING, 0, "state", "STATE", "running, ok, partial or invalid",
                 offsetof(struct runs_options, state), 0, 0),
    OPTION_ENTRY(INT, 'n', "limit", "N", "the newest N (default 20, 0: all)",
                 offsetof(struct runs_options, limit), 0, 1 << 30),
    {0},
};

static const struct command_spec spec = {
    .name = "runs",
    .summary = "list, show, label, export and delete stored runs",
    .arguments = "[list | show RUN | export RUN | label RUN NAME | delete RUN...]",
    .notes = "RUN is an id, its start, a label, last, or last~2 for the second before the last.\n"
             "export prints everything as one JSON object.\n",
    .options = options,
};

static enum sol_status check_format(const char *format, enum table_format *table, bool *json)
{
    *json = strcmp(format, "json") == 0;
    *table = strcmp(format, "md") == 0    ? TABLE_MARKDOWN
             : strcmp(format, "csv") == 0 ? TABLE_CSV
                                          : TABLE_TEXT;
    if (*json || *table != TABLE_TEXT || strcmp(format, "table") == 0 ||
        strcmp(format, "text") == 0)
        return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "-o %s: the formats are table, md, csv and json", format);
}

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

static enum sol_status print_list(const struct store_list *list, enum table_format format)
{
    struct table *table;
    SOL_TRY(table_create("id|kind|label|created|state|model|device|reason", &table));
    for (size_t i = 0; i < list->count; i++) {
        const struct store_run *r = &list->runs[i];
        char when[32], age[40];
        store_time_text(r->created_ns, when);
        const char *reason = r->state == STORE_RUNNING ? running_for(r, age) : r->reason;
        const char *cells[] = {r->id,    r->kind,   r->label, when, store_state_name(r->state),
                               r->model, r->device, reason};
        for (size_t j = 0; j < sizeof cells / sizeof *cells; j++)
            table_cell(table, "%s", cells[j] ? cells[j] : "");
    }
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

/* Without the warm-up. 0 values give a zeroed summary. */
static enum sol_status summarize(const struct store_metric *m, struct statistics *out)
{
    double *values = calloc(m->n_samples + 1, sizeof *values);
    size_t count = 0;
    *out = (struct statistics){.count = 0};
    if (!values) return status_set(SOL_E_MEMORY, "no memory for the samples");
    for (size_t i = 0; i < m->n_samples; i++)
        if (!(m->samples[i].flags & STORE_WARMUP)) values[count++] = m->samples[i].value;
    enum sol_status status = count ? statistics_of(values, count, out) : SOL_OK;
    free(values);
    return status;
}

static enum sol_status add_known(struct table *table, bool known, int decimals, double value)
{
    return known ? table_cell(table, "%.*f", decimals, value) : table_cell(table, "%s", "");
}

static enum sol_status add_metric(struct table *table, const struct store_metric *m)
{
    struct statistics s;
    SOL_TRY(summarize(m, &s));
    table_cell(table, "%s", m->name);
    table_cell(table, "%s", m->unit);
    table_cell(table, "%zu", s.count);
    s.count ? table_cell(table, "%.6g", s.median) : table_cell(table, "%s", "");
    s.has_interval ? table_cell(table, "%.3g", (s.ci_high - s.ci_low) / 2)
                   : table_cell(table, "%s", "");
    bool speed = s.count && s.median > 0 && strcmp(m->unit, "ns/token") == 0;
    add_known(table, speed, 2, 1e9 / s.median);
    bool limited = s.count && m->limit > 0 && s.median > 0;
    double share = m->better == STORE_LOWER ? m->limit / s.median : s.median / m->limit;
    return add_known(table, limited, 1, 100 * share);
}

static enum sol_status print_metrics(const struct store_record *r, enum table_format format)
{
    struct table *table;
    enum sol_status status = SOL_OK;
    SOL_TRY(table_create("metric|unit|>n|>median|>+-95%|>t/s|>% of limit", &table));
    for (size_t i = 0; i < r->n_metrics && status == SOL_OK; i++)
        status = add_metric(table, &r->metrics[i]);
    if (status == SOL_OK) table_print(table, format, stdout);
    table_destroy(table);
    return status;
}

static enum sol_status print_kernels(const struct store_record *r, enum table_format format)
{
    struct table *table;
    if (r->n_kernels == 0) return SOL_OK;
    SOL_TRY(table_create("metric|phase|kernel|numerics|>calls|>expected|>us|>% of limit", &table));
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
    store_time_text(r->created_ns, when);
    const struct {
        const char *name, *value;
    } facts[] = {
        {"label", r->label},
        {"created", when},
        {"state", store_state_name(r->state)},
        {"reason", r->reason},
        {"model", r->model},
        {"type", r->model_type},
        {"device", r->device},
        {"backend", r->backend},
        {"command", r->argv_json},
        {"folder", r->cwd},
        {"environment", r->environment},
    };
    printf("%s %s\n", r->kind, r->id);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (facts[i].value && *facts[i].value)
            printf("  %-12s %s\n", facts[i].name, facts[i].value);
    putchar('\n');
}

static enum sol_status print_record(const struct store *store, const struct store_record *r,
                                    enum table_format format)
{
    if (format != TABLE_CSV) print_heading(&r->run);
    if (r->n_metrics) SOL_TRY(print_metrics(r, format));
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

static enum sol_status show(struct store *store, const char *name, enum table_format format,
                            bool json)
{
    char id[STORE_ID_SIZE];
    struct store_record *record;
    SOL_TRY(store_find(store, name, NULL, id));
    SOL_TRY(store_record_read(store, id, &record));
    enum sol_status status =
        json ? json_print(store_record_json(record)) : print_record(store, record, format);
    store_record_destroy(record);
    return status;
}

/* ---- changing ---- */

/* Names are resolved before anything is deleted, since deleting moves what `last` means. A run that
 * names files which are not its own does not keep the others. */
static enum sol_status delete_runs(struct store *store, const char *const *names, int count)
{
    char ids[OPTION_LIST_MAX][STORE_ID_SIZE];
    enum sol_status status = SOL_OK;
    for (int i = 0; i < count; i++) SOL_TRY(store_find(store, names[i], NULL, ids[i]));
    for (int i = 0; i < count; i++) {
        enum sol_status one = store_run_delete(store, ids[i]);
        if (one == SOL_OK)
            printf("deleted %s\n", ids[i]);
        else if (one == SOL_E_FORMAT)
            status = one;
        else
            return one;
    }
    return status;
}

static enum sol_status label(struct store *store, const char *name, const char *text)
{
    char id[STORE_ID_SIZE];
    SOL_TRY(store_label_check(text));
    SOL_TRY(store_find(store, name, NULL, id));
    SOL_TRY(store_run_label(store, id, text));
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
    SOL_TRY(check_format(o->format, &format, &json));
    SOL_TRY(find_verb(n_args ? args[0] : "list", n_args ? n_args - 1 : 0, &verb));
    SOL_TRY(store_open(o->store, &store));
    enum sol_status status = SOL_OK;
    switch (verb) {
    case LIST:
        status = list_runs(store, o, format, json);
        break;
    case SHOW:
        status = show(store, args[1], format, json);
        break;
    case EXPORT:
        status = show(store, args[1], format, true);
        break;
    case LABEL:
        status = label(store, args[1], args[2]);
        break;
    default:
        status = delete_runs(store, args + 1, n_args - 1);
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
