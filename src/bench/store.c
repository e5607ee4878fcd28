#include "bench/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "bench/figures.h"
#include "bench/json.h"
#include "store/environment.h"
#include "store/store_json.h"

enum { NAME_SIZE = 120, OWN_METRICS = 6 };

enum sol_status bench_store_begin(struct store *store, const struct bench_report *report,
                                  const char *label, int argc, char *const *argv,
                                  char id[STORE_ID_SIZE])
{
    char type[48];
    struct gpu *gpu = report->params->engine.chooser.device.gpu;
    struct environment_gpu accelerator;
    struct store_run run = {.kind = "bench",
                            .label = label,
                            .backend = gpu ? "cuda" : "cpu",
                            .device = bench_device(report),
                            .model = report->model->name,
                            .model_type = bench_model_type(report->model, type),
                            .model_size = (int64_t)report->model->weight_bytes};
    return environment_run_begin(store, &run, argc, argv, environment_of_gpu(gpu, &accelerator),
                                 id);
}

/* ---- kernels ---- */

const char *bench_category_of(const struct op *op)
{
    static const char *const table[][2] = {
        {"attention", "attention"}, {"attn_in", "attention"},
        {"attn_out", "attention"},  {"gemm", "matmul"},
        {"head", "matmul"},         {"moe_up", "moe"},
        {"moe_down", "moe"},        {"route", "moe"},
        {"combine", "moe"},         {"swiglu", "elementwise"},
        {"add", "elementwise"},     {"rmsnorm", "norm"},
        {"rope", "rope"},           {"kv_write", "copy"},
        {"embed", "copy"},          {"moe", "moe"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(op->name, table[i][0]) == 0) return table[i][1];
    return "other";
}

static struct store_kernel kernel_of(const struct bench_report *report,
                                     const struct bench_result *r, const struct bench_kernel *k,
                                     const char *metric)
{
    bool decode = strcmp(k->phase, "generation") == 0;
    const struct bench_test *t = &r->test;
    double tokens = (double)((decode ? t->n_gen : t->n_prompt) * t->n_parallel);
    double steps = (double)k->ran / k->calls; /* each of which has `calls` calls */
    return (struct store_kernel){
        .metric = metric,
        .phase = decode ? "decode" : "prefill",
        .layer = -1,
        .op = k->op->name,
        .variant = k->variant,
        .category = bench_category_of(k->op),
        .numerics = op_numerics_name(k->numerics),
        .calls = k->ran,
        .expected = k->expected,
        .calls_per_token = (double)k->ran / (tokens * (double)r->ns.count),
        .total_ns = k->seconds > 0 ? 1e9 * k->seconds * steps : (double)NAN,
        .bytes = k->cost.bytes * steps,
        .flops = k->cost.flops * steps,
        .limit_ns = bench_kernel_limit_ns(report->ceiling, k) * steps,
    };
}

/* ---- metrics ---- */

/* Lists that a batch points into. */
struct contents {
    struct store_sample *times, single[OWN_METRICS];
    struct store_metric metrics[OWN_METRICS];
    char names[OWN_METRICS][NAME_SIZE];
    size_t n_metrics;
    struct store_kernel *kernels;
    char *test_json;
};

static void add_single(struct contents *c, const char *test, const char *what, const char *unit,
                       double value)
{
    size_t i = c->n_metrics;
    if (!isfinite(value)) return;
    snprintf(c->names[i], NAME_SIZE, "%s: %s", test, what);
    c->single[i] = (struct store_sample){.value = value};
    c->metrics[c->n_metrics++] = (struct store_metric){.name = c->names[i],
                                                       .unit = unit,
                                                       .samples = &c->single[i],
                                                       .n_samples = 1,
                                                       .test_json = c->test_json};
}

static void add_times(struct contents *c, const struct bench_report *report,
                      const struct bench_result *r)
{
    double tokens = (double)r->tokens, limit = bench_limit_ns(report->ceiling, r) / tokens;
    for (size_t i = 0; i < r->n_samples; i++) {
        const struct sample *s = &r->samples[i];
        c->times[i] = (struct store_sample){
            .value = s->ns / tokens,
            .started_ns = s->started_ns,
            .flags = (s->warmup ? STORE_WARMUP : 0u) | (s->outlier ? STORE_OUTLIER : 0u) |
                     (s->cause ? STORE_REPEATED : 0u),
            .cause = s->cause,
        };
    }
    bench_test_name(&r->test, c->names[0]);
    c->metrics[c->n_metrics++] = (struct store_metric){.name = c->names[0],
                                                       .unit = "ns/token",
                                                       .limit = isnan(limit) ? 0 : limit,
                                                       .test_json = c->test_json,
                                                       .samples = c->times,
                                                       .n_samples = r->n_samples};
}

static enum sol_status fill(struct contents *c, const struct bench_report *report,
                            const struct bench_result *r)
{
    const struct bench_test *t = &r->test;
    c->times = calloc(r->n_samples + 1, sizeof *c->times);
    c->kernels = calloc((size_t)r->n_kernels + 1, sizeof *c->kernels);
    if (!c->times || !c->kernels) return status_set(SOL_E_MEMORY, "no memory for the record");
    SOL_TRY(store_json_text(json_pack("{s:I, s:I, s:I, s:I, s:i, s:s, s:b}", "n_prompt",
                                      (json_int_t)t->n_prompt, "n_gen", (json_int_t)t->n_gen,
                                      "n_depth", (json_int_t)t->n_depth, "n_parallel",
                                      (json_int_t)t->n_parallel, "n_threads", r->threads, "stopped",
                                      stop_reason_name(r->stopped), "proved", r->proved),
                            &c->test_json));
    add_times(c, report, r);
    add_single(c, c->names[0], "step p50", "ns", bench_step_ns(r, 0.5));
    add_single(c, c->names[0], "step p90", "ns", bench_step_ns(r, 0.9));
    add_single(c, c->names[0], "step p99", "ns", bench_step_ns(r, 0.99));
    add_single(c, c->names[0], "peak memory", "bytes",
               (double)(r->memory_device_peak ? r->memory_device_peak : r->memory_peak));
    add_single(c, c->names[0], "energy", "J/token", bench_joules_per_token(r));
    for (int i = 0; i < r->n_kernels; i++)
        c->kernels[i] = kernel_of(report, r, &r->kernels[i], c->names[0]);
    return SOL_OK;
}

enum sol_status bench_store_result(struct store *store, const struct bench_report *report,
                                   const struct bench_result *r)
{
    struct contents c = {.n_metrics = 0};
    enum sol_status status = fill(&c, report, r);
    struct store_batch batch = {.metrics = c.metrics,
                                .n_metrics = c.n_metrics,
                                .kernels = c.kernels,
                                .n_kernels = (size_t)r->n_kernels};
    if (status == SOL_OK) status = store_run_add(store, report->run, &batch);
    free(c.times);
    free(c.kernels);
    free(c.test_json);
    return status;
}

enum sol_status bench_store_finish(struct store *store, const struct bench_report *report,
                                   const char *partial_reason)
{
    json_t *records = json_array();
    char *payload;
    const char *invalid = NULL;
    for (size_t i = 0; i < report->n_results; i++) {
        json_array_append_new(records, bench_record_json(report, &report->results[i]));
        if (!invalid) invalid = bench_invalid(report, &report->results[i]);
    }
    SOL_TRY(store_json_text(json_pack("{s:o}", "records", records), &payload));
    enum store_state state = invalid ? STORE_INVALID : partial_reason ? STORE_PARTIAL : STORE_OK;
    enum sol_status status =
        store_run_finish(store, report->run, state, invalid ? invalid : partial_reason, payload);
    free(payload);
    return status;
}
