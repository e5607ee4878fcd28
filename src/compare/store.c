#include "compare/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/report.h"
#include "store/environment.h"
#include "store/store_json.h"

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for a stored run");
}

/* ---- stored runs ---- */

/* One record more, whose place is returned in *out. */
static enum sol_status grow(struct records *all, struct record **out)
{
    struct record *grown = realloc(all->items, (all->count + 1) * sizeof *grown);
    if (!grown) return no_memory();
    all->items = grown;
    *out = &grown[all->count];
    **out = (struct record){.fields = json_object()};
    if (!(*out)->fields) return no_memory();
    all->count++;
    return SOL_OK;
}

static bool counts(const struct store_sample *s)
{
    return !(s->flags & STORE_WARMUP) && isfinite(s->value) && s->value > 0;
}

/* The one of that name, or the next free one. */
static struct record_kernel *find_kernel(const struct record *r, const char *name)
{
    struct record_kernel *kernel = r->kernels;
    while (kernel->name && strcmp(kernel->name, name) != 0) kernel++;
    return kernel;
}

/* Of `metric`; `tokens`: that all their calls made, 0: as calls_per_token says. */
static enum sol_status add_kernels(struct record *r, const struct store_record *run,
                                   const char *metric, double tokens)
{
    r->kernels = calloc(run->n_kernels + 2, sizeof *r->kernels);
    if (!r->kernels) return no_memory();
    for (size_t i = 0; i < run->n_kernels; i++) {
        const struct store_kernel *k = &run->kernels[i];
        if (!k->metric || strcmp(k->metric, metric) != 0) continue;
        double ns = tokens > 0     ? k->total_ns / tokens
                    : k->calls > 0 ? k->total_ns / (double)k->calls * k->calls_per_token
                                   : 0;
        const char *name = k->op ? k->op : k->name;
        if (!name || !(ns > 0)) continue;
        struct record_kernel *kernel = find_kernel(r, name);
        kernel->ns_per_token += ns;
        if (kernel->name) continue;
        kernel->name = strdup(name);
        kernel->variant = strdup(k->variant ? k->variant : k->name ? k->name : "");
        r->n_kernels++;
        if (!kernel->name || !kernel->variant) return no_memory();
        kernel->calls = k->calls_per_token;
    }
    return SOL_OK;
}

static double number_at(const json_t *object, const char *key)
{
    double value = json_number_value(json_object_get(object, key));
    return isfinite(value) && value > 0 ? value : 0;
}

static enum sol_status add_copies(struct record *r, double ns)
{
    if (!(ns > 0)) return SOL_OK;
    struct record_kernel *kernel = &r->kernels[r->n_kernels];
    *kernel = (struct record_kernel){strdup("copies and sets"), strdup(""), ns, 0};
    r->n_kernels++;
    return kernel->name && kernel->variant ? SOL_OK : no_memory();
}

/* Kernels, copies, gaps and clock of a profile's steps, as means: those add up to the whole. */
static enum sol_status add_steady(struct record *r, const struct store_record *run,
                                  const char *metric, const json_t *payload)
{
    const json_t *steady = json_object_get(payload, "steady");
    const json_t *time = json_object_get(payload, "device_time");
    const char *whose = json_string_value(json_object_get(steady, "metric"));
    double tokens = number_at(steady, "steps") * number_at(steady, "tokens");
    if (!whose || strcmp(whose, metric) != 0 || !(tokens > 0)) return SOL_OK;
    r->steady = (struct record_steady){number_at(time, "span_ns") / tokens,
                                       number_at(time, "gap_ns") / tokens,
                                       number_at(json_object_get(steady, "clock"), "mean_mhz")};
    SOL_TRY(add_kernels(r, run, metric, tokens));
    return add_copies(r, number_at(steady, "copy_ns") / tokens);
}

/* How many GPUs shared the work, and what they cost each other: of a traced run's steps, of the
 * phases of sol's own models; training runs say how many ranks they had. */
static void read_ranks(struct record *r, const char *metric, const json_t *payload)
{
    const json_t *steady = json_object_get(payload, "steady"), *record;
    const json_t *gpus = json_object_get(payload, "gpus"),
                 *ranks = json_object_get(payload, "ranks");
    const char *whose = json_string_value(json_object_get(steady, "metric"));
    const json_int_t n = json_integer_value(gpus ? gpus : ranks);
    size_t i;
    if (n > 0 && n < 1000000) {
        r->gpus = (int)n;
        json_object_set_new(r->fields, "gpus", json_integer(n)); /* a setting that may differ */
    }
    if (whose && strcmp(whose, metric) == 0)
        communication_figure_read(json_object_get(payload, "communication"), &r->communication);
    json_array_foreach(json_object_get(payload, "records"), i, record)
    {
        const char *name = json_string_value(json_object_get(record, "metric"));
        if (name && strcmp(name, metric) == 0)
            communication_figure_read(json_object_get(record, "communication"), &r->communication);
    }
}

static enum sol_status add_metric(struct records *all, const struct store_record *run,
                                  const struct store_metric *m, bool speed, const json_t *payload)
{
    struct record *r;
    size_t count = 0;
    for (size_t i = 0; i < m->n_samples; i++) count += counts(&m->samples[i]);
    if (count == 0) return SOL_OK;
    SOL_TRY(grow(all, &r));
    r->other = !speed;
    r->rate = m->better == STORE_HIGHER;
    /* Tables have no room for bytes. */
    bool bytes = strcmp(m->unit, "bytes") == 0;
    const double scale = bytes ? 1.0 / (1 << 20) : 1;
    if (asprintf(&r->name, speed ? "%s" : "%s, %s", m->name, bytes ? "MiB" : m->unit) < 0)
        r->name = NULL;
    r->samples = malloc(count * sizeof *r->samples);
    if (!r->name || !r->samples) return no_memory();
    for (size_t i = 0; i < m->n_samples; i++)
        if (counts(&m->samples[i]))
            r->samples[r->n_samples++] =
                (struct figure_value){scale * m->samples[i].value, m->samples[i].process};
    SOL_TRY(figure_of(r->samples, r->n_samples, &r->figure));
    read_ranks(r, m->name, payload);
    return speed ? add_kernels(r, run, m->name, 0) : add_steady(r, run, m->name, payload);
}

static enum sol_status add_metrics(struct records *all, const struct store_record *run,
                                   bool speeds_too, const json_t *payload)
{
    for (size_t i = 0; i < run->n_metrics; i++) {
        const struct store_metric *m = &run->metrics[i];
        bool speed = strcmp(m->unit, "ns/token") == 0;
        if (speeds_too || !speed) SOL_TRY(add_metric(all, run, m, speed, payload));
    }
    return SOL_OK;
}

/* Facts about the whole run that every record is to have. */
static enum sol_status add_surroundings(struct records *all, const struct store_record *run)
{
    json_t *environment = run->environment_json ? json_loads(run->environment_json, 0, NULL) : NULL;
    const char *reason = run->run.reason ? run->run.reason : "no reason was kept";
    int failed = 0;
    for (size_t i = 0; i < all->count; i++) {
        json_t *fields = all->items[i].fields;
        if (environment) failed |= json_object_set(fields, "environment", environment);
        if (run->run.state == STORE_INVALID)
            failed |= json_object_set_new(fields, "run_invalid", json_string(reason));
        /* A benchmark's records say it test by test; its memory is not unsure. */
        if (run->run.noise && strcmp(run->run.kind, "bench") != 0)
            failed |= json_object_set_new(fields, "noise", json_string(run->run.noise));
    }
    json_decref(environment);
    return failed ? no_memory() : SOL_OK;
}

static enum sol_status convert(const struct store_record *run, struct records *out)
{
    json_t *payload = run->run.payload_json ? json_loads(run->run.payload_json, 0, NULL) : NULL;
    json_t *list = json_object_get(payload, "records");
    enum sol_status status = SOL_OK;
    /* A profile of a model has records too, of its phases: its metrics and kernels say more. */
    bool has_records = strcmp(run->run.kind, "bench") == 0 && json_array_size(list) > 0;
    if (has_records) status = records_from_json(list, run->run.id, out);
    if (status == SOL_OK) status = add_metrics(out, run, !has_records, payload);
    json_decref(payload);
    if (status == SOL_OK) status = add_surroundings(out, run);
    if (status == SOL_OK && out->count == 0)
        status = status_set(SOL_E_ARGUMENT, "the run %s (%s, %s) holds no measurements",
                            run->run.id, run->run.kind, store_state_name(run->run.state));
    return status;
}

enum sol_status compare_store_read(struct store *store, const char *text, struct records *out,
                                   char id[STORE_ID_SIZE])
{
    struct store_record *run = NULL;
    *out = (struct records){0};
    SOL_TRY(store_find_for(store, text, STORE_FOR_FIGURES, id));
    SOL_TRY(store_record_read(store, id, &run));
    enum sol_status status = convert(run, out);
    store_record_destroy(run);
    if (status != SOL_OK) records_free(out);
    return status;
}

/* ---- calibration ---- */

static void fact_key(const char *kind, char key[64])
{
    char machine[STORE_HASH_SIZE];
    environment_machine_key(machine);
    snprintf(key, 64, "%s:%s", machine, kind);
}

enum sol_status compare_store_delta(struct store *store, const char *kind, double *delta)
{
    char key[64], *text;
    *delta = 0;
    fact_key(kind, key);
    SOL_TRY(store_fact_read(store, "calibration", key, &text, NULL));
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    double value = json_number_value(json_object_get(json, "delta"));
    if (value > 0 && isfinite(value)) *delta = value;
    json_decref(json);
    free(text);
    return SOL_OK;
}

enum sol_status compare_store_set_delta(struct store *store, const char *kind, double delta,
                                        const char *command, const struct compare_result *from)
{
    char key[64], *text;
    fact_key(kind, key);
    SOL_TRY(store_json_text(json_pack("{s:f, s:s, s:s, s:I, s:f}", "delta", delta, "metric",
                                      from->metrics[0].name, "command", command, "pairs",
                                      (json_int_t)from->pairs, "other_cores", from->other_cores),
                            &text));
    enum sol_status status = store_fact_write(store, "calibration", key, text);
    free(text);
    return status;
}

/* ---- noise between starts ---- */

enum sol_status compare_store_noise(struct store *store, const char *kind, struct start_noise *out)
{
    char key[64], *text;
    int64_t created = 0;
    *out = (struct start_noise){0};
    fact_key(kind, key);
    SOL_TRY(store_fact_read(store, "start_noise", key, &text, &created));
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    struct start_noise found = {json_number_value(json_object_get(json, "sd")),
                                json_number_value(json_object_get(json, "df"))};
    if (isfinite(found.sd) && found.sd >= 0 && found.df > 0)
        *out = start_noise_aged(&found, store_now_ns() - created);
    json_decref(json);
    free(text);
    return SOL_OK;
}

enum sol_status compare_store_add_noise(struct store *store, const char *kind,
                                        const struct start_noise *noise)
{
    struct start_noise all;
    char key[64], *text;
    if (!(noise->df > 0)) return SOL_OK;
    SOL_TRY(compare_store_noise(store, kind, &all));
    start_noise_pool(&all, noise);
    fact_key(kind, key);
    SOL_TRY(store_json_text(json_pack("{s:f, s:f}", "sd", all.sd, "df", all.df), &text));
    enum sol_status status = store_fact_write(store, "start_noise", key, text);
    free(text);
    return status;
}

/* ---- results ---- */

enum sol_status compare_store_keep(struct store *store, const struct compare_result *result,
                                   int argc, char *const *argv, char id[STORE_ID_SIZE])
{
    char *payload;
    SOL_TRY(store_json_text(compare_report_json(result), &payload));
    enum sol_status status =
        environment_run_begin(store, &(struct store_run){.kind = "compare"}, argc, argv, NULL, id);
    bool sound = result->verdict != VERDICT_INVALID && result->verdict != VERDICT_FAILED;
    if (status == SOL_OK)
        status =
            store_run_finish(store, id, sound ? STORE_OK : STORE_INVALID, result->reason, payload);
    free(payload);
    return status;
}
