#include "stats/metric.h"

#include "base/json_value.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_json.h"

double metric_shown(const struct metric_figure *f, double value)
{
    return f->speed ? 1e9 / value : value * f->factor;
}

/* A unit in which the figure has one to three digits before the point. */
static void choose_unit(struct metric_figure *f)
{
    static const struct {
        const char *stored, *shown;
        double least;
    } units[] = {
        {"ns", "s", 1e9},
        {"ns", "ms", 1e6},
        {"ns", "\xc2\xb5s", 1e3},
        {"bytes", "GiB", 1073741824.0},
        {"bytes", "MiB", 1048576.0},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(units[i].stored, f->unit) != 0 || !(fabs(f->stored.value) >= units[i].least))
            continue;
        f->unit = units[i].shown;
        f->factor = 1 / units[i].least;
        return;
    }
}

/* Those that count; of a speed those that have a rate. Returns how many. */
static size_t take_values(const struct store_metric *metric, struct metric_figure *f,
                          struct figure_value *values)
{
    size_t count = 0;
    for (size_t i = 0; i < metric->n_samples; i++) {
        const struct store_sample *s = &metric->samples[i];
        if (s->flags & STORE_WARMUP) {
            f->warmups++;
            continue;
        }
        f->outliers += (s->flags & STORE_OUTLIER) != 0;
        f->repeated += (s->flags & STORE_REPEATED) != 0;
        if (f->speed && s->value <= 0) continue;
        values[count++] = (struct figure_value){s->value, s->process};
    }
    return count;
}

enum sol_status metric_figure_of(const struct store_metric *metric, struct metric_figure *f)
{
    bool speed = strcmp(metric->unit, "ns/token") == 0;
    *f = (struct metric_figure){.speed = speed, .unit = speed ? "t/s" : metric->unit, .factor = 1};
    struct figure_value *values = calloc(metric->n_samples + 1, sizeof *values);
    if (!values) return status_set(SOL_E_MEMORY, "no memory for the samples");
    enum sol_status status = figure_of(values, take_values(metric, f, values), &f->stored);
    free(values);
    figure_set_limit(&f->stored, metric->limit, metric->better == STORE_HIGHER);
    if (!speed) choose_unit(f);
    f->shown = speed ? figure_per_second(&f->stored) : figure_scaled(&f->stored, f->factor);
    return status;
}

double metric_figure_value(const struct store_metric *metric)
{
    struct metric_figure figure;
    return metric_figure_of(metric, &figure) == SOL_OK ? figure.stored.value : (double)NAN;
}

double metric_row_tokens(const struct store_kernel *row)
{
    if (!(row->calls > 0 && row->calls_per_token > 0)) return 1;
    return (double)row->calls / row->calls_per_token;
}

json_t *metric_figure_json(const struct metric_figure *f)
{
    const struct figure *s = &f->shown;
    json_t *interval = isnan(s->half) ? json_null() : json_pack("[f, f]", s->low, s->high);
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:I, s:I}", "value", json_number(s->value),
                     "unit", f->unit, "ci95", interval, "half_width_percent",
                     json_number(100 * s->half), "limit", json_number(s->limit), "limit_percent",
                     json_number(100 * s->reached), "repetitions", (json_int_t)s->count, "starts",
                     (json_int_t)s->starts);
}

json_t *metric_record_json(const struct store_record *record)
{
    json_t *json = store_record_json(record), *metrics = json_object_get(json, "metrics");
    for (size_t i = 0; i < record->n_metrics && json; i++) {
        struct metric_figure figure;
        bool known = metric_figure_of(&record->metrics[i], &figure) == SOL_OK;
        json_t *one = known ? metric_figure_json(&figure) : NULL;
        if (one && json_object_set_new(json_array_get(metrics, i), "figure", one) == 0) continue;
        json_decref(json);
        json = NULL;
    }
    return json;
}
