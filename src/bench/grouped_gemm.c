/* See grouped_gemm.h. The op is timed by bench/op.c. The peer multiplies what the task's operands
 * are once they are fp16, which costs it nothing here: one product a group, all in a graph, over as
 * many sets of buffers as exceed the cache. */
#include "bench/grouped_gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "base/rng.h"
#include "gpu/kernel.h"
#include "gpu/matmul.h"
#include "ops/ops.h"

enum { SETS_MAX = 16, PEER_WARM = 3 };

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
        .values = b->values,
    };
    grouped_gemm_make(c, &shape, args);
}

/* ---- the peer ---- */

struct peer {
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_graph *graph;
    struct gpu_event *events[2];
    char *sets[SETS_MAX];
    int n_sets;
    void *workspace;
};

/* Halves of a group's A, B and C. */
static size_t group_bytes(const struct grouped_sizes_list *s, int64_t i)
{
    return (size_t)(s->m[i] * s->k[i] + s->n[i] * s->k[i] + s->m[i] * s->n[i]) * 2;
}

static size_t set_bytes(const struct grouped_sizes_list *s)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < s->n_groups; i++) bytes += group_bytes(s, i);
    return bytes;
}

/* Values of e2m1 times scales of 1 and 2, as the task's operands have them. */
static enum sol_status fill_set(const struct peer *p, char *to, size_t bytes, struct rng *rng)
{
    enum { PIECE = 1 << 20 };
    uint16_t *piece = malloc(PIECE);
    if (!piece) return status_set(SOL_E_MEMORY, "no memory for operands");
    for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
        uint64_t draw = rng_next(rng);
        piece[i] = f16_from_f32(e2m1_to_f32((uint8_t)(draw & 0xb)) * (float)(1 + (draw >> 8 & 1)));
    }
    enum sol_status status = SOL_OK;
    for (size_t at = 0; status == SOL_OK && at < bytes; at += PIECE)
        status = gpu_copy_in(p->stream, to + at, piece, bytes - at < PIECE ? bytes - at : PIECE);
    enum sol_status waited = gpu_wait(p->stream);
    free(piece);
    return status == SOL_OK ? waited : status;
}

static enum sol_status make_peer(struct peer *p, const struct grouped_sizes_list *s)
{
    struct rng rng;
    size_t bytes = set_bytes(s), cache = gpu_info(p->gpu)->l2_bytes;
    rng_seed(&rng, 1);
    SOL_TRY(gpu_stream_create(p->gpu, &p->stream));
    for (int i = 0; i < 2; i++) SOL_TRY(gpu_event_create(p->gpu, &p->events[i]));
    SOL_TRY(gpu_alloc(p->gpu, "bench", GPU_MATMUL_WORKSPACE, &p->workspace));
    while (p->n_sets < SETS_MAX && (p->n_sets < 2 || (size_t)p->n_sets * bytes < 4 * cache)) {
        void *memory;
        SOL_TRY(gpu_alloc(p->gpu, "bench", bytes, &memory));
        p->sets[p->n_sets++] = memory;
        SOL_TRY(fill_set(p, memory, bytes, &rng));
    }
    return SOL_OK;
}

static void put_products(const struct peer *p, const struct grouped_sizes_list *s)
{
    for (int set = 0; set < p->n_sets; set++) {
        char *at = p->sets[set];
        for (int64_t i = 0; i < s->n_groups; at += group_bytes(s, i++)) {
            if (s->m[i] == 0 || s->n[i] == 0) continue;
            char *b = at + s->m[i] * s->k[i] * 2;
            gpu_put_matmul(p->stream, &(struct gpu_matmul){.m = s->m[i],
                                                           .n = s->n[i],
                                                           .k = s->k[i],
                                                           .x_stride = s->k[i],
                                                           .x = at,
                                                           .w = b,
                                                           .c = b + s->n[i] * s->k[i] * 2,
                                                           .f16 = true,
                                                           .workspace = p->workspace});
        }
    }
}

/* Once without a graph: the library chooses its algorithms then. */
static enum sol_status capture(struct peer *p, const struct grouped_sizes_list *s)
{
    put_products(p, s);
    SOL_TRY(gpu_wait(p->stream));
    SOL_TRY(gpu_graph_begin(p->stream));
    put_products(p, s);
    return gpu_graph_end(p->stream, &p->graph);
}

static enum sol_status time_peer(struct peer *p, const struct grouped_sizes_list *s,
                                 double ns[BENCH_OP_REPETITIONS])
{
    SOL_TRY(make_peer(p, s));
    SOL_TRY(capture(p, s));
    for (int i = -PEER_WARM; i < BENCH_OP_REPETITIONS; i++) {
        double took;
        SOL_TRY(gpu_event_record(p->events[0], p->stream));
        SOL_TRY(gpu_graph_launch(p->graph));
        SOL_TRY(gpu_event_record(p->events[1], p->stream));
        SOL_TRY(gpu_event_elapsed(p->events[0], p->events[1], &took));
        SOL_TRY(gpu_wait(p->stream));
        if (i >= 0) ns[i] = took / p->n_sets;
    }
    return SOL_OK;
}

static void close_peer(struct peer *p)
{
    gpu_graph_destroy(p->graph);
    for (int i = 0; i < 2; i++) gpu_event_destroy(p->events[i]);
    for (int i = 0; i < p->n_sets; i++) gpu_free(p->gpu, p->sets[i]);
    gpu_free(p->gpu, p->workspace);
    gpu_stream_destroy(p->stream);
}

/* That it cannot be timed is no error: `peer_why` says so. */
static enum sol_status run_peer(struct gpu *gpu, struct grouped_result *out)
{
    const struct grouped_sizes_list *s = &out->bench.sizes;
    const char *why = gpu ? NULL : "the CPU computes";
    if (gpu && !gpu_matmul_usable(&why) && !why) why = "cuBLASLt cannot be used";
    for (int64_t i = 0; !why && i < s->n_groups; i++)
        if (s->n[i] % 8) why = "n is no multiple of 8";
    snprintf(out->peer_why, sizeof out->peer_why, "%s", why ? why : "");
    if (why) return figure_of_one(NULL, 0, &out->peer);
    struct peer p = {.gpu = gpu};
    enum sol_status status = time_peer(&p, s, out->peer_ns);
    close_peer(&p);
    if (status == SOL_OK) return figure_of_one(out->peer_ns, BENCH_OP_REPETITIONS, &out->peer);
    if (status == SOL_E_INTERRUPTED) return status;
    snprintf(out->peer_why, sizeof out->peer_why, "%s", sol_last_error());
    return figure_of_one(NULL, 0, &out->peer);
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
    return run_peer(gpu, out);
}

enum sol_status grouped_bench_profile(const struct chooser *chooser, struct grouped_result *result)
{
    const struct bench_op_call call = {&op_grouped_gemm, make, &result->bench};
    SOL_TRY(bench_op_kernels(chooser, &call, &result->kernels));
    result->profiled = true;
    return SOL_OK;
}

double grouped_bench_mean(const struct grouped_result *results, size_t count, bool peer)
{
    double logs = 0;
    for (size_t i = 0; i < count; i++)
        logs += log(peer ? results[i].peer.value : results[i].figure.value);
    return count ? exp(logs / (double)count) : (double)NAN;
}

/* ---- showing and keeping ---- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *figure_json(const struct figure *f)
{
    if (f->count == 0) return json_null();
    return json_pack("{s:f, s:o, s:o, s:o, s:o}", "us", f->value / 1e3, "low_us",
                     number(f->low / 1e3), "high_us", number(f->high / 1e3), "limit_us",
                     number(f->limit / 1e3), "percent_of_limit", number(100 * f->reached));
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
        json_array_append_new(list, json_pack("{s:s, s:f, s:o}", "name", k->list[i].name, "us",
                                              k->list[i].ns / 1e3, "percent", number(share(k, i))));
    return json_pack("{s:s, s:i, s:o}", "choice", k->choice, "launches", k->launches, "list", list);
}

static json_t *result_json(const struct grouped_result *r)
{
    const struct grouped_sizes_list *s = &r->bench.sizes;
    json_t *samples = json_array();
    for (int i = 0; i < BENCH_OP_REPETITIONS; i++)
        json_array_append_new(samples, json_real(r->times.ns[i] / 1e3));
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:f, s:f, s:o, s:s?, s:o, s:o*}",
        "name", s->name, "m", list_json(s->m, s->n_groups), "n", list_json(s->n, s->n_groups), "k",
        list_json(s->k, s->n_groups), "format", dtype_info(r->bench.format)->name, "c_type",
        dtype_info(r->bench.c_type)->name, "scales", grouped_layout_names[r->bench.scales],
        "variant", r->times.variant, "time", figure_json(&r->figure), "samples_us", samples,
        "tflop_s", r->times.cost.flops / r->figure.value / 1e3, "tb_s",
        r->times.cost.bytes / r->figure.value / 1e3, "cublas", figure_json(&r->peer), "cublas_why",
        *r->peer_why ? r->peer_why : NULL, "of_cublas", number(r->figure.value / r->peer.value),
        "kernels", r->profiled ? kernels_json(&r->kernels) : NULL);
}

json_t *grouped_bench_json(const struct grouped_result *results, size_t count, const char *run)
{
    json_t *list = json_array();
    double mean = grouped_bench_mean(results, count, false);
    double peer = grouped_bench_mean(results, count, true);
    for (size_t i = 0; i < count; i++) json_array_append_new(list, result_json(&results[i]));
    return json_pack("{s:s?, s:o, s:o, s:o, s:o}", "run", run, "shapes", list, "mean_us",
                     number(mean / 1e3), "cublas_mean_us", number(peer / 1e3), "of_cublas",
                     number(mean / peer));
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
    char percent[24];
    table_cell(table, "%s", r->bench.sizes.name);
    table_cell(table, "%s", r->times.variant);
    add_number(table, 1, r->figure.value / 1e3);
    add_number(table, 1, r->figure.low / 1e3);
    add_number(table, 1, r->figure.high / 1e3);
    table_number(table, r->times.cost.flops / r->figure.value / 1e3, 3);
    table_cell(table, "%s", figure_percent_text(r->figure.reached, percent));
    add_number(table, 1, r->peer.value / 1e3);
    add_number(table, 2, r->figure.value / r->peer.value);
}

enum sol_status grouped_bench_print(const struct grouped_result *results, size_t count,
                                    enum table_format format, FILE *to)
{
    struct table *table;
    double mean = grouped_bench_mean(results, count, false);
    double peer = grouped_bench_mean(results, count, true);
    SOL_TRY(table_create("shape|=variant|>us|>-low|>-high|>TFLOP/s|>% of limit|>cuBLAS us|>ratio",
                         &table));
    for (size_t i = 0; i < count; i++) add_row(table, &results[i]);
    if (count > 1) {
        table_cell(table, "geometric mean");
        table_cell(table, "-");
        add_number(table, 1, mean / 1e3);
        for (int i = 0; i < 4; i++) table_cell(table, "-");
        add_number(table, 1, peer / 1e3);
        add_number(table, 2, mean / peer);
    }
    table_print(table, format, to);
    table_destroy(table);
    return SOL_OK;
}

static void add_kernels(struct table *table, const struct grouped_result *r)
{
    const struct bench_op_kernels *k = &r->kernels;
    for (int i = 0; i < listed(k); i++) {
        table_cell(table, "%s", r->bench.sizes.name);
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
    struct store_sample mine[BENCH_OP_REPETITIONS], theirs[BENCH_OP_REPETITIONS];
    char peer[80];
    fill_samples(r->times.ns, mine);
    fill_samples(r->peer_ns, theirs);
    snprintf(peer, sizeof peer, "%s: cublas", r->bench.sizes.name);
    const struct store_metric metrics[] = {
        {.name = r->bench.sizes.name,
         .unit = "ns",
         .better = STORE_LOWER,
         .limit = isfinite(r->figure.limit) ? r->figure.limit : 0,
         .samples = mine,
         .n_samples = BENCH_OP_REPETITIONS},
        {.name = peer,
         .unit = "ns",
         .better = STORE_LOWER,
         .samples = theirs,
         .n_samples = BENCH_OP_REPETITIONS},
    };
    return store_run_add(
        store, id, &(struct store_batch){.metrics = metrics, .n_metrics = r->peer.count ? 2 : 1});
}
