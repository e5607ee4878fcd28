#include "advise/advice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules_private.h"
#include "base/json_value.h"
#include "base/status.h"
#include "base/table.h"
#include "bench/bench.h"
#include "store/store_json.h"

enum { METRIC_SIZE = 80, EXPERTS_MAX = 64 };

/* ---- from a stored run ---- */

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Rows that differ by layer only become one. */
static enum sol_status join_layers(const struct store_record *r, struct store_kernel **out,
                                   size_t *n)
{
    *n = 0;
    *out = calloc(r->n_kernels + 1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "out of memory for advice");
    for (size_t i = 0; i < r->n_kernels; i++) {
        const struct store_kernel *k = &r->kernels[i];
        size_t j = 0;
        while (j < *n && !(same((*out)[j].metric, k->metric) && same((*out)[j].phase, k->phase) &&
                           same((*out)[j].op, k->op) && same((*out)[j].variant, k->variant) &&
                           same((*out)[j].name, k->name)))
            j++;
        struct store_kernel *into = &(*out)[j];
        if (j == *n) {
            *into = *k;
            into->layer = -1;
            ++*n;
            continue;
        }
        into->calls += k->calls;
        into->calls_per_token += k->calls_per_token;
        into->total_ns += k->total_ns;
        into->bytes += k->bytes;
        into->flops += k->flops;
        into->limit_ns += k->limit_ns;
    }
    return SOL_OK;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Of the records of a benchmark, and of a profile's own payload. */
static size_t read_experts(const json_t *payload, struct rules_experts *experts,
                           char names[][METRIC_SIZE])
{
    size_t n = 0, i;
    const json_t *record;
    json_array_foreach(json_object_get(payload, "records"), i, record)
    {
        const json_t *e = json_object_get(record, "experts");
        struct bench_test test = {.n_prompt = (int64_t)number(record, "n_prompt"),
                                  .n_gen = (int64_t)number(record, "n_gen"),
                                  .n_depth = (int64_t)number(record, "n_depth"),
                                  .n_parallel = (int64_t)number(record, "n_parallel")};
        if (!json_is_object(e) || n == EXPERTS_MAX) continue;
        bench_test_name(&test, names[n]);
        const char *metric = json_string_value(json_object_get(record, "metric"));
        if (metric) snprintf(names[n], METRIC_SIZE, "%s", metric);
        experts[n] =
            (struct rules_experts){names[n], number(e, "even_rows"), number(e, "busiest_rows")};
        n++;
    }
    return n;
}

/* Of a traced run; of the phases of sol's own models. */
static size_t read_communication(const json_t *payload, struct rules_communication *list)
{
    const json_t *record;
    const char *metric =
        json_string_value(json_object_get(json_object_get(payload, "steady"), "metric"));
    size_t n = 0, i;
    list[n].metric = metric ? metric : "step";
    n += communication_figure_read(json_object_get(payload, "communication"), &list[n].figure);
    json_array_foreach(json_object_get(payload, "records"), i, record)
    {
        metric = json_string_value(json_object_get(record, "metric"));
        if (!metric || n == EXPERTS_MAX) continue;
        list[n].metric = metric;
        n += communication_figure_read(json_object_get(record, "communication"), &list[n].figure);
    }
    return n;
}

bool advice_has_times(const struct store_record *record)
{
    for (size_t i = 0; i < record->n_kernels; i++)
        if (record->kernels[i].total_ns > 0) return true;
    return false;
}

enum sol_status advice_of_record(const struct store_record *record, struct store *store,
                                 const struct rules_input *more, struct rules_report *out)
{
    struct rules_experts experts[EXPERTS_MAX];
    char names[EXPERTS_MAX][METRIC_SIZE];
    struct rules_communication communication[EXPERTS_MAX];
    struct store_kernel *kernels;
    struct rules_input input = *more;
    input.experts = experts;
    *out = (struct rules_report){0};
    SOL_TRY(join_layers(record, &kernels, &input.n_kernels));
    const char *text = record->run.payload_json;
    json_t *payload = text ? json_loads(text, 0, NULL) : NULL;
    input.kernels = kernels;
    input.wakeup_ns = number(payload, "wakeup_ns");
    input.n_experts = read_experts(payload, experts, names);
    input.communication = communication;
    input.n_communication = read_communication(payload, communication);
    enum sol_status status = rules_run(&input, store, out);
    json_decref(payload);
    free(kernels);
    return status;
}

/* ---- printing ---- */

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static const char *severity_name(enum rule_severity severity)
{
    static const char *const names[] = {"gain", "warning", "invalid"};
    return names[severity];
}

static void print_step(const struct rules_report *r, FILE *to)
{
    char a[24], b[24], c[24];
    const struct {
        const char *name;
        double ns;
    } parts[] = {
        {"waiting for the host", r->idle_host}, {"between kernels", r->idle_launch},
        {"in synchronisation", r->idle_sync},   {"in allocation or loading", r->idle_alloc},
        {"held up by tracing", r->idle_tracer}, {"other", r->idle_other}};
    if (r->steps == 0) {
        if (r->caveat) fprintf(to, "note: %s\n", r->caveat);
        return;
    }
    fprintf(to, "%zu step%s of %s on average: busy %s (%.1f %%), idle %s", r->steps,
            r->steps == 1 ? "" : "s", rules_time(r->window_ns, a), rules_time(r->busy_ns, b),
            percent(r->busy_ns, r->window_ns), rules_time(r->idle_ns, c));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].ns >= 0.0005 * r->window_ns)
            fprintf(to, "; %s %s", parts[i].name, rules_time(parts[i].ns, a));
    if (r->warmups)
        fprintf(to, "; %zu slow step%s at the start left out", r->warmups,
                r->warmups == 1 ? "" : "s");
    fputs("\n", to);
    if (r->withheld) fprintf(to, "not judged: gaps, because %s\n", r->withheld);
    if (r->caveat) fprintf(to, "note: %s\n", r->caveat);
}

static void cell_if(struct table *table, bool known, int decimals, double value)
{
    if (known)
        table_cell(table, "%.*f", decimals, value);
    else
        table_cell(table, "%s", "");
}

static enum sol_status print_table(const struct rules_report *r, FILE *to)
{
    struct table *table;
    SOL_TRY(table_create("rule|=about|>gain at most|>% of step|>-likely|-", &table));
    for (size_t i = 0; i < r->count; i++) {
        const struct finding *f = &r->findings[i];
        char a[24], b[24];
        table_cell(table, "%s", f->rule->name);
        table_cell(table, "%s", f->subject);
        table_cell(table, "%s", f->ceiling_ns > 0 ? rules_time(f->ceiling_ns, a) : "");
        cell_if(table, f->ceiling_ns > 0, 1, percent(f->ceiling_ns, f->window_ns));
        table_cell(table, "%s", f->likely_ns > 0 ? rules_time(f->likely_ns, b) : "");
        if (f->covered_by)
            table_cell(table, "(counted as %s)", f->covered_by);
        else
            table_cell(table, "%s", f->severity == RULE_GAIN ? "" : severity_name(f->severity));
    }
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}

enum sol_status advice_print(const struct rules_report *report, const char *run,
                             const struct next *next, FILE *to)
{
    char a[24], b[24];
    if (run) fprintf(to, "advice on %s\n", run);
    print_step(report, to);
    if (report->count) {
        fputs("\n", to);
        SOL_TRY(print_table(report, to));
        fputs("\n", to);
        for (size_t i = 0; i < report->count; i++)
            fprintf(to, "%zu. %s\n", i + 1, report->findings[i].text);
        if (report->steps && report->ceiling_ns > 0)
            fprintf(to, "\nall of it: at most %s of a step, likely %s\n",
                    rules_time(report->ceiling_ns, a), rules_time(report->likely_ns, b));
    }
    if (report->invalid) fputs("\nthis run is invalid: its figures must not be used\n", to);
    fputc('\n', to);
    next_print(next, to);
    return SOL_OK;
}

static json_t *findings_json(const struct rules_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->count; i++) {
        const struct finding *f = &r->findings[i];
        json_array_append_new(
            list,
            json_pack("{s:s, s:o, s:s, s:o, s:o, s:o, s:b, s:s?, s:o, s:O}", "rule", f->rule->name,
                      "subject", store_json_string(f->subject), "severity",
                      severity_name(f->severity), "window_ns", json_number(f->window_ns),
                      "ceiling_ns", json_number(f->ceiling_ns), "likely_ns",
                      json_number(f->likely_ns), "counted", (int)f->counted, "covered_by",
                      f->covered_by, "text", store_json_string(f->text), "evidence", f->evidence));
    }
    return list;
}

/* A kept row as findings_json has it; evidence_text put the rest of it into its evidence. */
static json_t *kept_finding_json(const struct store_advice *row)
{
    json_t *evidence = row->evidence_json ? json_loads(row->evidence_json, 0, NULL) : NULL;
    if (!json_is_object(evidence)) {
        json_decref(evidence);
        evidence = json_object();
    }
    const char *severity = json_string_value(json_object_get(evidence, "severity"));
    bool counted = !json_is_false(json_object_get(evidence, "counted"));
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:b, s:s?, s:s}", "rule", row->rule, "subject",
                  row->subject ? row->subject : "", "severity",
                  severity ? severity : severity_name(RULE_GAIN), "window_ns",
                  json_number(row->window_ns), "ceiling_ns", json_number(row->ceiling_ns),
                  "likely_ns", json_number(row->likely_ns), "counted", (int)counted, "covered_by",
                  json_string_value(json_object_get(evidence, "covered_by")), "text",
                  row->text ? row->text : "");
    json_object_del(evidence, "severity");
    json_object_del(evidence, "counted");
    json_object_del(evidence, "covered_by");
    if (json)
        json_object_set_new(json, "evidence", evidence);
    else
        json_decref(evidence);
    return json;
}

json_t *advice_kept_json(const struct store_record *record, const struct next *next)
{
    json_t *list = json_array();
    for (size_t i = 0; i < record->n_advice; i++)
        json_array_append_new(list, kept_finding_json(&record->advice[i]));
    json_t *json =
        json_pack("{s:s, s:s, s:n, s:o, s:n, s:n, s:n, s:s?, s:b}", "schema", "sol.advice.1", "run",
                  record->run.id, "step", "advice", list, "ceiling_ns", "likely_ns", "withheld",
                  "caveat", record->run.noise, "invalid", record->run.state == STORE_INVALID);
    if (json) next_set(next, json);
    return json;
}

json_t *advice_json(const struct rules_report *r, const char *run, const struct next *next)
{
    json_t *step =
        r->steps ? json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "count",
                             (json_int_t)r->steps, "warmups", (json_int_t)r->warmups, "window_ns",
                             r->window_ns, "busy_ns", r->busy_ns, "idle_ns", r->idle_ns,
                             "idle_host_ns", r->idle_host, "idle_launch_ns", r->idle_launch,
                             "idle_sync_ns", r->idle_sync, "idle_alloc_ns", r->idle_alloc,
                             "idle_tracer_ns", r->idle_tracer, "idle_other_ns", r->idle_other)
                 : json_null();
    json_t *json =
        json_pack("{s:s, s:s?, s:o, s:o, s:o, s:o, s:s?, s:s?, s:b}", "schema", "sol.advice.1",
                  "run", run, "step", step, "advice", findings_json(r), "ceiling_ns",
                  json_number(r->ceiling_ns), "likely_ns", json_number(r->likely_ns), "withheld",
                  r->withheld, "caveat", r->caveat, "invalid", (int)r->invalid);
    if (json) next_set(next, json);
    return json;
}

json_t *advice_rules_json(void)
{
    json_t *rules = json_array();
    for (size_t i = 0; i < rule_count; i++) {
        const struct rule *rule = &rule_table[i];
        json_array_append_new(rules, json_pack("{s:s, s:s, s:s, s:s}", "rule", rule->name, "source",
                                               rule_source_name(rule->source), "fires", rule->fires,
                                               "gain", rule->gain));
    }
    return json_pack("{s:o}", "rules", rules);
}

enum sol_status advice_print_rules(FILE *to)
{
    struct table *table;
    SOL_TRY(table_create("rule|-from|~fires when|~gain at most", &table));
    for (size_t i = 0; i < rule_count; i++) {
        const struct rule *rule = &rule_table[i];
        table_cell(table, "%s", rule->name);
        table_cell(table, "%s", rule_source_name(rule->source));
        table_cell(table, "%s", rule->fires);
        table_cell(table, "%s", rule->gain);
    }
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}

/* ---- keeping ---- */

/* Evidence with what the columns of a row do not say. */
static char *evidence_text(const struct finding *f)
{
    json_t *copy = json_copy(f->evidence);
    if (copy && !f->counted) json_object_set_new(copy, "counted", json_false());
    if (copy && f->covered_by) json_object_set_new(copy, "covered_by", json_string(f->covered_by));
    if (copy && f->severity != RULE_GAIN)
        json_object_set_new(copy, "severity", json_string(severity_name(f->severity)));
    char *text = copy ? json_dumps(copy, JSON_COMPACT) : NULL;
    json_decref(copy);
    return text;
}

static enum sol_status add_rows(struct store *store, const char *id,
                                const struct rules_report *report)
{
    struct store_advice *rows = calloc(report->count, sizeof *rows);
    char **evidence = calloc(report->count, sizeof *evidence);
    enum sol_status status = SOL_OK;
    if (!rows || !evidence) status = status_set(SOL_E_MEMORY, "out of memory for advice");
    for (size_t i = 0; i < report->count && status == SOL_OK; i++) {
        const struct finding *f = &report->findings[i];
        evidence[i] = evidence_text(f);
        if (!evidence[i]) status = status_set(SOL_E_MEMORY, "out of memory for advice");
        rows[i] = (struct store_advice){f->rule->name, f->subject,    f->text,     evidence[i],
                                        f->window_ns,  f->ceiling_ns, f->likely_ns};
    }
    if (status == SOL_OK)
        status = store_run_add(store, id,
                               &(struct store_batch){.advice = rows, .n_advice = report->count});
    for (size_t i = 0; evidence && i < report->count; i++) free(evidence[i]);
    free(evidence);
    free(rows);
    return status;
}

enum sol_status advice_store(struct store *store, const char *id, const struct rules_report *report)
{
    struct store_record *record;
    SOL_TRY(store_record_read(store, id, &record));
    bool has = record->n_advice > 0;
    store_record_destroy(record);
    return has || report->count == 0 ? SOL_OK : add_rows(store, id, report);
}
