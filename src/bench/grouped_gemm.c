/* See grouped_gemm.h. The op is timed by bench/op.c, the peers by bench/grouped_peers.c. */
#include "bench/grouped_gemm.h"

#include <math.h>
#include <stdio.h>

#include "base/json_value.h"
#include "base/number.h"
#include "ops/ops.h"

const char *const grouped_layout_names[SCALES_COUNT] = {"rows", "atoms"};

static void make(const void *arg, struct case_maker *c, void *args)
{
    const struct grouped_bench *b = arg;
    const struct grouped_gemm_shape shape = {
        .n_groups = b->sizes.n_groups,
        .m = b->sizes.m,
        .n = b->sizes.n,
        .k = b->sizes.k,
        .format = b->format,
        .c_type = b->c_type,
        .scales = b->scales,
        .weights = b->resident ? WEIGHTS_TILES : WEIGHTS_ROWS,
        .values = b->values,
        .gated = b->gated,
    };
    grouped_gemm_make(c, &shape, args);
}

/* ---- the op ---- */

/* The longer of multiplying and of touching memory. Operands are fp16 on matrix instructions of a
 * GPU, which are as fast as bf16; a processor multiplies float32. */
static double limit_ns(const struct ceiling *c, bool gpu, const struct op_cost *cost)
{
    if (!ceiling_measured(c)) return NAN;
    double flops = ceiling_flop_rate(c, gpu ? NUMERICS_BF16 : NUMERICS_EXACT);
    double reading = cost->bytes / c->memory.best;
    double computing = flops > 0 ? cost->flops / flops : 0;
    return 1e9 * (reading > computing ? reading : computing);
}

enum sol_status grouped_bench_run(const struct chooser *chooser, const struct grouped_bench *bench,
                                  const struct ceiling *ceiling, struct grouped_result *out)
{
    struct gpu *gpu = chooser->device.gpu;
    *out = (struct grouped_result){.bench = *bench};
    const struct bench_op_call call = {&op_grouped_gemm, make, &out->bench};
    SOL_TRY(bench_op_time(chooser, &call, &out->times));
    SOL_TRY(figure_of_one(out->times.ns, BENCH_OP_REPETITIONS, &out->figure));
    figure_set_limit(&out->figure, limit_ns(ceiling, gpu != NULL, &out->times.cost), false);
    return grouped_peers_run(gpu, &out->bench.sizes, bench->gated, out->peers);
}

enum sol_status grouped_bench_profile(const struct chooser *chooser, struct grouped_result *result)
{
    const struct bench_op_call call = {&op_grouped_gemm, make, &result->bench};
    SOL_TRY(bench_op_kernels(chooser, &call, &result->kernels));
    result->profiled = true;
    return SOL_OK;
}

static const struct figure *figure_of_whom(const struct grouped_result *r, enum grouped_peer peer)
{
    return peer == GROUPED_PEERS ? &r->figure : &r->peers[peer].figure;
}

double grouped_bench_mean(const struct grouped_result *results, size_t count,
                          enum grouped_peer peer)
{
    double logs = 0;
    for (size_t i = 0; i < count; i++) logs += log(figure_of_whom(&results[i], peer)->value);
    return count ? exp(logs / (double)count) : (double)NAN;
}

/* ---- showing and keeping ---- */

/* What is timed, in words: numbers of other names are of other things. */
enum { NAME_MAX_BYTES = 80 };
static const char *name_of(const struct grouped_bench *b, char name[NAME_MAX_BYTES])
{
    snprintf(name, NAME_MAX_BYTES, "%s%s%s", b->sizes.name, b->gated ? ", gated" : "",
             b->resident ? ", resident" : "");
    return name;
}

static json_t *figure_json(const struct figure *f)
{
    if (f->count == 0) return json_null();
    return json_pack("{s:f, s:o, s:o, s:o, s:o}", "us", f->value / 1e3, "low_us",
                     json_number(f->low / 1e3), "high_us", json_number(f->high / 1e3), "limit_us",
                     json_number(f->limit / 1e3), "percent_of_limit",
                     json_number(100 * f->reached));
}

static json_t *list_json(const int64_t *values, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) json_array_append_new(list, json_integer(values[i]));
    return list;
}

/* Kernels that are in the list. */
static int listed(const struct bench_op_kernels *k)
{
    return k->count < BENCH_OP_KERNELS ? k->count : BENCH_OP_KERNELS;
}

static double share(const struct bench_op_kernels *k, int i)
{
    double sum = 0;
    for (int j = 0; j < listed(k); j++) sum += k->list[j].ns;
    return sum > 0 ? 100 * k->list[i].ns / sum : (double)NAN;
}

static json_t *kernels_json(const struct bench_op_kernels *k)
{
    json_t *list = json_array();
    for (int i = 0; i < listed(k); i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:o}", "name", k->list[i].name, "us",
                                        k->list[i].ns / 1e3, "percent", json_number(share(k, i))));
    return json_pack("{s:s, s:i, s:o}", "choice", k->choice, "launches", k->launches, "list", list);
}

/* "cublas": its time, "cublas_why", and "of_cublas": the op's time over it. */
static void add_peer(json_t *to, const struct grouped_result *r, int peer)
{
    const struct grouped_peer_times *p = &r->peers[peer];
    char key[40];
    json_object_set_new(to, grouped_peer_keys[peer], figure_json(&p->figure));
    snprintf(key, sizeof key, "%s_why", grouped_peer_keys[peer]);
    json_object_set_new(to, key, *p->why ? json_string(p->why) : json_null());
    snprintf(key, sizeof key, "of_%s", grouped_peer_keys[peer]);
    json_object_set_new(to, key, json_number(r->figure.value / p->figure.value));
}

static json_t *result_json(const struct grouped_result *r)
{
    const struct grouped_sizes_list *s = &r->bench.sizes;
    json_t *samples = json_array();
    for (int i = 0; i < BENCH_OP_REPETITIONS; i++)
        json_array_append_new(samples, json_real(r->times.ns[i] / 1e3));
    json_t *json = json_pack(
        "{s:s, s:o, s:o, s:o, s:s, s:s, s:s, s:b, s:b, s:s, s:o, s:o, s:f, s:f, s:o*}", "name",
        s->name, "m", list_json(s->m, s->n_groups), "n", list_json(s->n, s->n_groups), "k",
        list_json(s->k, s->n_groups), "format", dtype_info(r->bench.format)->name, "c_type",
        dtype_info(r->bench.c_type)->name, "scales", grouped_layout_names[r->bench.scales], "gated",
        r->bench.gated, "resident", r->bench.resident, "variant", r->times.variant, "time",
        figure_json(&r->figure), "samples_us", samples, "tflop_s",
        r->times.cost.flops / r->figure.value / 1e3, "tb_s",
        r->times.cost.bytes / r->figure.value / 1e3, "kernels",
        r->profiled ? kernels_json(&r->kernels) : NULL);
    for (int i = 0; json && i < GROUPED_PEERS; i++) add_peer(json, r, i);
    return json;
}

json_t *grouped_bench_json(const struct grouped_result *results, size_t count, const char *run)
{
    json_t *list = json_array();
    double mean = grouped_bench_mean(results, count, GROUPED_PEERS);
    for (size_t i = 0; i < count; i++) json_array_append_new(list, result_json(&results[i]));
    json_t *json = json_pack("{s:s?, s:o, s:o}", "run", run, "shapes", list, "mean_us",
                             json_number(mean / 1e3));
    for (int i = 0; json && i < GROUPED_PEERS; i++) {
        double peer = grouped_bench_mean(results, count, (enum grouped_peer)i);
        char key[40];
        snprintf(key, sizeof key, "%s_mean_us", grouped_peer_keys[i]);
        json_object_set_new(json, key, json_number(peer / 1e3));
        snprintf(key, sizeof key, "of_%s", grouped_peer_keys[i]);
        json_object_set_new(json, key, json_number(mean / peer));
    }
    return json;
}

static void add_number(struct table *table, int digits, double value)
{
    if (isfinite(value))
        table_cell(table, "%.*f", digits, value);
    else
        table_cell(table, "-");
}

static void add_row(struct table *table, const struct grouped_result *r)
{
    char percent[24], name[NAME_MAX_BYTES];
    table_cell(table, "%s", name_of(&r->bench, name));
    table_cell(table, "%s", r->times.variant);
    add_number(table, 1, r->figure.value / 1e3);
    add_number(table, 1, r->figure.low / 1e3);
    add_number(table, 1, r->figure.high / 1e3);
    table_number(table, r->times.cost.flops / r->figure.value / 1e3, 3);
    table_cell(table, "%s", figure_percent_text(r->figure.reached, percent));
    for (int i = 0; i < GROUPED_PEERS; i++) {
        add_number(table, 1, r->peers[i].figure.value / 1e3);
        add_number(table, 2, r->figure.value / r->peers[i].figure.value);
    }
}

enum sol_status grouped_bench_print(const struct grouped_result *results, size_t count,
                                    enum table_format format, FILE *to)
{
    struct table *table;
    double mean = grouped_bench_mean(results, count, GROUPED_PEERS);
    SOL_TRY(table_create("shape|=variant|>us|>-low|>-high|>TFLOP/s|>% of limit|>cuBLAS us|>ratio|"
                         ">cuBLAS grouped us|>grouped ratio",
                         &table));
    for (size_t i = 0; i < count; i++) add_row(table, &results[i]);
    if (count > 1) {
        table_cell(table, "geometric mean");
        table_cell(table, "-");
        add_number(table, 1, mean / 1e3);
        for (int i = 0; i < 4; i++) table_cell(table, "-");
        for (int i = 0; i < GROUPED_PEERS; i++) {
            double peer = grouped_bench_mean(results, count, (enum grouped_peer)i);
            add_number(table, 1, peer / 1e3);
            add_number(table, 2, mean / peer);
        }
    }
    table_print(table, format, to);
    table_destroy(table);
    return SOL_OK;
}

void grouped_bench_print_notes(const struct grouped_result *results, size_t count, FILE *to)
{
    if (count && results[0].bench.resident)
        fputs("resident: weights were packed into tiles before anything was timed\n", to);
    for (int i = 0; i < GROUPED_PEERS; i++)
        for (size_t j = 0; j < count; j++) {
            const struct grouped_peer_times *p = &results[j].peers[i];
            if (!*p->why) continue;
            fprintf(to, "%s was %s: %s\n", grouped_peer_titles[i],
                    p->plain ? "timed by plain calls, not in a graph" : "not timed", p->why);
            break;
        }
}

static void add_kernels(struct table *table, const struct grouped_result *r)
{
    const struct bench_op_kernels *k = &r->kernels;
    char name[NAME_MAX_BYTES];
    for (int i = 0; i < listed(k); i++) {
        table_cell(table, "%s", name_of(&r->bench, name));
        table_cell(table, "%s", k->variant);
        table_cell(table, "%s", *k->choice ? k->choice : "-");
        table_cell(table, "%s", k->list[i].name);
        add_number(table, 1, k->list[i].ns / 1e3);
        add_number(table, 1, share(k, i));
    }
}

enum sol_status grouped_bench_print_kernels(const struct grouped_result *results, size_t count,
                                            enum table_format format, FILE *to)
{
    struct table *table;
    int most = 0;
    SOL_TRY(table_create("shape|=variant|-choice|kernel of a call|>us|>share %", &table));
    for (size_t i = 0; i < count; i++) {
        add_kernels(table, &results[i]);
        if (results[i].kernels.launches > most) most = results[i].kernels.launches;
    }
    table_print(table, format, to);
    table_destroy(table);
    if (format != TABLE_TEXT) return SOL_OK;
    if (most > 1)
        fprintf(to, "a call is up to %d launches\n", most);
    else
        fprintf(to, "%s\n", most ? "a call is one launch" : "a call launches nothing");
    return SOL_OK;
}

static void fill_samples(const double *ns, struct store_sample samples[BENCH_OP_REPETITIONS])
{
    for (int i = 0; i < BENCH_OP_REPETITIONS; i++)
        samples[i] = (struct store_sample){.value = ns[i]};
}

enum sol_status grouped_bench_keep(struct store *store, const char *id,
                                   const struct grouped_result *r)
{
    struct store_sample samples[1 + GROUPED_PEERS][BENCH_OP_REPETITIONS];
    char mine[NAME_MAX_BYTES], names[GROUPED_PEERS][NAME_MAX_BYTES + 16];
    struct store_metric metrics[1 + GROUPED_PEERS] = {
        {.name = mine, .limit = isfinite(r->figure.limit) ? r->figure.limit : 0}};
    size_t count = 1;
    name_of(&r->bench, mine);
    fill_samples(r->times.ns, samples[0]);
    for (int i = 0; i < GROUPED_PEERS; i++) {
        if (!r->peers[i].figure.count) continue;
        snprintf(names[i], sizeof names[i], "%s: %s", mine, grouped_peer_keys[i]);
        fill_samples(r->peers[i].ns, samples[count]);
        metrics[count++].name = names[i];
    }
    for (size_t i = 0; i < count; i++) {
        metrics[i].unit = "ns";
        metrics[i].better = STORE_LOWER;
        metrics[i].samples = samples[i];
        metrics[i].n_samples = BENCH_OP_REPETITIONS;
    }
    return store_run_add(store, id, &(struct store_batch){.metrics = metrics, .n_metrics = count});
}
