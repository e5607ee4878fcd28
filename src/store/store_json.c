#include "store/store_json.h"

#include "base/json_value.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/run_text.h"

json_t *store_json_string(const char *text)
{
    json_t *value = json_string(text);
    char *copy = value ? NULL : strdup(text);
    if (!copy) return value;
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    value = json_string(copy);
    free(copy);
    return value;
}

enum sol_status store_json_text(json_t *json, char **out)
{
    *out = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    return *out ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a JSON text");
}

void store_time_text(int64_t ns, char out[32])
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm utc;
    out[0] = '\0';
    if (ns && gmtime_r(&seconds, &utc)) strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

static json_t *text_json(const char *text)
{
    return text ? store_json_string(text) : json_null();
}

static json_t *count_json(int64_t count)
{
    return count < 0 ? json_null() : json_integer(count);
}

/* A text that the database has checked. */
static json_t *parsed_json(const char *text)
{
    json_t *json = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    return json ? json : json_null();
}

static json_t *time_json(int64_t ns)
{
    char text[32];
    store_time_text(ns, text);
    return *text ? json_string(text) : json_null();
}

json_t *store_run_json(const struct store_run *r)
{
    struct store_outcome outcome;
    store_run_outcome(r, &outcome);
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:o, "
                     "s:o, s:o, s:o, s:o, s:o, s:I}",
                     "id", r->id, "kind", r->kind, "label", text_json(r->label), "state",
                     store_state_name(r->state), "badge", store_run_badge(r), "reason",
                     text_json(r->reason), "noise", text_json(r->noise), "verdict",
                     text_json(*outcome.verdict ? outcome.verdict : NULL), "source",
                     text_json(*outcome.source ? outcome.source : NULL), "created",
                     time_json(r->created_ns), "created_ns", (json_int_t)r->created_ns, "finished",
                     time_json(r->finished_ns), "finished_ns", (json_int_t)r->finished_ns, "argv",
                     parsed_json(r->argv_json), "cwd", text_json(r->cwd), "environment_id",
                     text_json(r->environment), "backend", text_json(r->backend), "device",
                     text_json(r->device), "model", text_json(r->model), "model_type",
                     text_json(r->model_type), "model_size", (json_int_t)r->model_size);
}

static json_t *sample_json(const struct store_sample *s)
{
    return json_pack("{s:f, s:I, s:i, s:b, s:b, s:b, s:o}", "value", s->value, "started_ns",
                     (json_int_t)s->started_ns, "process", s->process, "warmup",
                     (s->flags & STORE_WARMUP) != 0, "outlier", (s->flags & STORE_OUTLIER) != 0,
                     "repeated", (s->flags & STORE_REPEATED) != 0, "cause", text_json(s->cause));
}

static json_t *metric_json(const struct store_metric *m)
{
    json_t *samples = json_array();
    for (size_t i = 0; i < m->n_samples; i++)
        json_array_append_new(samples, sample_json(&m->samples[i]));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "name", m->name, "unit", m->unit, "better",
                     m->better == STORE_LOWER ? "lower" : "higher", "limit",
                     m->limit > 0 ? json_real(m->limit) : json_null(), "test",
                     parsed_json(m->test_json), "samples", samples);
}

static json_t *kernel_json(const struct store_kernel *k)
{
    return json_pack("{s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "metric", text_json(k->metric), "phase", text_json(k->phase), "layer",
                     k->layer, "op", text_json(k->op), "variant", text_json(k->variant), "name",
                     text_json(k->name), "category", text_json(k->category), "numerics",
                     text_json(k->numerics), "calls", count_json(k->calls), "expected",
                     count_json(k->expected), "calls_per_token", json_number(k->calls_per_token),
                     "total_ns", json_number(k->total_ns), "bytes", json_number(k->bytes), "flops",
                     json_number(k->flops), "limit_ns", json_number(k->limit_ns));
}

static json_t *advice_json(const struct store_advice *a)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "rule", a->rule, "subject",
                     text_json(a->subject), "text", text_json(a->text), "evidence",
                     parsed_json(a->evidence_json), "window_ns", json_number(a->window_ns),
                     "ceiling_ns", json_number(a->ceiling_ns), "likely_ns",
                     json_number(a->likely_ns));
}

static json_t *artifact_json(const struct store_artifact *a)
{
    return json_pack("{s:s, s:o, s:I, s:s}", "kind", a->kind, "path", text_json(a->path), "size",
                     (json_int_t)a->size, "hash", a->hash);
}

json_t *store_record_json(const struct store_record *r)
{
    json_t *json = store_run_json(&r->run), *metrics = json_array(), *kernels = json_array(),
           *advice = json_array(), *artifacts = json_array();
    for (size_t i = 0; i < r->n_metrics; i++)
        json_array_append_new(metrics, metric_json(&r->metrics[i]));
    for (size_t i = 0; i < r->n_kernels; i++)
        json_array_append_new(kernels, kernel_json(&r->kernels[i]));
    for (size_t i = 0; i < r->n_advice; i++)
        json_array_append_new(advice, advice_json(&r->advice[i]));
    for (size_t i = 0; i < r->n_artifacts; i++)
        json_array_append_new(artifacts, artifact_json(&r->artifacts[i]));
    json_object_set_new(json, "environment", parsed_json(r->environment_json));
    json_object_set_new(json, "payload", parsed_json(r->run.payload_json));
    json_object_set_new(json, "metrics", metrics);
    json_object_set_new(json, "kernels", kernels);
    json_object_set_new(json, "advice", advice);
    json_object_set_new(json, "artifacts", artifacts);
    return json;
}
