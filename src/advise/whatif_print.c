/* Answers of a what-if, with how far such answers were off before. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules_private.h"
#include "advise/whatif.h"
#include "base/json_value.h"
#include "base/status.h"
#include "base/table.h"
#include "stats/samples.h"

enum { RECORD_VERSION = 1 };

/* ---- the error that is known ---- */

extern const char sol_whatif_error[]; /* whatif_error.S */

static bool take_error(const json_t *change, bool gpu, double *off, struct whatif_error *out)
{
    double predicted = json_number_value(json_object_get(change, "predicted_ns"));
    double measured = json_number_value(json_object_get(change, "measured_ns"));
    const char *device = json_string_value(json_object_get(change, "device"));
    if (json_boolean_value(json_object_get(change, "gpu")) != gpu) return false;
    if (!(predicted > 0 && measured > 0) || !device) return false;
    *off = fabs(predicted / measured - 1);
    snprintf(out->device, sizeof out->device, "%s", device);
    return true;
}

enum sol_status whatif_error_parse(const char *text, size_t length, bool gpu,
                                   struct whatif_error *out)
{
    json_t *root = json_loadb(text, length, 0, NULL), *change;
    json_t *changes = json_object_get(root, "changes");
    size_t i, n = json_array_size(changes);
    double *off = calloc(n + 1, sizeof *off);
    *out = (struct whatif_error){.median = (double)NAN, .worst = (double)NAN};
    enum sol_status status = off ? SOL_OK : status_set(SOL_E_MEMORY, "out of memory for errors");
    if (!json_is_array(changes) ||
        json_integer_value(json_object_get(root, "version")) != RECORD_VERSION)
        status = status_set(SOL_E_FORMAT, "no record of what-if's errors");
    json_array_foreach(changes, i, change)
    {
        if (status == SOL_OK && take_error(change, gpu, &off[out->count], out)) out->count++;
    }
    if (status == SOL_OK && out->count) {
        samples_sort(off, out->count);
        out->median = samples_percentile(off, out->count, 0.5);
        out->worst = off[out->count - 1];
    }
    free(off);
    json_decref(root);
    return status;
}

enum sol_status whatif_error_known(bool gpu, struct whatif_error *out)
{
    return whatif_error_parse(sol_whatif_error, strlen(sol_whatif_error), gpu, out);
}

/* ---- text ---- */

static double saved_percent(const struct whatif_steps *s, const struct whatif_result *r)
{
    return s->measured_ns > 0 ? 100 * (1 - r->step_ns / s->measured_ns) : 0;
}

static void heading(const struct whatif_steps *s, FILE *to)
{
    char time[24];
    fprintf(to, "%s: %s a %s", s->metric, rules_time(s->measured_ns, time),
            s->per_token ? "token" : "step");
    if (s->count)
        fprintf(to, " (median); the schedule of %zu step%s replayed\n", s->count,
                s->count == 1 ? "" : "s");
    else
        fputs("; kernels one after the other, as they were timed\n", to);
}

static enum sol_status print_steps(const struct whatif_steps *s, FILE *to)
{
    char a[24];
    struct table *table;
    heading(s, to);
    SOL_TRY(table_create("what if|>kernels|>their time|>then|>saved|>%", &table));
    for (size_t i = 0; i < s->n_results; i++) {
        const struct whatif_result *r = &s->results[i];
        bool kernels = !isnan(r->kernels);
        double saved = s->measured_ns - r->step_ns;
        table_cell(table, "%s", r->change);
        if (kernels)
            table_cell(table, "%.4g", r->kernels);
        else
            table_cell(table, "%s", "");
        table_cell(table, "%s", kernels ? rules_time(r->kernels_ns, a) : "");
        table_cell(table, "%s", rules_time(r->step_ns, a));
        table_cell(table, "%s%s", saved < 0 ? "-" : "", rules_time(fabs(saved), a));
        table_cell(table, "%.1f", saved_percent(s, r));
    }
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}

enum sol_status whatif_print(const struct whatif_report *report, const char *run, FILE *to)
{
    struct whatif_error error;
    SOL_TRY(whatif_error_known(report->gpu, &error));
    if (run) fprintf(to, "what if, on %s\n\n", run);
    for (size_t i = 0; i < report->n_steps; i++) {
        SOL_TRY(print_steps(&report->steps[i], to));
        fputs("\n", to);
    }
    if (error.count)
        fprintf(to,
                "for %zu changes that were really made on %s such answers were off by %.1f %% of a "
                "step (median), %.1f %% at worst\n",
                error.count, error.device, 100 * error.median, 100 * error.worst);
    else
        fprintf(to, "how far off such answers are is not known for this kind of device; "
                    "bench/whatif.sh measures it\n");
    return SOL_OK;
}

/* ---- JSON ---- */

static json_t *steps_json(const struct whatif_steps *s)
{
    json_t *changes = json_array();
    for (size_t i = 0; i < s->n_results; i++) {
        const struct whatif_result *r = &s->results[i];
        json_array_append_new(changes, json_pack("{s:s, s:o, s:o, s:f, s:f}", "change", r->change,
                                                 "kernels", json_number(r->kernels), "kernels_ns",
                                                 json_number(r->kernels_ns), "step_ns", r->step_ns,
                                                 "saved_percent", saved_percent(s, r)));
    }
    return json_pack("{s:s, s:s, s:I, s:f, s:o}", "metric", s->metric, "per",
                     s->per_token ? "token" : "step", "replayed_steps", (json_int_t)s->count,
                     "measured_ns", s->measured_ns, "changes", changes);
}

json_t *whatif_json(const struct whatif_report *report, const char *run)
{
    struct whatif_error error;
    json_t *steps = json_array();
    if (whatif_error_known(report->gpu, &error) != SOL_OK) error.count = 0;
    for (size_t i = 0; i < report->n_steps; i++)
        json_array_append_new(steps, steps_json(&report->steps[i]));
    json_t *known = error.count
                        ? json_pack("{s:I, s:f, s:f, s:s}", "changes", (json_int_t)error.count,
                                    "median_percent", 100 * error.median, "worst_percent",
                                    100 * error.worst, "device", error.device)
                        : json_null();
    return json_pack("{s:s, s:s?, s:o, s:o}", "schema", "sol.whatif.1", "run", run, "steps", steps,
                     "error", known);
}
