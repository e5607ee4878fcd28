/* Load on a server in the store. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/serve.h"
#include "store/environment.h"
#include "store/store_json.h"

enum { SPREADS = 4, METRICS = 1 + 3 * SPREADS + 3, NAME_SIZE = 80 };

enum sol_status serve_store_begin(struct store *store, const struct serve_report *report,
                                  const char *label, int argc, char *const *argv,
                                  char id[STORE_ID_SIZE])
{
    struct store_run run = {.kind = "serve",
                            .label = label,
                            .backend = "http",
                            .device = report->url,
                            .model = *report->model ? report->model : NULL};
    return environment_run_begin(store, &run, argc, argv, NULL, id);
}

/* Lists that a batch points into. */
struct contents {
    struct store_sample single[METRICS], *samples[SPREADS];
    struct store_metric metrics[METRICS];
    char names[METRICS][NAME_SIZE];
    size_t n;
};

static void add_metric(struct contents *c, const char *level, const char *what, const char *unit,
                       enum store_better better, const struct store_sample *samples, size_t count)
{
    const size_t i = c->n++;
    snprintf(c->names[i], NAME_SIZE, "%s%s%s", level, what ? ": " : "", what ? what : "");
    c->metrics[i] = (struct store_metric){.name = c->names[i],
                                          .unit = unit,
                                          .better = better,
                                          .samples = samples,
                                          .n_samples = count};
}

static void add_single(struct contents *c, const char *level, const char *what, const char *unit,
                       enum store_better better, double value)
{
    if (!isfinite(value)) return;
    c->single[c->n] = (struct store_sample){.value = value};
    add_metric(c, level, what, unit, better, &c->single[c->n], 1);
}

static enum sol_status add_spread(struct contents *c, int place, const char *level,
                                  const char *what, const struct serve_spread *s,
                                  const double *values)
{
    char name[NAME_SIZE];
    struct store_sample *samples = c->samples[place] = calloc(s->count + 1, sizeof *samples);
    if (!samples) return status_set(SOL_E_MEMORY, "no memory for the record");
    for (size_t i = 0; i < s->count; i++) samples[i].value = values[i];
    if (s->count == 0) return SOL_OK;
    add_metric(c, level, what, "ns", STORE_LOWER, samples, s->count);
    snprintf(name, sizeof name, "%s p90", what);
    add_single(c, level, name, "ns", STORE_LOWER, s->p90);
    snprintf(name, sizeof name, "%s p99", what);
    add_single(c, level, name, "ns", STORE_LOWER, s->p99);
    return SOL_OK;
}

static enum sol_status fill(struct contents *c, const struct serve_level *l)
{
    add_single(c, l->name, NULL, "ns/token", STORE_LOWER,
               l->output_tokens ? 1e9 * l->wall_s / (double)l->output_tokens : (double)NAN);
    SOL_TRY(add_spread(c, 0, l->name, "TTFT", &l->ttft, l->ttft_ns));
    SOL_TRY(add_spread(c, 1, l->name, "ITL", &l->itl, l->gap_ns));
    SOL_TRY(add_spread(c, 2, l->name, "TPOT", &l->tpot, l->tpot_ns));
    SOL_TRY(add_spread(c, 3, l->name, "end to end", &l->total, l->total_ns));
    add_single(c, l->name, "requests", "per s", STORE_HIGHER, l->requests_per_s);
    add_single(c, l->name, "goodput", "per s", STORE_HIGHER, l->good_per_s);
    add_single(c, l->name, "failed", "%", STORE_LOWER,
               l->sent ? 100 * (double)(l->sent - l->fine) / (double)l->sent : (double)NAN);
    return SOL_OK;
}

enum sol_status serve_store_level(struct store *store, const struct serve_report *report,
                                  const struct serve_level *level)
{
    struct contents *c = calloc(1, sizeof *c);
    if (!c) return status_set(SOL_E_MEMORY, "no memory for the record");
    enum sol_status status = fill(c, level);
    if (status == SOL_OK)
        status = store_run_add(store, report->run,
                               &(struct store_batch){.metrics = c->metrics, .n_metrics = c->n});
    for (int i = 0; i < SPREADS; i++) free(c->samples[i]);
    free(c);
    return status;
}

enum sol_status serve_store_finish(struct store *store, const struct serve_report *report,
                                   const char *partial_reason)
{
    const char *invalid = serve_invalid(report);
    char *payload, noise[SERVE_NAME + SERVE_WHY + 4] = "";
    for (size_t i = 0; i < report->n_levels && !*noise; i++)
        if (*report->levels[i].noise)
            snprintf(noise, sizeof noise, "%s: %s", report->levels[i].name,
                     report->levels[i].noise);
    if (*noise) SOL_TRY(store_run_noise(store, report->run, noise));
    SOL_TRY(store_json_text(json_pack("{s:o}", "serve", serve_json(report)), &payload));
    const enum store_state state = invalid          ? STORE_INVALID
                                   : partial_reason ? STORE_PARTIAL
                                                    : STORE_OK;
    enum sol_status status =
        store_run_finish(store, report->run, state, invalid ? invalid : partial_reason, payload);
    free(payload);
    return status;
}
