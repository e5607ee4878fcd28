#include "support/report_pages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/step_trace.h"

static const double unknown = (double)NAN;
static const int64_t when = 1794000000LL * 1000000000;

static struct store_run run_of(const char *kind, const char *label, const char *env)
{
    return (struct store_run){.kind = kind,
                              .label = label,
                              .created_ns = when,
                              .environment = env,
                              .argv_json = "[\"bench\", \"-m\", \"gpt-oss-20b.gguf\"]",
                              .backend = "cuda",
                              .device = "NVIDIA H100 80GB HBM3",
                              .model = "gpt-oss-20b.gguf"};
}

/* ---- tests ---- */

/* Speed, percentiles of the step, memory, energy; with `counted`, kernels that were not timed. */
static enum sol_status add_test(struct store *store, const char *id, int tokens, int depth,
                                bool counted)
{
    static const struct {
        const char *what, *unit;
        double value;
    } sides[] = {{"step p50", "ns", 5.1e6},
                 {"step p90", "ns", 5.4e6},
                 {"step p99", "ns", 6.9e6},
                 {"peak memory", "bytes", 1.42e10}};
    enum { N = 9, SIDES = sizeof sides / sizeof *sides };
    struct store_sample speeds[N], joules[N], single[SIDES];
    struct store_metric metrics[SIDES + 2];
    char name[40], names[SIDES + 1][80], test[120];
    snprintf(name, sizeof name, depth ? "tg%d @ d%d" : "tg%d", tokens, depth);
    snprintf(test, sizeof test,
             "{\"n_prompt\": 0, \"n_gen\": %d, \"n_depth\": %d, \"n_parallel\": 1}", tokens, depth);
    for (int i = 0; i < N; i++) {
        speeds[i] = (struct store_sample){.value = 5.1e6 + 1e2 * depth + 4e4 * (i * 7 % 9)};
        joules[i] = (struct store_sample){.value = 2.1 + 0.01 * (i * 5 % 9)};
    }
    metrics[0] = (struct store_metric){name, "ns/token", STORE_LOWER, 3.4e6, test, speeds, N};
    for (int i = 0; i < SIDES; i++) {
        single[i] = (struct store_sample){.value = sides[i].value};
        snprintf(names[i], sizeof names[i], "%s: %s", name, sides[i].what);
        metrics[i + 1] =
            (struct store_metric){names[i], sides[i].unit, STORE_LOWER, 0, test, &single[i], 1};
    }
    snprintf(names[SIDES], sizeof names[SIDES], "%s: energy", name);
    metrics[SIDES + 1] =
        (struct store_metric){names[SIDES], "J/token", STORE_LOWER, 0, test, joules, N};
    struct store_kernel kernel = {.metric = name,
                                  .phase = "decode",
                                  .layer = -1,
                                  .op = "moe_up",
                                  .variant = "moe_up_bf16_mxfp4_sm90",
                                  .category = "moe",
                                  .calls = 24 * tokens,
                                  .expected = 24 * tokens,
                                  .calls_per_token = 24,
                                  .total_ns = unknown,
                                  .bytes = 1e9,
                                  .flops = 1e10,
                                  .limit_ns = 1e6};
    return store_run_add(
        store, id, &(struct store_batch){metrics, SIDES + 2, &kernel, counted ? 1 : 0, NULL, 0});
}

static enum sol_status add_tests(struct store *store, const char *env, const char *label, int n,
                                 bool counted)
{
    char id[STORE_ID_SIZE];
    struct store_run run = run_of("bench", label, env);
    SOL_TRY(store_run_begin(store, &run, id));
    for (int i = 0; i < n; i++) SOL_TRY(add_test(store, id, 8 << (i % 5), 4096 * (i / 5), counted));
    return store_run_finish(store, id, STORE_OK, NULL, NULL);
}

/* ---- traces ---- */

static enum sol_status keep_trace(struct store *store, const char *id, const char *odd)
{
    size_t size;
    unsigned char *data = step_trace_make(odd, &size);
    if (!data) return SOL_E_MEMORY;
    enum sol_status status =
        store_artifact_write(store, id, "trace", "11-900.soltrace", data, size);
    free(data);
    return status;
}

/* The names differ only before their arguments. */
static void long_name(char *name, size_t size, int number)
{
    size_t n = (size_t)snprintf(name, size, "void cutlass::device_kernel<");
    while (n + 40 < size) n += (size_t)snprintf(name + n, size - n, "cute::C<128>, ");
    snprintf(name + n, size - n, "Tile<%d>>(P)", number);
}

static enum sol_status add_long(struct store *store, const char *env)
{
    enum { KERNELS = 24 };
    static char names[KERNELS][2001];
    struct store_kernel kernels[KERNELS];
    struct store_sample steps[12];
    struct store_metric metric = {"step", "ns", STORE_LOWER, 0, NULL, steps, 12};
    char id[STORE_ID_SIZE];
    struct store_run run = run_of("profile", "long", env);
    SOL_TRY(store_run_begin(store, &run, id));
    for (int i = 0; i < 12; i++)
        steps[i] = (struct store_sample){.value = 1.2e6 + 5e3 * (i * 5 % 12)};
    for (int i = 0; i < KERNELS; i++) {
        long_name(names[i], sizeof names[i], i);
        kernels[i] = (struct store_kernel){.metric = "step",
                                           .layer = -1,
                                           .name = names[i],
                                           .category = i % 3 ? "matmul" : "elementwise",
                                           .calls = 12 * 24,
                                           .expected = -1,
                                           .calls_per_token = unknown,
                                           .total_ns = 12 * 4e4 / (1 + 0.2 * i),
                                           .bytes = 12 * 1e7,
                                           .flops = 12 * 1e9 * (i + 1),
                                           .limit_ns = unknown};
    }
    SOL_TRY(store_run_add(store, id, &(struct store_batch){&metric, 1, kernels, KERNELS, NULL, 0}));
    SOL_TRY(keep_trace(store, id, names[0]));
    return store_run_finish(store, id, STORE_OK, NULL, NULL);
}

/* ---- layers ---- */

enum { LAYERS = 24 };

static enum sol_status add_layers_of(struct store *store, const char *id, const char *metric,
                                     const char *phase, int depth, int tokens)
{
    static const struct {
        const char *name, *op, *category;
        double ns, slope;
    } ops[] = {
        {"attn_in/rmsnorm", "rmsnorm", "norm", 900, 0},
        {"attn_in/gemm", "gemm", "matmul", 9000, 0},
        {"attn_in/rope", "rope", "rope", 700, 0},
        {"attention", "attention", "attention", 4000, 3},
        {"attn_out/gemm", "gemm", "matmul", 6200, 0},
        {"moe/gemm", "gemm", "matmul", 41000, 0},
        {"moe/swiglu", "swiglu", "elementwise", 1500, 0},
        {"head/gemm", "gemm", "matmul", 90000, 0},
    };
    enum { OPS = sizeof ops / sizeof *ops };
    struct store_kernel kernels[LAYERS * OPS];
    size_t n = 0;
    double sum = 0;
    for (int layer = 0; layer < LAYERS; layer++)
        for (int j = 0; j < OPS; j++) {
            bool head = j == OPS - 1;
            if (head && layer) continue;
            double window = layer % 2 ? 128 : depth; /* of each second layer a sliding one */
            double ns = ops[j].ns * (1 + 0.01 * layer) + ops[j].slope * window;
            sum += ns;
            kernels[n++] = (struct store_kernel){.metric = metric,
                                                 .phase = phase,
                                                 .layer = head ? -1 : layer,
                                                 .op = ops[j].op,
                                                 .variant = "f32_avx512",
                                                 .name = ops[j].name,
                                                 .category = ops[j].category,
                                                 .numerics = "exact",
                                                 .calls = tokens,
                                                 .expected = tokens,
                                                 .calls_per_token = 1,
                                                 .total_ns = ns * tokens,
                                                 .bytes = 1e5 * tokens,
                                                 .flops = 2e5 * tokens,
                                                 .limit_ns = 0.3 * ns * tokens};
        }
    struct store_sample samples[7];
    for (int i = 0; i < 7; i++)
        samples[i] = (struct store_sample){.value = sum * (1.05 + 0.002 * (i * 3 % 7))};
    struct store_metric speed = {metric, "ns/token", STORE_LOWER, 0, NULL, samples, 7};
    return store_run_add(store, id, &(struct store_batch){&speed, 1, kernels, n, NULL, 0});
}

/* Seven pieces for each of two phases, at both depths. */
static enum sol_status add_advice(struct store *store, const char *id)
{
    static const char *const metrics[] = {"tg16", "tg16 @ d4096", "pp64", "pp64 @ d4096"};
    static const char *const kernels[] = {"moe/gemm",     "attention",     "attn_in/gemm",
                                          "attn_in/rope", "attn_out/gemm", "moe/swiglu",
                                          "head/gemm"};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 7; j++) {
            char subject[80];
            snprintf(subject, sizeof subject, "%s: %s f32_avx512", metrics[i], kernels[j]);
            struct store_advice a = {"distance",
                                     subject,
                                     "It is far from its limit.",
                                     "{\"share\": 0.2, \"total_ns\": 41000}",
                                     1e6,
                                     1e5 / (j + 1),
                                     5e4 / (j + 1)};
            SOL_TRY(store_run_add(store, id, &(struct store_batch){.advice = &a, .n_advice = 1}));
        }
    return SOL_OK;
}

static enum sol_status add_layers(struct store *store, const char *env)
{
    char id[STORE_ID_SIZE];
    struct store_run run = run_of("profile", "layers", env);
    SOL_TRY(store_run_begin(store, &run, id));
    SOL_TRY(add_layers_of(store, id, "pp64", "prefill", 0, 64));
    SOL_TRY(add_layers_of(store, id, "tg16", "decode", 0, 16));
    SOL_TRY(add_layers_of(store, id, "pp64 @ d4096", "prefill", 4096, 64));
    SOL_TRY(add_layers_of(store, id, "tg16 @ d4096", "decode", 4096, 16));
    SOL_TRY(add_advice(store, id));
    return store_run_finish(
        store, id, STORE_OK, NULL,
        "{\"records\": [{\"metric\": \"pp64\", \"n_depth\": 0}, {\"metric\": \"tg16\", "
        "\"n_depth\": 0}, {\"metric\": \"pp64 @ d4096\", \"n_depth\": 4096}, {\"metric\": \"tg16 "
        "@ d4096\", \"n_depth\": 4096}]}");
}

/* ---- what nobody should send ---- */

#define EVIL "</td></svg><script>alert(1)</script>\"'&amp;<b onx=1>\x01\x1b[31m\xff\xe2\x80\xae"

static enum sol_status add_evil(struct store *store, const char *env)
{
    char id[STORE_ID_SIZE];
    struct store_run run = run_of("profile", "evil", env);
    struct store_kernel kernels[] = {
        {EVIL, EVIL, 0, EVIL, EVIL, EVIL, EVIL, EVIL, 3, 3, 1, 5e5, 1, 1, 1},
        {EVIL, EVIL, 2147483647, "|>x|", "|", "|", "<i>", "", 3, 3, 1, 1e300, 1, 1, 1},
        {EVIL, EVIL, 7, "x", "y", "z", "c", "n", 3, 3, unknown, -5, -1, -1, -1},
    };
    struct store_sample values[] = {{.value = 5}, {.value = 6}, {.value = 7}};
    struct store_metric metrics[] = {
        {EVIL, "ns/token", STORE_LOWER, 1, "{\"n_depth\": \"<\"}", values, 3},
        {EVIL ": |>" EVIL, EVIL, STORE_LOWER, 1, NULL, values, 3},
        {EVIL ": ", "bytes", STORE_LOWER, 1, NULL, values, 1},
    };
    struct store_advice advice[] = {
        {EVIL, EVIL ": " EVIL, EVIL, "{\"todo\": \"</p><hr>\", \"<u>\": [\"<a>\"]}", 1, 2, 3},
        {"", "", "", "[]", 0, unknown, INFINITY},
    };
    SOL_TRY(store_run_begin(store, &run, id));
    SOL_TRY(store_run_add(store, id, &(struct store_batch){metrics, 3, kernels, 3, advice, 2}));
    SOL_TRY(keep_trace(store, id, EVIL));
    return store_run_finish(
        store, id, STORE_OK, NULL,
        "{\"verdict\": \"<x>\", \"sentence\": \"<script>\", \"mode\": \"live\", \"next\": {\"a\": "
        "1}, \"metrics\": [{\"name\": \"</th>\", \"unit\": \"<\", \"ci95_percent\": [\"<\", "
        "1e308], "
        "\"p_holm\": \"x\", \"n_old\": -1e30, \"needed\": 1e300}, 7, null], \"blame\": [{\"test\": "
        "\"<\", \"parts\": [{\"op\": \"<script>\", \"old_variant\": \"<\", \"new_variant\": \">\", "
        "\"p\": 1e-9}, 3], \"gaps_ns\": \"<\", \"residual_ns\": 1e300}]}");
}

static enum sol_status add_labelled(struct store *store, const char *env)
{
    char id[STORE_ID_SIZE];
    struct store_run run = run_of("bench", REPORT_LABEL, env);
    SOL_TRY(store_run_begin(store, &run, id));
    SOL_TRY(add_test(store, id, 8, 0, false));
    SOL_TRY(store_run_noise(store, id, EVIL));
    return store_run_finish(store, id, STORE_OK, NULL, NULL);
}

enum sol_status report_pages_write(struct store *store, const char *environment)
{
    SOL_TRY(add_tests(store, environment, "one", 1, false));
    SOL_TRY(add_tests(store, environment, "fifty", 50, true));
    SOL_TRY(add_long(store, environment));
    SOL_TRY(add_layers(store, environment));
    SOL_TRY(add_labelled(store, environment));
    return add_evil(store, environment);
}
