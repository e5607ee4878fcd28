#include "bench/grouped_peers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "gpu/grouped_matmul.h"
#include "gpu/kernel.h"
#include "gpu/matmul.h"
#include "swiglu/swiglu_f16_args.h"

enum { SETS_MAX = 16, WARM = 3, SAMPLES = 4 /* numbers of a product that are looked at */ };

const char *const grouped_peer_titles[GROUPED_PEERS] = {"cuBLAS", "cuBLAS grouped"};
const char *const grouped_peer_keys[GROUPED_PEERS] = {"cublas", "cublas_grouped"};

/* Matrices are bytes from a set's beginning. Gated, every second one is the up of the gate before,
 * with the same rows; all results of gates come before those of ups. */
struct product {
    int64_t m, n, k;
    size_t x, w, c;
};

struct sample {
    int64_t row, column;
    double expected, tolerance;
    double activated; /* of a gate; known once both products are there */
};

struct peers {
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_graph *graph;
    struct gpu_event *events[2];
    struct rng rng;
    struct product products[GPU_MATMULS_MAX];
    struct sample samples[GPU_MATMULS_MAX][SAMPLES];
    int count, parts;                   /* parts: products of a group */
    size_t operand_bytes, result_bytes; /* of a set: operands, then results */
    char *sets[SETS_MAX];
    void *addresses[SETS_MAX]; /* of what a call for all products takes: x, w, c */
    int n_sets;
    void *workspace;
};

/* ---- operands ---- */

static void place_group(struct peers *p, int64_t m, int64_t n, int64_t k, size_t *at)
{
    const size_t x = *at;
    *at += 2 * (size_t)(m * k);
    for (int part = 0; part < p->parts; part++) {
        p->products[p->count++] = (struct product){.m = m, .n = n, .k = k, .x = x, .w = *at};
        *at += 2 * (size_t)(n * k);
    }
}

static void place(struct peers *p, const struct grouped_sizes_list *s)
{
    size_t at = 0;
    for (int64_t i = 0; i < s->n_groups; i++)
        if (s->m[i] && s->n[i]) place_group(p, s->m[i], s->n[i], s->k[i], &at);
    p->operand_bytes = at;
    for (int part = 0; part < p->parts; part++)
        for (int j = part; j < p->count; j += p->parts) {
            p->products[j].c = at;
            at += 2 * (size_t)(p->products[j].m * p->products[j].n);
        }
    p->result_bytes = at - p->operand_bytes;
}

/* Values of e2m1 times scales of 1 and 2, as the task's operands have them. */
static enum sol_status fill_set(struct peers *p, char *to)
{
    enum { PIECE = 1 << 20 };
    size_t bytes = p->operand_bytes;
    uint16_t *piece = malloc(PIECE);
    if (!piece) return status_set(SOL_E_MEMORY, "no memory for operands");
    for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
        uint64_t draw = rng_next(&p->rng);
        piece[i] = f16_from_f32(e2m1_to_f32((uint8_t)(draw & 0xb)) * (float)(1 + (draw >> 8 & 1)));
    }
    enum sol_status status = SOL_OK;
    for (size_t at = 0; status == SOL_OK && at < bytes; at += PIECE)
        status = gpu_copy_in(p->stream, to + at, piece, bytes - at < PIECE ? bytes - at : PIECE);
    enum sol_status waited = gpu_wait(p->stream);
    free(piece);
    return status == SOL_OK ? waited : status;
}

static enum sol_status fill_addresses(const struct peers *p, char *set, void **out)
{
    const void *list[3 * GPU_MATMULS_MAX];
    const size_t bytes = 3 * (size_t)p->count * sizeof *list;
    for (int j = 0; j < p->count; j++) {
        list[j] = set + p->products[j].x;
        list[p->count + j] = set + p->products[j].w;
        list[2 * p->count + j] = set + p->products[j].c;
    }
    SOL_TRY(gpu_alloc(p->gpu, "bench", bytes, out));
    SOL_TRY(gpu_copy_in(p->stream, *out, list, bytes));
    return gpu_wait(p->stream);
}

static enum sol_status make_sets(struct peers *p)
{
    size_t bytes = p->operand_bytes + p->result_bytes, cache = gpu_info(p->gpu)->l2_bytes;
    while (p->n_sets < SETS_MAX && (p->n_sets < 2 || (size_t)p->n_sets * bytes < 4 * cache)) {
        void *memory;
        SOL_TRY(gpu_alloc(p->gpu, "bench", bytes, &memory));
        p->sets[p->n_sets++] = memory;
        SOL_TRY(fill_set(p, memory));
        SOL_TRY(fill_addresses(p, memory, &p->addresses[p->n_sets - 1]));
    }
    return SOL_OK;
}

static enum sol_status clear(const struct peers *p)
{
    for (int i = 0; i < p->n_sets; i++)
        SOL_TRY(gpu_zero(p->stream, p->sets[i] + p->operand_bytes, p->result_bytes));
    return gpu_wait(p->stream);
}

/* ---- numbers that are looked at ---- */

/* All sets have their turn. */
static char *set_of(const struct peers *p, int product, int sample)
{
    return p->sets[(product / p->parts * SAMPLES + sample) % p->n_sets];
}

static enum sol_status expect(const struct peers *p, int product, int sample, uint16_t *rows,
                              struct sample *to)
{
    const struct product *a = &p->products[product];
    const char *set = set_of(p, product, sample);
    const size_t bytes = 2 * (size_t)a->k;
    uint16_t *w = rows + a->k;
    double sum = 0, magnitude = 0;
    SOL_TRY(gpu_copy_out(p->stream, rows, set + a->x + (size_t)to->row * bytes, bytes));
    SOL_TRY(gpu_copy_out(p->stream, w, set + a->w + (size_t)to->column * bytes, bytes));
    SOL_TRY(gpu_wait(p->stream));
    for (int64_t i = 0; i < a->k; i++) {
        double one = (double)f16_to_f32(rows[i]) * (double)f16_to_f32(w[i]);
        sum += one;
        magnitude += fabs(one);
    }
    to->expected = sum;
    /* A step of fp16; a library may add parts of a sum in fp16. */
    to->tolerance = 1e-3 * fabs(sum) + 1e-4 * magnitude;
    return SOL_OK;
}

/* The first and the last number of each product, and others; of an up those of its gate. */
static void draw_place(struct peers *p, int product, int sample)
{
    const struct product *a = &p->products[product];
    struct sample *to = &p->samples[product][sample];
    to->row = sample == 0 ? 0 : sample == 1 ? a->m - 1 : rng_range(&p->rng, 0, a->m - 1);
    to->column = sample == 0 ? 0 : sample == 1 ? a->n - 1 : rng_range(&p->rng, 0, a->n - 1);
    if (product % p->parts) *to = p->samples[product - 1][sample];
}

static enum sol_status make_samples(struct peers *p)
{
    enum sol_status status = SOL_OK;
    for (int j = 0; status == SOL_OK && j < p->count; j++) {
        const struct product *a = &p->products[j];
        uint16_t *rows = malloc(4 * (size_t)a->k);
        if (!rows) return status_set(SOL_E_MEMORY, "no memory for rows");
        for (int i = 0; status == SOL_OK && i < SAMPLES; i++) {
            draw_place(p, j, i);
            status = expect(p, j, i, rows, &p->samples[j][i]);
        }
        free(rows);
    }
    return status;
}

static enum sol_status result_of(const struct peers *p, int product, int sample, double *out)
{
    const struct product *a = &p->products[product];
    const struct sample *s = &p->samples[product][sample];
    uint16_t half;
    const char *at = set_of(p, product, sample) + a->c + 2 * (size_t)(s->row * a->n + s->column);
    SOL_TRY(gpu_copy_out(p->stream, &half, at, sizeof half));
    SOL_TRY(gpu_wait(p->stream));
    *out = (double)f16_to_f32(half);
    return SOL_OK;
}

static enum sol_status check_one(const struct peers *p, int product, int sample, double expected,
                                 double tolerance)
{
    double got;
    SOL_TRY(result_of(p, product, sample, &got));
    if (fabs(got - expected) <= tolerance) return SOL_OK;
    return status_set(SOL_E_MISMATCH, "product %d has %g where %g is right", product, got,
                      expected);
}

static enum sol_status check_products(const struct peers *p)
{
    for (int j = 0; j < p->count; j++)
        for (int i = 0; i < SAMPLES; i++) {
            const struct sample *s = &p->samples[j][i];
            SOL_TRY(check_one(p, j, i, s->expected, s->tolerance));
        }
    return SOL_OK;
}

/* Of the halves that the products left, which are not exact. */
static enum sol_status expect_activated(struct peers *p)
{
    const double limit = (double)GROUPED_GEMM_LIMIT, alpha = (double)GROUPED_GEMM_ALPHA;
    for (int j = 0; j < p->count; j += 2)
        for (int i = 0; i < SAMPLES; i++) {
            double gate, up;
            SOL_TRY(result_of(p, j, i, &gate));
            SOL_TRY(result_of(p, j + 1, i, &up));
            gate = fmin(gate, limit);
            up = fmin(fmax(up, -limit), limit);
            p->samples[j][i].activated = gate / (1 + exp(-alpha * gate)) * (up + 1);
        }
    return SOL_OK;
}

/* Of all that a call does. */
static enum sol_status check_results(const struct peers *p)
{
    if (p->parts == 1) return check_products(p);
    for (int j = 0; j < p->count; j += 2)
        for (int i = 0; i < SAMPLES; i++) {
            double expected = p->samples[j][i].activated;
            SOL_TRY(check_one(p, j, i, expected, 2e-3 * (1 + fabs(expected))));
        }
    return SOL_OK;
}

/* ---- calls ---- */

static void put_each(const struct peers *p, char *set)
{
    for (int j = 0; j < p->count; j++) {
        const struct product *a = &p->products[j];
        gpu_put_matmul(p->stream, &(struct gpu_matmul){.m = a->m,
                                                       .n = a->n,
                                                       .k = a->k,
                                                       .x_stride = a->k,
                                                       .x = set + a->x,
                                                       .w = set + a->w,
                                                       .c = set + a->c,
                                                       .f16 = true,
                                                       .workspace = p->workspace});
    }
}

static void put_together(const struct peers *p, void *addresses)
{
    void **list = addresses;
    struct gpu_grouped_matmul all = {.count = p->count,
                                     .x = (const void *const *)list,
                                     .w = (const void *const *)(list + p->count),
                                     .c = list + (size_t)2 * (size_t)p->count,
                                     .workspace = p->workspace};
    for (int j = 0; j < p->count; j++) {
        all.m[j] = (int)p->products[j].m;
        all.n[j] = (int)p->products[j].n;
        all.k[j] = (int)p->products[j].k;
    }
    gpu_put_grouped_matmul(p->stream, &all);
}

static void put_products(const struct peers *p, enum grouped_peer peer, int set)
{
    if (peer == PEER_PRODUCTS)
        put_each(p, p->sets[set]);
    else
        put_together(p, p->addresses[set]);
}

/* One kernel for all groups. */
static void put_activation(const struct peers *p, int set)
{
    if (p->parts == 1) return;
    const struct swiglu_f16_args args = {.units =
                                             (int64_t)(p->result_bytes / 2 / (2 * SWIGLU_F16_UNIT)),
                                         .gate = p->sets[set] + p->products[0].c,
                                         .up = p->sets[set] + p->products[1].c,
                                         .alpha = GROUPED_GEMM_ALPHA,
                                         .limit = GROUPED_GEMM_LIMIT};
    const struct gpu_launch launch = {
        .grid = {(unsigned)((args.units + SWIGLU_F16_THREADS - 1) / SWIGLU_F16_THREADS)},
        .block = {SWIGLU_F16_THREADS},
        .overlaps = true};
    gpu_put(p->stream, "swiglu/swiglu_f16.cu", "swiglu_f16", &launch, &args);
}

static void put_calls(const struct peers *p, enum grouped_peer peer)
{
    for (int i = 0; i < p->n_sets; i++) {
        put_products(p, peer, i);
        put_activation(p, i);
    }
}

/* Without a graph: the library chooses its algorithms, and shows that it is right. */
static enum sol_status try_calls(struct peers *p, enum grouped_peer peer)
{
    SOL_TRY(clear(p));
    for (int i = 0; i < p->n_sets; i++) put_products(p, peer, i);
    SOL_TRY(gpu_wait(p->stream));
    SOL_TRY(check_products(p));
    if (p->parts == 1) return SOL_OK;
    SOL_TRY(expect_activated(p));
    for (int i = 0; i < p->n_sets; i++) put_activation(p, i);
    SOL_TRY(gpu_wait(p->stream));
    return check_results(p);
}

/* A graph that was launched once and is right. */
static enum sol_status capture(struct peers *p, enum grouped_peer peer)
{
    SOL_TRY(clear(p));
    SOL_TRY(gpu_graph_begin(p->stream));
    put_calls(p, peer);
    enum sol_status status = gpu_graph_end(p->stream, &p->graph);
    enum sol_status put = gpu_wait(p->stream); /* what was refused meanwhile says more */
    SOL_TRY(put);
    SOL_TRY(status);
    SOL_TRY(gpu_graph_launch(p->graph));
    SOL_TRY(gpu_wait(p->stream));
    return check_results(p);
}

static enum sol_status time_calls(const struct peers *p, enum grouped_peer peer,
                                  double ns[BENCH_OP_REPETITIONS])
{
    for (int i = -WARM; i < BENCH_OP_REPETITIONS; i++) {
        double took;
        SOL_TRY(gpu_event_record(p->events[0], p->stream));
        if (p->graph)
            SOL_TRY(gpu_graph_launch(p->graph));
        else
            put_calls(p, peer);
        SOL_TRY(gpu_event_record(p->events[1], p->stream));
        SOL_TRY(gpu_event_elapsed(p->events[0], p->events[1], &took));
        SOL_TRY(gpu_wait(p->stream));
        if (i >= 0) ns[i] = took / p->n_sets;
    }
    return SOL_OK;
}

static enum sol_status time_peer(struct peers *p, enum grouped_peer peer,
                                 struct grouped_peer_times *out)
{
    SOL_TRY(try_calls(p, peer));
    enum sol_status status = capture(p, peer);
    if (status == SOL_E_INTERRUPTED) return status;
    if (status != SOL_OK) {
        out->plain = true;
        snprintf(out->why, sizeof out->why, "%s", sol_last_error());
        gpu_graph_destroy(p->graph);
        p->graph = NULL;
    }
    return time_calls(p, peer, out->ns);
}

/* ---- the run ---- */

static enum sol_status make_peers(struct peers *p, const struct grouped_sizes_list *s)
{
    rng_seed(&p->rng, 1);
    place(p, s);
    SOL_TRY(gpu_stream_create(p->gpu, &p->stream));
    for (int i = 0; i < 2; i++) SOL_TRY(gpu_event_create(p->gpu, &p->events[i]));
    SOL_TRY(gpu_alloc(p->gpu, "bench", GPU_MATMUL_WORKSPACE, &p->workspace));
    SOL_TRY(make_sets(p));
    return make_samples(p);
}

static void close_peers(struct peers *p)
{
    for (int i = 0; i < 2; i++) gpu_event_destroy(p->events[i]);
    for (int i = 0; i < p->n_sets; i++) {
        gpu_free(p->gpu, p->sets[i]);
        gpu_free(p->gpu, p->addresses[i]);
    }
    gpu_free(p->gpu, p->workspace);
    gpu_stream_destroy(p->stream);
    free(p);
}

static bool is_missing(enum grouped_peer peer, const char **why)
{
    bool usable = peer == PEER_PRODUCTS ? gpu_matmul_usable(why) : gpu_grouped_matmul_usable(why);
    if (!usable && !*why) *why = "the library cannot be used";
    return !usable;
}

/* Why no library is asked for these sizes; NULL: it is. */
static const char *refusal(const struct gpu *gpu, const struct grouped_sizes_list *s)
{
    bool any = false;
    if (!gpu) return "the CPU computes";
    for (int64_t i = 0; i < s->n_groups; i++) {
        if (s->n[i] % 8) return "n is no multiple of 8";
        any = any || (s->m[i] && s->n[i]);
    }
    return any ? NULL : "there is nothing to multiply";
}

/* An interruption is all that ends the run. */
static enum sol_status left_out(enum sol_status status, struct grouped_peer_times *out)
{
    if (status == SOL_OK) return figure_of_one(out->ns, BENCH_OP_REPETITIONS, &out->figure);
    if (status == SOL_E_INTERRUPTED) return status;
    out->plain = false;
    snprintf(out->why, sizeof out->why, "%s", sol_last_error());
    return SOL_OK;
}

static enum sol_status run_all(struct peers *p, const struct grouped_sizes_list *s,
                               struct grouped_peer_times out[GROUPED_PEERS])
{
    enum sol_status made = make_peers(p, s);
    for (int i = 0; i < GROUPED_PEERS; i++) {
        if (*out[i].why) continue;
        enum sol_status status = made;
        if (made == SOL_OK) status = time_peer(p, (enum grouped_peer)i, &out[i]);
        status = left_out(status, &out[i]);
        gpu_graph_destroy(p->graph);
        p->graph = NULL;
        SOL_TRY(status);
    }
    return SOL_OK;
}

enum sol_status grouped_peers_run(struct gpu *gpu, const struct grouped_sizes_list *sizes,
                                  bool gated, struct grouped_peer_times out[GROUPED_PEERS])
{
    bool any = false;
    for (int i = 0; i < GROUPED_PEERS; i++) {
        const char *why = refusal(gpu, sizes);
        out[i] = (struct grouped_peer_times){.plain = false};
        if (!why) is_missing((enum grouped_peer)i, &why);
        snprintf(out[i].why, sizeof out[i].why, "%s", why ? why : "");
        SOL_TRY(figure_of_one(NULL, 0, &out[i].figure));
        any = any || !why;
    }
    if (!any) return SOL_OK;
    struct peers *p = calloc(1, sizeof *p);
    if (!p) return status_set(SOL_E_MEMORY, "no memory for the libraries' operands");
    p->gpu = gpu;
    p->parts = gated ? 2 : 1;
    enum sol_status status = run_all(p, sizes, out);
    close_peers(p);
    return status;
}
