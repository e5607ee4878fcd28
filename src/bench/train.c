/* See train.h. */
#include "bench/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "bench/device.h"
#include "bench/store.h"
#include "gpu/device.h"
#include "store/environment.h"
#include "trace/expected.h"

static const double unknown = NAN;

/* ---- memory ---- */

int train_memory_lines(const struct train_report *r,
                       struct train_memory_line lines[TRAIN_MEMORY_LINES])
{
    enum { PROBE = TRAIN_MEMORY_LINES - 2 };
    struct trainer_memory m;
    trainer_memory(r->trainer, &m);
    const struct train_memory_line all[TRAIN_MEMORY_LINES] = {
        {"weights", m.weights},
        {"gradients", m.gradients},
        {"optimizer", m.optimizer},
        {"activations", m.activations},
        {"scratch", m.scratch},
        [PROBE] = {"samples, CORE", r->probe},
        {"all", trainer_memory_total(&m) + r->probe},
    };
    int n = 0;
    for (int i = 0; i < TRAIN_MEMORY_LINES; i++)
        if (i != PROBE || r->probe) lines[n++] = all[i];
    return n;
}

size_t train_peak_bytes(const struct gpu *gpu)
{
    return gpu ? gpu_memory_peak((struct gpu *)(uintptr_t)gpu) : memory_peak_rss();
}

/* ---- speed ---- */

/* Of the device's data sheet, where there is one for it: flops a second of these products. */
static double sheet_peak(const struct gpu *gpu, bool bf16)
{
    double peak = unknown;
    size_t index;
    json_t *entry, *list = gpu ? device_datasheets() : NULL;
    json_array_foreach(list, index, entry)
    {
        const char *match = json_string_value(json_object_get(entry, "match"));
        json_t *rates = json_object_get(entry, "tflops");
        const double rate = json_number_value(json_object_get(rates, bf16 ? "bf16" : "f32"));
        if (match && strstr(gpu_info(gpu)->name, match) && rate > 0) peak = 1e12 * rate;
    }
    json_decref(list);
    return peak;
}

int train_report_ranks(const struct train_report *r)
{
    return r->trainer ? trainer_ranks(r->trainer) : 1;
}

struct train_speed train_report_speed(const struct train_report *r)
{
    const struct figure token_ns = figure_scaled(&r->result.step_ns, 1 / (double)r->result.tokens);
    const int ranks = train_report_ranks(r);
    const double peak = ceiling_flop_rate(r->ceiling, r->bf16 ? NUMERICS_BF16 : NUMERICS_EXACT);
    struct train_speed s = {.per_s = figure_per_second(&token_ns),
                            .peak = ranks * (peak > 0 ? peak : unknown),
                            .peak_of = r->bf16 ? "bf16" : "f32",
                            .sheet = ranks * sheet_peak(r->gpu, r->bf16)};
    s.flops = r->recipe->flops_per_token * s.per_s.value;
    s.causal_flops = r->recipe->causal_flops_per_token * s.per_s.value;
    s.mfu = s.flops / s.peak;
    s.causal_mfu = s.causal_flops / s.peak;
    s.sheet_mfu = s.flops / s.sheet;
    s.limit_ns = 1e9 * r->recipe->causal_flops_per_token / s.peak;
    return s;
}

/* ---- whether it counts ---- */

static bool differ(const struct train_kernels *k)
{
    return k->plan >= 0 && k->launched >= 0 && k->plan != k->launched;
}

const char *train_invalid(const struct train_report *r, char text[TRAIN_REASON])
{
    const struct train_bench_result *b = &r->result;
    const int64_t surplus = train_op_times_surplus(&b->ops);
    const double preparing = train_op_times_preparing(&b->ops);
    const struct train_kernels *wrong = differ(&b->micro)    ? &b->micro
                                        : differ(&b->update) ? &b->update
                                                             : NULL;
    if (wrong)
        snprintf(text, TRAIN_REASON, "%s launched %lld kernels, the plan has %lld",
                 wrong == &b->micro ? "the micro-batches of a step" : "an update",
                 (long long)wrong->launched, (long long)wrong->plan);
    else if (surplus)
        snprintf(text, TRAIN_REASON, "a step made %lld calls %s than the plan has",
                 (long long)llabs(surplus), surplus > 0 ? "more" : "fewer");
    else if (preparing > trace_preparing_most)
        snprintf(text, TRAIN_REASON,
                 "quantising and transposing take %.1f %% of a step, more than %.0f %%",
                 100 * preparing, 100 * trace_preparing_most);
    else if (train_report_speed(r).causal_mfu > 1.05)
        snprintf(text, TRAIN_REASON, "%s",
                 "it is over 5 % faster than the measured limit; measure again on a quiet machine");
    else
        return NULL;
    return text;
}

/* ---- in the store ---- */

static const char *device_name(const struct train_report *r)
{
    return r->gpu ? gpu_info(r->gpu)->name : cpu_info()->model;
}

enum sol_status train_store_begin(struct store *store, const struct train_report *r,
                                  const struct train_store_begin *how, char id[STORE_ID_SIZE])
{
    char model[64], type[48];
    struct environment_gpu accelerator;
    struct train_memory_line lines[TRAIN_MEMORY_LINES];
    const struct train_recipe *recipe = r->recipe;
    snprintf(model, sizeof model, "%s%.20s d%lld", recipe->gpt_oss ? "gpt-oss " : "",
             recipe->flags.recipe, (long long)recipe->config.n_layers);
    snprintf(type, sizeof type, "%s %.3g M", recipe->gpt_oss ? "gpt-oss" : "gpt",
             1e-6 * (double)recipe->parameters);
    train_memory_lines(r, lines);
    struct store_run run = {.kind = how->kind,
                            .label = how->label,
                            .backend = r->gpu ? "cuda" : "cpu",
                            .device = device_name(r),
                            .model = model,
                            .model_type = type,
                            .model_size = (int64_t)lines[0].bytes,
                            .payload_json = how->payload_json};
    return environment_run_begin(store, &run, how->argc, how->argv,
                                 environment_of_gpu(r->gpu, &accelerator), id);
}

void train_add_single(struct train_singles *to, const char *metric, const char *what,
                      const char *unit, enum store_better better, double value)
{
    const size_t i = to->count;
    if (!isfinite(value) || i == TRAIN_SINGLES) return;
    snprintf(to->names[i], sizeof to->names[i], "%s: %s", metric, what);
    to->samples[i] = (struct store_sample){.value = value};
    to->metrics[to->count++] = (struct store_metric){.name = to->names[i],
                                                     .unit = unit,
                                                     .better = better,
                                                     .samples = &to->samples[i],
                                                     .n_samples = 1};
}

void train_add_speed(struct train_singles *to, const char *metric, const struct train_speed *s)
{
    train_add_single(to, metric, "MFU", "%", STORE_HIGHER, 100 * s->mfu);
    train_add_single(to, metric, "MFU, causal", "%", STORE_HIGHER, 100 * s->causal_mfu);
}

void train_add_memory(struct train_singles *to, const char *metric, const struct train_report *r)
{
    struct train_memory_line lines[TRAIN_MEMORY_LINES];
    const int n = train_memory_lines(r, lines);
    train_add_single(to, metric, "planned memory", "bytes", STORE_LOWER,
                     (double)lines[n - 1].bytes);
    train_add_single(to, metric, "peak memory", "bytes", STORE_LOWER,
                     (double)train_peak_bytes(r->gpu));
    if (r->device_bytes)
        train_add_single(to, metric, "device memory", "bytes", STORE_LOWER,
                         (double)r->device_bytes);
}

void train_kernels_of(const struct train_report *r, const struct train_op_times *times,
                      const char *metric, int64_t tokens, struct store_kernel *out)
{
    const double bytes = ceiling_read_rate(r->ceiling);
    for (int i = 0; i < times->count; i++) {
        const struct train_op_time *t = &times->ops[i];
        const double flops = ceiling_flop_rate(r->ceiling, t->numerics);
        const bool limited = bytes > 0 && flops > 0;
        out[i] = (struct store_kernel){
            .metric = metric,
            .phase = "step",
            .layer = -1,
            .op = t->op,
            .variant = t->variant,
            .category = bench_category_of(t->op),
            .numerics = op_numerics_name(t->numerics),
            .calls = t->runs,
            .expected = t->calls,
            .calls_per_token = (double)t->runs / (double)tokens,
            .total_ns = t->ns,
            .bytes = t->bytes,
            .flops = t->flops,
            .limit_ns = limited ? 1e9 * fmax(t->bytes / bytes, t->flops / flops) : unknown,
        };
    }
}

/* A sample a step, each divided by `per`. */
struct steps {
    struct store_sample *samples;
    struct store_metric metric;
};

static enum sol_status make_steps(const struct train_report *r, const double *values, double per,
                                  struct steps *out)
{
    const size_t n = (size_t)r->result.steps;
    out->samples = calloc(n, sizeof *out->samples);
    if (!out->samples) return status_set(SOL_E_MEMORY, "no memory for the record");
    for (size_t i = 0; i < n; i++) {
        const struct sample *s = &r->result.samples[i];
        out->samples[i] = (struct store_sample){.value = (values ? values[i] : s->ns) / per,
                                                .started_ns = s->started_ns,
                                                .flags = s->outlier ? STORE_OUTLIER : 0u};
    }
    out->metric.samples = out->samples;
    out->metric.n_samples = n;
    return SOL_OK;
}

static enum sol_status add_all(struct store *store, const char *id, const struct train_report *r,
                               const char *metric)
{
    const struct train_speed speed = train_report_speed(r);
    struct train_singles singles = {.count = 0};
    struct store_metric metrics[3 + TRAIN_SINGLES];
    char micro_name[80], update_name[80];
    snprintf(micro_name, sizeof micro_name, "%s: micro-batch", metric);
    snprintf(update_name, sizeof update_name, "%s: update", metric);
    struct steps step = {.metric = {.name = metric,
                                    .unit = "ns/token",
                                    .limit = isfinite(speed.limit_ns) ? speed.limit_ns : 0}},
                 micro = {.metric = {.name = micro_name, .unit = "ns"}},
                 update = {.metric = {.name = update_name, .unit = "ns"}};
    struct store_kernel *kernels = calloc(TRAIN_OPS_MAX, sizeof *kernels);
    enum sol_status status =
        kernels ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for the record");
    if (status == SOL_OK) status = make_steps(r, NULL, (double)r->result.tokens, &step);
    if (status == SOL_OK) status = make_steps(r, r->result.micros, 1, &micro);
    if (status == SOL_OK) status = make_steps(r, r->result.updates, 1, &update);
    if (status == SOL_OK) {
        size_t n = 0;
        metrics[n++] = step.metric;
        metrics[n++] = micro.metric;
        if (r->updates) metrics[n++] = update.metric;
        train_add_speed(&singles, metric, &speed);
        train_add_memory(&singles, metric, r);
        train_add_single(&singles, metric, "quantising and transposing", "%", STORE_LOWER,
                         100 * train_op_times_preparing(&r->result.ops));
        for (size_t i = 0; i < singles.count; i++) metrics[n++] = singles.metrics[i];
        train_kernels_of(r, &r->result.ops, metric, r->result.tokens, kernels);
        status = store_run_add(store, id,
                               &(struct store_batch){.metrics = metrics,
                                                     .n_metrics = n,
                                                     .kernels = kernels,
                                                     .n_kernels = (size_t)r->result.ops.count});
    }
    free(kernels);
    free(step.samples);
    free(micro.samples);
    free(update.samples);
    return status;
}

enum sol_status train_store_bench(struct store *store, const char *id, const struct train_report *r,
                                  const char *payload)
{
    char text[TRAIN_REASON];
    const char *why = train_invalid(r, text), *noise = watch_cause(&r->watch);
    SOL_TRY(add_all(store, id, r, r->updates ? "train" : "forward and backward"));
    if (noise) SOL_TRY(store_run_noise(store, id, noise));
    return store_run_finish(store, id, why ? STORE_INVALID : STORE_OK, why, payload);
}
