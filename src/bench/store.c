#include "bench/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "bench/figures.h"
#include "bench/json.h"
#include "store/environment.h"
#include "store/store_json.h"

enum { NAME_SIZE = 120, OWN_METRICS = 6, NOISE_SIZE = 400 };

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

static const char *const categories[][2] = {
    {"attention", "attention"},
    {"attn_in", "attention"},
    {"attn_out", "attention"},
    {"attn_add", "attention"},
    {"attn_route", "moe"},
    {"gemm", "matmul"},
    {"grouped_gemm", "matmul"},
    {"head", "matmul"},
    {"moe_up", "moe"},
    {"moe_down", "moe"},
    {"route", "moe"},
    {"own_experts", "moe"},
    {"combine", "moe"},
    {"swiglu", "elementwise"},
    {"silu_mul", "elementwise"},
    {"add", "elementwise"},
    {"rmsnorm", "norm"},
    {"rope", "rope"},
    {"kv_write", "copy"},
    {"embed", "copy"},
    {"join_columns", "copy"},
    {"moe", "moe"},
    {"attn_moe", "moe"},
    /* training */
    {"matmul", "matmul"},
    {"fp8_matmul", "matmul"},
    {"grouped_matmul", "matmul"},
    {"grouped_wgrad", "matmul"},
    {"self_attention", "attention"},
    {"self_attention_backward", "attention"},
    {"add_rmsnorm", "norm"},
    {"rmsnorm_backward", "norm"},
    {"rotary_norm", "rope"},
    {"rotary_norm_backward", "rope"},
    {"relu2", "elementwise"},
    {"dropout", "elementwise"},
    {"relu2_backward", "elementwise"},
    {"relu2_fp8", "elementwise"},
    {"swiglu_backward", "elementwise"},
    {"axpby", "elementwise"},
    {"add_axpby", "elementwise"},
    {"axpby_backward", "elementwise"},
    {"add_bias", "elementwise"},
    {"bias_backward", "elementwise"},
    {"route_backward", "moe"},
    {"combine_backward", "moe"},
    {"gather_rows", "moe"},
    {"gather_rows_backward", "moe"},
    {"gated_embed", "embedding"},
    {"gated_embed_backward", "embedding"},
    {"embed_backward", "embedding"},
    {"smear", "embedding"},
    {"smear_backward", "embedding"},
    {"cross_entropy", "loss"},
    {"cross_entropy_block", "loss"},
    {"cross_entropy_block_backward", "loss"},
    {"linear_cross_entropy", "loss"},
    {"softcap", "loss"},
    {"weighted_sum", "loss"},
    {"adamw", "optimizer"},
    {"muon", "optimizer"},
    {"muon_prepare", "optimizer"},
    {"muon_apply", "optimizer"},
    {"sum_squares", "optimizer"},
    {"clip", "optimizer"},
    {"convert", "copy"},
    {"quantise", "quantize"},
    {"delayed_scale", "quantize"},
    {"pack_weights", "quantize"},
    {"pack_scaled", "quantize"},
    {"fill", "copy"},
    {"all_reduce", "communication"},
    {"all_reduce_add", "communication"},
    {"reduce_scatter", "communication"},
    {"all_gather", "communication"},
    {"send_recv", "communication"},
};

const char *bench_category_of(const char *op)
{
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strcmp(op, categories[i][0]) == 0) return categories[i][1];
    return "other";
}

static struct store_kernel kernel_of(const struct bench_report *report,
                                     const struct bench_result *r, const struct bench_kernel *k,
                                     const char *metric)
{
    bool decode = strcmp(k->phase, "generation") == 0;
    const struct bench_test *t = &r->test;
    double tokens = (double)((decode ? t->n_gen : t->n_prompt) * t->n_parallel);
    double steps = (double)k->ran / k->calls; /* each of which has `calls` calls on average */
    return (struct store_kernel){
        .metric = metric,
        .phase = decode ? "decode" : "prefill",
        .layer = -1,
        .op = k->op->name,
        .variant = k->variant,
        .category = bench_category_of(k->op->name),
        .numerics = op_numerics_name(k->numerics),
        .calls = k->ran,
        .expected = k->expected,
        .calls_per_token = (double)k->ran / (tokens * (double)r->n_own),
        .total_ns = k->seconds > 0 ? 1e9 * k->seconds * steps : (double)NAN,
        .bytes = k->cost.bytes * steps,
        .flops = k->cost.flops * steps,
        .limit_ns = bench_kernel_limit_ns(report->ceiling, k) * steps,
    };
}

/* ---- metrics ---- */

/* Lists that a batch points into. */
struct contents {
    struct store_sample *times, *joules, single[OWN_METRICS];
    struct store_metric metrics[OWN_METRICS];
    char names[OWN_METRICS][NAME_SIZE];
    size_t n_metrics;
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

static void add_times(struct contents *c, const struct bench_result *r)
{
    double tokens = (double)r->tokens;
    for (size_t i = 0; i < r->n_samples; i++) {
        const struct sample *s = &r->samples[i];
        c->times[i] = (struct store_sample){
            .value = s->ns / tokens,
            .started_ns = s->started_ns,
            .flags = (s->warmup ? STORE_WARMUP : 0u) | (s->outlier ? STORE_OUTLIER : 0u) |
                     (s->cause ? STORE_REPEATED : 0u),
            .process = s->start,
            .cause = s->cause,
        };
    }
    bench_test_name(&r->test, c->names[0]);
    c->metrics[c->n_metrics++] = (struct store_metric){.name = c->names[0],
                                                       .unit = "ns/token",
                                                       .test_json = c->test_json,
                                                       .samples = c->times,
                                                       .n_samples = r->n_samples};
}

/* Of the repetitions after which it was known. */
static void add_energy(struct contents *c, const struct bench_result *r)
{
    size_t n = 0, i = c->n_metrics;
    for (size_t j = 0; j < r->n_counted; j++) {
        const struct sample *s = &bench_counted(r)[j];
        if (isnan(s->joules)) continue;
        c->joules[n++] = (struct store_sample){.value = s->joules / (double)r->tokens,
                                               .started_ns = s->started_ns,
                                               .process = s->start};
    }
    if (n == 0) return;
    snprintf(c->names[i], NAME_SIZE, "%s: energy", c->names[0]);
    c->metrics[c->n_metrics++] = (struct store_metric){.name = c->names[i],
                                                       .unit = "J/token",
                                                       .samples = c->joules,
                                                       .n_samples = n,
                                                       .test_json = c->test_json};
}

static enum sol_status fill(struct contents *c, const struct bench_result *r)
{
    const struct bench_test *t = &r->test;
    c->times = calloc(r->n_samples + 1, sizeof *c->times);
    c->joules = calloc(r->n_samples + 1, sizeof *c->joules);
    if (!c->times || !c->joules) return status_set(SOL_E_MEMORY, "no memory for the record");
    SOL_TRY(store_json_text(json_pack("{s:I, s:I, s:I, s:I, s:i, s:s, s:b}", "n_prompt",
                                      (json_int_t)t->n_prompt, "n_gen", (json_int_t)t->n_gen,
                                      "n_depth", (json_int_t)t->n_depth, "n_parallel",
                                      (json_int_t)t->n_parallel, "n_threads", r->threads, "stopped",
                                      stop_reason_name(r->stopped), "proved", r->proved),
                            &c->test_json));
    add_times(c, r);
    add_single(c, c->names[0], "step p50", "ns", bench_step_ns(r, 0.5));
    add_single(c, c->names[0], "step p90", "ns", bench_step_ns(r, 0.9));
    add_single(c, c->names[0], "step p99", "ns", bench_step_ns(r, 0.99));
    add_single(c, c->names[0], "peak memory", "bytes",
               (double)(r->memory_device_peak ? r->memory_device_peak : r->memory_peak));
    add_energy(c, r);
    return SOL_OK;
}

enum sol_status bench_store_result(struct store *store, const struct bench_report *report,
                                   const struct bench_result *r)
{
    struct contents c = {.n_metrics = 0};
    enum sol_status status = fill(&c, r);
    struct store_batch batch = {.metrics = c.metrics, .n_metrics = c.n_metrics};
    if (status == SOL_OK) status = store_run_add(store, report->run, &batch);
    free(c.times);
    free(c.joules);
    free(c.test_json);
    return status;
}

/* What needs the limits, which are known at the end: those of the test, and its kernels. */
static enum sol_status add_limits(struct store *store, const struct bench_report *report,
                                  const struct bench_result *r)
{
    char name[NAME_SIZE];
    double limit = bench_speed(report->ceiling, r).limit;
    struct store_metric metric = {.name = bench_test_name(&r->test, name),
                                  .unit = "ns/token",
                                  .limit = isnan(limit) ? 0 : limit};
    struct store_kernel *kernels = calloc((size_t)r->n_kernels + 1, sizeof *kernels);
    if (!kernels) return status_set(SOL_E_MEMORY, "no memory for the record");
    for (int i = 0; i < r->n_kernels; i++) kernels[i] = kernel_of(report, r, &r->kernels[i], name);
    enum sol_status status =
        store_run_add(store, report->run,
                      &(struct store_batch){.metrics = &metric,
                                            .n_metrics = 1,
                                            .kernels = kernels,
                                            .n_kernels = (size_t)r->n_kernels});
    free(kernels);
    return status;
}

/* "tg32: other programs kept 1.2 cores busy; pp512: ..." */
static void noise_of(const struct bench_report *report, char text[NOISE_SIZE])
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < report->n_results && at + 1 < NOISE_SIZE; i++) {
        char name[80], noise[160];
        if (!*bench_noise(&report->results[i], noise)) continue;
        at += (size_t)snprintf(text + at, NOISE_SIZE - at, "%s%s: %s", at ? "; " : "",
                               bench_test_name(&report->results[i].test, name), noise);
    }
}

enum sol_status bench_store_finish(struct store *store, const struct bench_report *report,
                                   const char *partial_reason)
{
    json_t *records = json_array();
    char *payload, noise[NOISE_SIZE];
    const char *invalid = NULL;
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < report->n_results; i++) {
        const struct bench_result *r = &report->results[i];
        json_array_append_new(records, bench_record_json(report, r));
        if (!invalid) invalid = bench_invalid(report, r);
        if (status == SOL_OK && r->n_counted) status = add_limits(store, report, r);
    }
    noise_of(report, noise);
    if (status == SOL_OK && *noise) status = store_run_noise(store, report->run, noise);
    if (status != SOL_OK) {
        json_decref(records);
        return status;
    }
    SOL_TRY(store_json_text(json_pack("{s:o}", "records", records), &payload));
    enum store_state state = invalid ? STORE_INVALID : partial_reason ? STORE_PARTIAL : STORE_OK;
    status =
        store_run_finish(store, report->run, state, invalid ? invalid : partial_reason, payload);
    free(payload);
    return status;
}
