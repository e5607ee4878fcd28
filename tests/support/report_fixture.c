#include "support/report_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"
#include "support/report_pages.h"
#include "support/step_trace.h"

static const double unknown = (double)NAN;
static const int64_t day_ns = 86400LL * 1000000000;
static const int64_t first_day = 1792800000LL * 1000000000; /* 2026-10-23 */

/* The same numbers on every machine. */
static uint32_t state;
static double noise(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 24) - 0.5;
}

static const char environment[] =
    "{\"host\": \"lab-7\", \"machine\": \"x86_64\", \"cpu\": \"AMD EPYC 9R14\", \"cores\": 8, "
    "\"memory_mib\": 63488, \"features\": [\"avx2\", \"fma\", \"avx512\", \"avx512_vnni\", "
    "\"avx512_bf16\"], \"governor\": \"performance\", \"max_mhz\": 3700, \"os\": \"Debian "
    "GNU/Linux 12\", "
    "\"kernel\": \"6.1.0-28-amd64\", \"sol\": \"0.1.0\", \"build\": \"gcc 12.2.0, Release\", "
    "\"commit\": "
    "\"4c3e5ee0b1f09c3a7d21c6f2a9b8e7d6c5b4a392\", \"dirty\": null, \"device\": null}";

static const char payload[] =
    "{\"records\": [{\"n_prompt\": 512, \"n_gen\": 0, \"n_depth\": 0, \"n_parallel\": 1, "
    "\"rating\": "
    "\"good\", \"rated_against\": {\"metric\": \"pp512\", \"baseline\": 90, \"good\": 110, "
    "\"excellent\": "
    "140, \"source\": \"targets\"}, \"limits\": {\"threads\": 8, \"memory_read_gb_s\": {\"best\": "
    "142.5}, "
    "\"cache_read_gb_s\": {\"best\": 410.2}, \"f32_gflop_s\": {\"best\": 820}, \"bf16_gflop_s\": "
    "{\"best\": "
    "2950}, \"i8_gflop_s\": {\"best\": 5400}}}, {\"n_prompt\": 0, \"n_gen\": 128, \"n_depth\": 0, "
    "\"n_parallel\": 1, \"rating\": \"baseline\", \"rated_against\": {\"baseline\": 30, \"good\": "
    "45, "
    "\"excellent\": 55}}]}";

/* ---- metrics ---- */

enum { SAMPLES = 14 };

static void fill_samples(struct store_sample *s, size_t n, double middle, double spread)
{
    for (size_t i = 0; i < n; i++) {
        s[i] = (struct store_sample){.value = middle * (1 + spread * noise()),
                                     .started_ns = first_day + (int64_t)i * 2000000000};
        if (i < 2) s[i].flags = STORE_WARMUP;
        if (i == 0) s[i].value = middle * 1.12;
    }
    if (n < SAMPLES) return;
    s[7].flags = STORE_OUTLIER;
    s[7].value = middle * (1 + 2.2 * spread);
    s[10].flags = STORE_REPEATED;
    s[10].cause = "another program took 1.3 cores";
    s[10].value = middle * (1 + 1.2 * spread);
}

static enum sol_status add_metric(struct store *store, const char *id, const char *name, double ns,
                                  double limit, double spread, int prompt, int gen, int depth)
{
    struct store_sample samples[SAMPLES];
    char test[160], memory[120];
    fill_samples(samples, SAMPLES, ns, spread);
    snprintf(test, sizeof test,
             "{\"n_prompt\": %d, \"n_gen\": %d, \"n_depth\": %d, \"n_parallel\": 1, \"stopped\": "
             "\"precision\"}",
             prompt, gen, depth);
    snprintf(memory, sizeof memory, "%s: peak memory", name);
    struct store_sample peak = {.value = 1.42e10};
    struct store_metric metrics[] = {
        {name, "ns/token", STORE_LOWER, limit, test, samples, SAMPLES},
        {memory, "bytes", STORE_LOWER, 0, NULL, &peak, 1},
    };
    return store_run_add(store, id, &(struct store_batch){.metrics = metrics, .n_metrics = 2});
}

/* ---- kernels ---- */

struct kernel_facts {
    const char *op, *variant, *category, *numerics;
    double us, efficiency, intensity; /* per token; part of the limit; flops per byte */
    int calls;                        /* per token */
};

/* Speeds follow from the limits in the payload: min(intensity x 142.5 GB/s, 5.4 TFLOP/s). */
static struct store_kernel kernel_of(const struct kernel_facts *f, const char *metric,
                                     const char *phase)
{
    const double tokens = 512;
    double ns = f->us * 1e3 * tokens, limit = ns * f->efficiency;
    double rate = fmin(f->intensity * 142.5, 5400);
    return (struct store_kernel){
        .metric = metric,
        .phase = phase,
        .layer = -1,
        .op = f->op,
        .variant = f->variant,
        .category = f->category,
        .numerics = f->numerics,
        .calls = (int64_t)(f->calls * tokens),
        .expected = (int64_t)(f->calls * tokens),
        .calls_per_token = f->calls,
        .total_ns = ns,
        .flops = f->intensity > 0 ? limit * rate : 0,
        .bytes = f->intensity > 0 ? limit * rate / f->intensity : limit * 142.5,
        .limit_ns = limit,
    };
}

static const struct kernel_facts decode[] = {
    {"moe_up", "moe_up_i8_avx512vnni", "moe", "i8", 9800, 0.81, 3.6, 24},
    {"moe_down", "moe_down_i8_avx512vnni", "moe", "i8", 5200, 0.78, 3.6, 24},
    {"head", "head_i8_avx512vnni", "matmul", "i8", 2900, 0.86, 2.1, 1},
    {"attn_in", "attn_in_i8_avx512vnni", "attention", "i8", 1500, 0.71, 2.0, 24},
    {"attn_out", "attn_out_i8_avx512vnni", "attention", "i8", 1350, 0.66, 2.0, 24},
    {"attention", "attention_avx512", "attention", "exact", 820, 0.34, 8.5, 24},
    {"route", "route_avx512", "moe", "exact", 160, 0.12, 0.5, 24},
    {"rmsnorm", "rmsnorm_avx512", "norm", "exact", 110, 0.3, 0.4, 49},
    {"embed", "reference", "copy", "exact", 12, 0.2, 0, 1},
};
static const struct kernel_facts prefill[] = {
    {"moe_up", "moe_up_i8_gemm_avx512vnni", "moe", "i8", 3900, 0.62, 210, 24},
    {"moe_down", "moe_down_i8_gemm_avx512vnni", "moe", "i8", 2100, 0.58, 190, 24},
    {"attn_in", "attn_in_i8_gemm_avx512vnni", "attention", "i8", 640, 0.52, 480, 24},
    {"attn_out", "attn_out_i8_gemm_avx512vnni", "attention", "i8", 560, 0.49, 480, 24},
    {"attention", "attention_avx512", "attention", "exact", 890, 0.11, 40, 24},
    {"swiglu", "swiglu_avx512", "elementwise", "exact", 120, 0.4, 0.9, 24},
    {"rmsnorm", "rmsnorm_avx512", "norm", "exact", 60, 0.5, 0.4, 49},
};

static enum sol_status add_kernels(struct store *store, const char *id, int wrong)
{
    struct store_kernel list[sizeof decode / sizeof *decode + sizeof prefill / sizeof *prefill];
    size_t n = 0;
    for (size_t i = 0; i < sizeof prefill / sizeof *prefill; i++)
        list[n++] = kernel_of(&prefill[i], "pp512", "prefill");
    for (size_t i = 0; i < sizeof decode / sizeof *decode; i++)
        list[n++] = kernel_of(&decode[i], "tg128", "decode");
    if (wrong) list[n - 3].calls = 0;
    return store_run_add(store, id, &(struct store_batch){.kernels = list, .n_kernels = n});
}

static enum sol_status add_advice(struct store *store, const char *id)
{
    const struct store_advice list[] = {
        {"occupancy", "attention, decode",
         "The softmax of the sliding window runs on a quarter of the threads: a step has 64 heads "
         "for 8 "
         "threads, yet the odd layers give each thread a whole sequence.",
         "{\"share\": 0.037, \"limit_percent\": 34, \"total_ns\": 820000, \"todo\": \"Split the "
         "key range of "
         "long sequences over the threads and merge the parts.\"}",
         22.6e6, 5.4e5, 2.7e5},
        {"unfused", "rmsnorm after attn_out",
         "Each layer writes its residual and reads it again to normalise it.",
         "{\"kernels\": 49, \"sum_ns\": 110000, \"share\": 0.0049, \"layers\": [0, 1, 2, 3]}",
         22.6e6, 1.1e5, 8.2e4},
        {"tail", "moe_up", NULL, NULL, 22.6e6, unknown, unknown},
    };
    return store_run_add(store, id, &(struct store_batch){.advice = list, .n_advice = 3});
}

/* ---- runs ---- */

static struct store_run base_run(const char *kind, const char *label, int64_t when, const char *env)
{
    return (struct store_run){.kind = kind,
                              .label = label,
                              .created_ns = when,
                              .environment = env,
                              .argv_json =
                                  "[\"bench\", \"-m\", \"gpt-oss-20b.gguf\", \"-p\", \"512\", "
                                  "\"-n\", \"128\", \"--label\", \"it's good\"]",
                              .cwd = "/home/me/gpt oss",
                              .backend = "cpu",
                              .device = "AMD EPYC 9R14",
                              .model = "gpt-oss-20b.gguf",
                              .model_type = "gpt-oss 20.9B",
                              .model_size = 12109565632};
}

static enum sol_status add_bench(struct store *store, const char *label, const char *env,
                                 bool wrong)
{
    char id[STORE_ID_SIZE];
    struct store_run run = base_run("bench", label, first_day + 29 * day_ns, env);
    SOL_TRY(store_run_begin(store, &run, id));
    SOL_TRY(add_metric(store, id, "pp512", 8.65e6, 4.9e6, 0.01, 512, 0, 0));
    SOL_TRY(add_metric(store, id, "tg128", 22.6e6, 16.2e6, 0.006, 0, 128, 0));
    SOL_TRY(add_metric(store, id, "tg128 @ d4096", 24.9e6, 17.1e6, 0.02, 0, 128, 4096));
    SOL_TRY(add_kernels(store, id, wrong));
    SOL_TRY(add_advice(store, id));
    SOL_TRY(store_artifact_write(store, id, "trace", "trace.json", "[]", 2));
    return store_run_finish(store, id, wrong ? STORE_INVALID : STORE_OK,
                            wrong ? "attn_out did not run in 512 of 512 steps" : NULL, payload);
}

static enum sol_status add_bare(struct store *store)
{
    char id[STORE_ID_SIZE];
    SOL_TRY(store_run_begin(
        store, &(struct store_run){.kind = "import", .label = "bare", .created_ns = first_day},
        id));
    return store_run_finish(store, id, STORE_PARTIAL, "interrupted", NULL);
}

static const char nasty[] = "</title><script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>";

static enum sol_status add_hostile(struct store *store)
{
    static char endless[4000];
    char id[STORE_ID_SIZE], env[STORE_HASH_SIZE];
    memset(endless, 'W', sizeof endless - 1);
    SOL_TRY(store_environment_add(
        store, "{\"<b>key\": \"</dd><script>\", \"deep\": {\"a\": {\"b\": 1}}, \"n\": null}", env));
    struct store_run run = {.kind = "bench",
                            .label = "hostile",
                            .created_ns = first_day,
                            .argv_json = "[\"bench\", \"</pre><script>\", \"a'b\", 7, null]",
                            .cwd = "/tmp/<x>\x01\xff",
                            .environment = env,
                            .device = endless,
                            .model = nasty};
    SOL_TRY(store_run_begin(store, &run, id));
    struct store_sample samples[] = {
        {.value = 1e300}, {.value = 1e-300}, {.value = 5}, {.value = 5}};
    struct store_sample zero[] = {{.value = 0}, {.value = 0}, {.value = -4}};
    struct store_metric metrics[] = {
        {nasty, "ns/token", STORE_LOWER, 1e-5, "[]", samples, 4},
        {endless, "<unit>", STORE_HIGHER, 1, "7", samples, 4},
        {"zero", "ns/token", STORE_LOWER, 0, NULL, zero, 3},
        {"zeroes", "things", STORE_LOWER, 0, NULL, zero, 3},
        {"same", "ns/token", STORE_LOWER, 5, NULL, samples + 2, 2},
    };
    struct store_kernel kernels[] = {
        {.metric = nasty,
         .phase = nasty,
         .layer = -1,
         .op = nasty,
         .variant = endless,
         .category = endless,
         .calls = 3,
         .expected = 9,
         .calls_per_token = 1,
         .total_ns = 1e300,
         .bytes = 1e-300,
         .flops = 1e300,
         .limit_ns = 1e-300},
        {.metric = nasty,
         .phase = nasty,
         .layer = -1,
         .name = endless,
         .category = "<i>",
         .calls = 1,
         .expected = -1,
         .calls_per_token = 1,
         .total_ns = 4,
         .bytes = 4,
         .flops = 4,
         .limit_ns = 9},
        {.layer = 2,
         .calls = -1,
         .expected = -1,
         .calls_per_token = unknown,
         .total_ns = unknown,
         .bytes = unknown,
         .flops = unknown,
         .limit_ns = unknown},
    };
    struct store_advice advice = {nasty, endless, nasty, "{\"<u>\": \"</dl>\", \"todo\": \"<hr>\"}",
                                  0,     5,       9};
    SOL_TRY(store_run_add(store, id, &(struct store_batch){metrics, 5, kernels, 3, &advice, 1}));
    return store_run_finish(
        store, id, STORE_PARTIAL, nasty,
        "{\"records\": 7, \"limits\": {\"<s>_gb_s\": 1, \"b_gflop_s\": \"x\"}, "
        "\"device_time\": {\"span_ns\": \"<\"}, \"gap_list\": [3, {\"ns\": 4}]}");
}

static enum sol_status add_large(struct store *store, const char *env)
{
    char id[STORE_ID_SIZE], name[80], op[80];
    struct store_run run = base_run("bench", "large", first_day + day_ns, env);
    SOL_TRY(store_run_begin(store, &run, id));
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, i % 2 ? "tg%d @ d%d" : "pp%d @ d%d", 32 << (i % 5),
                 1024 * (i / 10));
        snprintf(op, sizeof op, "%s x%d", name, i);
        SOL_TRY(add_metric(store, id, op, 1e6 * (i + 2), 8e5 * (i + 2), 0.02, 1, 1, i));
    }
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, i % 2 ? "tg64 @ d0 x1" : "pp32 @ d0 x0");
        snprintf(op, sizeof op, "void kernel_number_%d<float, 128, %d>(float const*, int)", i,
                 i % 7);
        struct store_kernel k = {.metric = name,
                                 .phase = i % 2 ? "decode" : "prefill",
                                 .layer = -1,
                                 .name = op,
                                 .category = i % 3 ? "matmul" : "elementwise",
                                 .calls = 10,
                                 .expected = 10,
                                 .calls_per_token = 1,
                                 .total_ns = 2e4 * (1 + noise()),
                                 .bytes = 1e4 * (1 + noise()),
                                 .flops = 1e5 * (1 + noise()),
                                 .limit_ns = 5e3};
        SOL_TRY(store_run_add(store, id, &(struct store_batch){.kernels = &k, .n_kernels = 1}));
    }
    return store_run_finish(store, id, STORE_OK, NULL, payload);
}

static enum sol_status add_trace(struct store *store, const char *env)
{
    static const struct {
        const char *name, *category;
        double us;
        int calls;
    } facts[] = {
        {"moe_gemm_bf16_mxfp4_128x64_sm90", "moe", 610, 48},
        {"void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>>(Flash_fwd_params)",
         "attention", 240, 24},
        {"nvjet_tst_128x64_64x8_1x2_h_bz_TNN", "matmul", 310, 49},
        {"rmsnorm_bf16_sm90", "norm", 55, 49},
        {"void at::native::elementwise_kernel<128, 4, lambda(int)>(int, lambda(int))",
         "elementwise", 88, 96},
        {"Memcpy DtoD", "copy", 12, 24},
    };
    char id[STORE_ID_SIZE];
    struct store_run run = base_run("profile", "trace", first_day + 28 * day_ns, env);
    struct store_sample steps[40];
    run.backend = "cuda";
    run.device = "NVIDIA H100 80GB HBM3";
    SOL_TRY(store_run_begin(store, &run, id));
    fill_samples(steps, 40, 1.62e6, 0.01);
    for (size_t i = 0; i < 40; i++) steps[i].flags = 0;
    struct store_metric metric = {"step", "ns", STORE_LOWER, 0, NULL, steps, 40};
    SOL_TRY(store_run_add(store, id, &(struct store_batch){.metrics = &metric, .n_metrics = 1}));
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        struct store_kernel k = {.metric = "step",
                                 .layer = -1,
                                 .name = facts[i].name,
                                 .category = facts[i].category,
                                 .calls = 40 * facts[i].calls,
                                 .expected = -1,
                                 .calls_per_token = unknown,
                                 .total_ns = 40 * 1e3 * facts[i].us,
                                 .bytes = unknown,
                                 .flops = unknown,
                                 .limit_ns = unknown};
        SOL_TRY(store_run_add(store, id, &(struct store_batch){.kernels = &k, .n_kernels = 1}));
    }
    size_t size;
    unsigned char *data = step_trace_make(NULL, &size);
    if (!data) return SOL_E_MEMORY;
    enum sol_status kept = store_artifact_write(store, id, "trace", "11-900.soltrace", data, size);
    free(data);
    SOL_TRY(kept);
    return store_run_finish(store, id, STORE_OK, NULL,
                            "{\"device_time\": {\"span_ns\": 64800000, \"busy_ns\": 52300000, "
                            "\"gap_ns\": 11900000, \"tracer_ns\": "
                            "600000, \"gaps\": 5120, \"gap_max_ns\": 210000}, \"gap_list\": "
                            "[{\"ns\": 210000, \"after\": "
                            "\"nvjet_tst_128x64_64x8_1x2_h_bz_TNN\", \"before\": "
                            "\"rmsnorm_bf16_sm90\", \"cause\": \"host\"}, "
                            "{\"ns\": 95000, \"after\": \"Memcpy DtoD\", \"before\": "
                            "\"rmsnorm_bf16_sm90\", \"cause\": \"sync\"}]}");
}

static enum sol_status add_change(struct store *store, const char *env)
{
    char id[STORE_ID_SIZE];
    struct store_run run = base_run("compare", "change", first_day + 27 * day_ns, env);
    SOL_TRY(store_run_begin(store, &run, id));
    return store_run_finish(
        store, id, STORE_OK, NULL,
        "{\"mode\": \"live\", \"verdict\": \"faster\", \"reason\": null, "
        "\"old\": \"./old bench -o json\", \"new\": "
        "\"./new bench -o json\", \"delta_percent\": 1.0, "
        "\"seconds\": 42, \"metrics\": "
        "[{\"name\": \"tg128\", \"unit\": \"t/s\", "
        "\"role\": \"deciding\", \"n_old\": 8, \"n_new\": 8, \"p_holm\": 0.0078, \"old\": 44.1, "
        "\"new\": 46.9, "
        "\"change_percent\": 6.3, \"ci95_percent\": [5.2, "
        "7.5], \"verdict\": \"faster\"}, {\"name\": \"pp512\", \"unit\": "
        "\"t/s\", \"role\": \"deciding\", \"n_old\": 8, \"n_new\": 8, \"p_holm\": 0.4, \"old\": "
        "115.2, \"new\": 115.0, \"change_percent\": -0.2, \"ci95_percent\": "
        "[-0.7, 0.4], \"verdict\": \"same\"}, "
        "{\"name\": \"tg128 @ d16384\", \"unit\": \"t/s\", \"role\": "
        "\"exploratory\", \"n_old\": 8, \"n_new\": 8, \"p_holm\": 0.21, \"needed\": 14, \"old\": "
        "31.0, \"new\": 30.1, "
        "\"change_percent\": -2.9, \"ci95_percent\": [-6.1, 0.8], \"verdict\": "
        "\"inconclusive\"}, {\"name\": \"tg128: peak memory, bytes\", \"unit\": \"\", "
        "\"role\": \"exploratory\", \"n_old\": 8, \"n_new\": 8, \"p_holm\": 1e-5, \"old\": "
        "8327168, \"new\": 8511488, \"change_percent\": 2.2, \"ci95_percent\": null, "
        "\"verdict\": \"inconclusive\"}], \"blame\": "
        "[{\"test\": \"tg128\", \"parts\": [{\"op\": \"moe_up\", "
        "\"old_variant\": \"moe_up_avx2\", \"new_variant\": "
        "\"moe_up_avx512\", \"old_ns\": 9800000, \"new_ns\": 8600000, "
        "\"delta_ns\": -1200000}, {\"op\": \"head\", "
        "\"old_variant\": \"h\", \"new_variant\": \"h\", \"old_ns\": 2900000, "
        "\"new_ns\": 2910000, \"delta_ns\": "
        "10000}], \"gaps_ns\": -50000, \"clock_ns\": null, \"residual_ns\": 24000, "
        "\"delta_ns_per_token\": -1216000}], \"next\": \"sol opt record\"}");
}

/* ---- history ---- */

static enum sol_status add_history(struct store *store, const char *env)
{
    static const struct {
        const char *hypothesis, *rule, *verdict, *state;
        double predicted, realised;
    } tries[] = {
        {"Prefetch the next expert's scales while this one is multiplied", "sol", "faster",
         "accepted", 0.08, 0.052},
        {"Fuse the residual into attn_out", "unfused", "faster", "accepted", 0.03, 0.024},
        {"Two rows a thread in the head", "occupancy", "slower", "reverted", 0.05, -0.031},
        {"Split long key ranges over the threads", "occupancy", "faster", "accepted", 0.06, 0.058},
        {"Scales from a table instead of arithmetic", NULL, "same", "reverted", 0.02, 0.001},
        {"Take the softmax's maximum from the block before", "tail", "inconclusive", "abandoned",
         0.015, 0.006},
        {"Larger batches of expert rows", "sol", "incorrect", "rejected", 0.12, unknown},
    };
    double ns = 28.4e6;
    char run_id[STORE_ID_SIZE];
    for (int i = 0; i < 14; i++) {
        struct store_run run =
            base_run("bench", i ? NULL : "start", first_day + i * 2 * day_ns, env);
        bool attempt = i % 2 == 1;
        size_t t = (size_t)i / 2;
        double faster =
            attempt ? ns * (1 - (isnan(tries[t].realised) ? -0.004 : tries[t].realised)) : ns;
        SOL_TRY(store_run_begin(store, &run, run_id));
        SOL_TRY(add_metric(store, run_id, "pp512", 9.1e6 - 3e4 * i, 4.9e6, 0.01, 512, 0, 0));
        SOL_TRY(add_metric(store, run_id, "tg128", faster, 16.2e6, 0.012, 0, 128, 0));
        SOL_TRY(store_run_finish(store, run_id, STORE_OK, NULL, payload));
        if (!attempt) continue;
        struct store_iteration it = {.created_ns = run.created_ns,
                                     .tree = "/home/me/llama.cpp",
                                     .state = tries[t].state,
                                     .hypothesis = tries[t].hypothesis,
                                     .rule = tries[t].rule,
                                     .metric = "tg128",
                                     .predicted = tries[t].predicted,
                                     .realised = tries[t].realised,
                                     .realised_low = tries[t].realised - 0.008,
                                     .realised_high = tries[t].realised + 0.008,
                                     .verdict = tries[t].verdict,
                                     .base_commit = "4c3e5ee0b1f09c3a7d21c6f2a9b8e7d6c5b4a392",
                                     .bench_run = run_id,
                                     .perplexity = unknown,
                                     .perplexity_base = unknown};
        SOL_TRY(store_iteration_save(store, &it));
        if (tries[t].rule && !isnan(tries[t].realised)) {
            struct store_ledger_entry entry = {tries[t].rule, tries[t].predicted, tries[t].realised,
                                               it.id,         "AMD EPYC 9R14",    run.created_ns};
            SOL_TRY(store_ledger_add(store, &entry));
        }
        if (strcmp(tries[t].state, "accepted") == 0) ns = faster;
    }
    return SOL_OK;
}

enum sol_status report_fixture_write(const char *folder)
{
    struct store *store;
    char env[STORE_HASH_SIZE];
    state = 1;
    SOL_TRY(store_open(folder, &store));
    enum sol_status status = store_environment_add(store, environment, env);
    if (status == SOL_OK) status = add_bare(store);
    if (status == SOL_OK) status = add_hostile(store);
    if (status == SOL_OK) status = add_large(store, env);
    if (status == SOL_OK) status = report_pages_write(store, env);
    if (status == SOL_OK) status = add_history(store, env);
    if (status == SOL_OK) status = add_change(store, env);
    if (status == SOL_OK) status = add_trace(store, env);
    if (status == SOL_OK) status = add_bench(store, "invalid", env, true);
    if (status == SOL_OK) status = add_bench(store, "good", env, false);
    store_close(store);
    return status;
}
