/* See op.h. */
#include "bench/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "gpu/device.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/ops.h"
#include "stats/statistics.h"

enum { SETS_MAX = 16, OWNED_MAX = 16 * SETS_MAX, REPETITIONS = 15, TEXT_MAX = 64 };

struct spec {
    const struct op *op;
    int64_t m, n, k, groups, top_k;
    double skew;
    enum dtype dtype;
    char check[TEXT_MAX];
};

struct run {
    struct spec spec;
    const struct chooser *chooser;
    struct gpu *gpu;
    struct arena *arena; /* host copies */
    struct rng rng;
    void *args[SETS_MAX];
    int sets;
    void *owned[OWNED_MAX]; /* device memory */
    int n_owned;
    double weight_bytes, rows_min, rows_max; /* of a set; rows of the groups */
    double touched;                          /* groups with rows */
};

/* ---- the spec ---- */

static enum sol_status set_key(struct spec *s, const char *text, const char *key, const char *value)
{
    const struct {
        const char *name;
        int64_t *to;
    } numbers[] = {
        {"m", &s->m}, {"n", &s->n}, {"k", &s->k}, {"groups", &s->groups}, {"top_k", &s->top_k}};
    char *end;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(key, numbers[i].name) != 0) continue;
        *numbers[i].to = strtoll(value, &end, 10);
        if (end == value || *end || *numbers[i].to < 1 || *numbers[i].to > 1 << 24)
            return status_set(SOL_E_ARGUMENT, "--op %s: %s is to be a positive number", text, key);
        return SOL_OK;
    }
    if (strcmp(key, "check") == 0) {
        snprintf(s->check, sizeof s->check, "%s", value);
        return SOL_OK;
    }
    if (strcmp(key, "skew") == 0) {
        s->skew = strtod(value, &end);
        if (end != value && !*end && s->skew >= 0 && s->skew <= 10) return SOL_OK;
        return status_set(SOL_E_ARGUMENT, "--op %s: skew is to be 0 to 10", text);
    }
    if (strcmp(key, "dtype") == 0) {
        bool known = dtype_from_name(value, &s->dtype);
        if (known && (s->dtype == DTYPE_BF16 || s->dtype == DTYPE_MXFP4 || s->dtype == DTYPE_Q8_0))
            return SOL_OK;
        return status_set(SOL_E_ARGUMENT, "--op %s: dtype is to be bf16, mxfp4 or q8_0", text);
    }
    return status_set(SOL_E_ARGUMENT,
                      "--op %s: no such key '%s'; known: m n k groups top_k dtype skew check", text,
                      key);
}

static enum sol_status parse(const char *text, struct spec *s)
{
    char copy[256], *rest = copy, *item;
    *s = (struct spec){.groups = 1, .top_k = 1, .dtype = DTYPE_BF16};
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return status_set(SOL_E_ARGUMENT, "--op: a text of more than %zu characters", sizeof copy);
    item = strsep(&rest, ":");
    s->op = op_find(item);
    if (s->op != &op_gemm && s->op != &op_moe_up && s->op != &op_moe_down)
        return status_set(SOL_E_ARGUMENT,
                          "--op %s: the ops timed alone are gemm, moe_up and moe_down", text);
    if (s->op != &op_gemm) s->dtype = DTYPE_MXFP4, s->groups = 32, s->top_k = 4;
    while ((item = strsep(&rest, ","))) {
        char *key = strsep(&item, "=");
        if (!item) return status_set(SOL_E_ARGUMENT, "--op %s: write key=value", text);
        SOL_TRY(set_key(s, text, key, item));
    }
    if (!s->m || !s->n || !s->k)
        return status_set(SOL_E_ARGUMENT, "--op %s: m, n and k are needed", text);
    if (s->k % 32 || (s->op != &op_gemm && s->n % 32))
        return status_set(SOL_E_ARGUMENT, "--op %s: k is to be a multiple of 32, n too for experts",
                          text);
    if (s->top_k > s->groups)
        return status_set(SOL_E_ARGUMENT, "--op %s: top_k is more than groups", text);
    return SOL_OK;
}

/* ---- buffers ---- */

static enum sol_status take(struct run *r, size_t bytes, void **out)
{
    if (r->n_owned == OWNED_MAX)
        return status_set(SOL_E_INTERNAL, "more than %d buffers", OWNED_MAX);
    SOL_TRY(gpu_alloc(r->gpu, "bench", bytes, out));
    r->owned[r->n_owned++] = *out;
    return SOL_OK;
}

static enum sol_status to_device(struct run *r, const void *from, size_t bytes, void **out)
{
    SOL_TRY(take(r, bytes, out));
    return gpu_copy_in(r->gpu, *out, from, bytes);
}

static enum sol_status floats(struct run *r, int64_t count, float scale, const float **out)
{
    float *x = malloc((size_t)count * sizeof *x);
    if (!x) return status_set(SOL_E_MEMORY, "no memory for activations");
    for (int64_t i = 0; i < count; i++) x[i] = scale * rng_normal(&r->rng);
    void *memory;
    enum sol_status status = to_device(r, x, (size_t)count * sizeof *x, &memory);
    *out = memory;
    free(x);
    return status;
}

/* Weights of sd about 0.02, drawn as bits: their encoding would take longer than everything else.
 */
static void random_weights(struct rng *rng, enum dtype dtype, uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t bits = rng_next(rng);
        if (dtype == DTYPE_BF16) /* sign and mantissa as drawn, exponents 2^-7 and 2^-6 */
            bits = (bits & 0x80ff80ff80ff80ffu) | 0x3c003c003c003c00u;
        memcpy(data + i, &bits, 8);
    }
    if (dtype == DTYPE_MXFP4)
        for (size_t i = 0; i < bytes; i += 17) data[i] = (uint8_t)(119 + data[i] % 3);
    const uint16_t scale = f16_from_f32(0x1p-12f);
    for (size_t i = 0; dtype == DTYPE_Q8_0 && i < bytes; i += 34) {
        uint16_t drawn = (uint16_t)(scale + data[i]); /* with a random part of its mantissa */
        memcpy(data + i, &drawn, sizeof drawn);
    }
}

static enum sol_status weights(struct run *r, int64_t rows, int64_t cols, struct tensor *out)
{
    struct tensor t = {
        .dtype = r->spec.dtype, .groups = r->spec.groups, .rows = rows, .cols = cols};
    size_t bytes = tensor_bytes(&t);
    void *memory, *staging;
    uint8_t *data = malloc(bytes + 8);
    if (!data) return status_set(SOL_E_MEMORY, "no memory for weights");
    random_weights(&r->rng, t.dtype, data, bytes);
    t.data = data;
    enum sol_status status = take(r, tensor_packed_bytes(&t), &memory);
    if (status == SOL_OK) status = gpu_alloc(r->gpu, "bench", PACK_STAGING, &staging);
    if (status == SOL_OK) {
        status = tensor_pack(r->gpu, &t, memory, staging, out);
        enum sol_status waited = gpu_wait(r->gpu);
        if (status == SOL_OK) status = waited;
        gpu_free(r->gpu, staging);
    }
    free(data);
    r->weight_bytes += (double)bytes;
    return status;
}

/* Experts drawn by logits of sd 1, those of later experts lower by `skew` in all. */
static enum sol_status routing(struct run *r, struct routing *out)
{
    const struct spec *s = &r->spec;
    int64_t slots = s->m * s->top_k;
    float *logits = ARENA_NEW(r->arena, float, s->m * s->groups);
    struct routing host = {
        .weight = ARENA_NEW(r->arena, float, slots),
        .expert = ARENA_NEW(r->arena, int32_t, slots),
        .group_offsets = ARENA_NEW(r->arena, int32_t, s->groups + 1),
        .token_of_row = ARENA_NEW(r->arena, int32_t, slots),
        .row_of_slot = ARENA_NEW(r->arena, int32_t, slots),
    };
    if (!logits || !host.row_of_slot) return SOL_E_MEMORY;
    for (int64_t i = 0; i < s->m * s->groups; i++)
        logits[i] =
            rng_normal(&r->rng) - (float)(s->skew * (double)(i % s->groups) / (double)s->groups);
    op_route.reference(NULL, &(struct route_args){.m = s->m,
                                                  .n_experts = s->groups,
                                                  .top_k = s->top_k,
                                                  .logits = logits,
                                                  .routing = host});
    r->touched = 0, r->rows_min = INFINITY, r->rows_max = 0;
    for (int64_t g = 0; g < s->groups; g++) {
        double rows = host.group_offsets[g + 1] - host.group_offsets[g];
        r->touched += rows > 0;
        r->rows_min = fmin(r->rows_min, rows);
        r->rows_max = fmax(r->rows_max, rows);
    }
    size_t bytes = (size_t)slots * 4;
    *out = host;
    SOL_TRY(to_device(r, host.weight, bytes, (void **)&out->weight));
    SOL_TRY(to_device(r, host.expert, bytes, (void **)&out->expert));
    SOL_TRY(to_device(r, host.token_of_row, bytes, (void **)&out->token_of_row));
    SOL_TRY(to_device(r, host.row_of_slot, bytes, (void **)&out->row_of_slot));
    return to_device(r, host.group_offsets, (size_t)(s->groups + 1) * 4,
                     (void **)&out->group_offsets);
}

static enum sol_status make_gemm(struct run *r, struct gemm_args *a)
{
    const struct spec *s = &r->spec;
    bool grouped = s->groups > 1;
    *a = (struct gemm_args){.m = s->m * s->top_k, .n = s->n, .k = s->k, .a_count = s->m};
    SOL_TRY(weights(r, s->n, s->k, &a->w));
    SOL_TRY(floats(r, s->m * s->k, 1, &a->a));
    SOL_TRY(floats(r, s->groups * s->n, 1, &a->bias));
    SOL_TRY(take(r, (size_t)(a->m * s->n) * 4, (void **)&a->c));
    if (!grouped) return SOL_OK;
    struct routing routes;
    SOL_TRY(routing(r, &routes));
    a->a_rows = routes.token_of_row;
    a->group_offsets = routes.group_offsets;
    return SOL_OK;
}

static enum sol_status make_up(struct run *r, struct moe_up_args *a)
{
    const struct spec *s = &r->spec;
    *a = (struct moe_up_args){.m = s->m,
                              .hidden = s->k,
                              .intermediate = s->n,
                              .top_k = s->top_k,
                              .alpha = 1.702f,
                              .limit = 7};
    SOL_TRY(weights(r, s->n, s->k, &a->gate));
    SOL_TRY(weights(r, s->n, s->k, &a->up));
    SOL_TRY(floats(r, s->m * s->k, 1, &a->normed));
    SOL_TRY(floats(r, s->groups * s->n, 1, &a->gate_bias));
    SOL_TRY(floats(r, s->groups * s->n, 1, &a->up_bias));
    SOL_TRY(routing(r, &a->routing));
    return take(r, (size_t)(s->m * s->top_k * s->n) * 4, (void **)&a->act);
}

static enum sol_status make_down(struct run *r, struct moe_down_args *a)
{
    const struct spec *s = &r->spec;
    *a = (struct moe_down_args){.m = s->m, .hidden = s->n, .intermediate = s->k, .top_k = s->top_k};
    SOL_TRY(weights(r, s->n, s->k, &a->down));
    SOL_TRY(floats(r, s->m * s->top_k * s->k, 1, &a->act));
    SOL_TRY(floats(r, s->groups * s->n, 1, &a->down_bias));
    SOL_TRY(routing(r, &a->routing));
    return floats(r, s->m * s->n, 1, (const float **)&a->x);
}

/* As many as are together four times the cache, at least two. */
static enum sol_status make_sets(struct run *r)
{
    double wanted = 4.0 * (double)gpu_info(r->gpu)->l2_bytes;
    for (r->sets = 0; r->sets < SETS_MAX; r->sets++) {
        if (r->sets >= 2 && r->weight_bytes * r->sets >= wanted) break;
        void *args = arena_alloc(r->arena, r->spec.op->args_size, 64);
        if (!args) return SOL_E_MEMORY;
        r->args[r->sets] = args;
        r->weight_bytes = 0;
        if (r->spec.op == &op_gemm)
            SOL_TRY(make_gemm(r, args));
        else if (r->spec.op == &op_moe_up)
            SOL_TRY(make_up(r, args));
        else
            SOL_TRY(make_down(r, args));
    }
    return SOL_OK;
}

/* ---- running ---- */

static enum sol_status make_plan(const struct run *r, const struct chooser *chooser, int sets,
                                 struct plan **out)
{
    SOL_TRY(plan_create(chooser, out));
    for (int i = 0; i < sets; i++) plan_call(*out, r->spec.op, r->args[i]);
    return plan_finish(*out);
}

/* The op's output of set 0. */
static enum sol_status output(const struct run *r, const struct chooser *chooser, float **out,
                              struct op_output *what)
{
    struct plan *plan = NULL;
    struct op_output outputs[OP_OUTPUTS_MAX];
    r->spec.op->outputs(r->args[0], outputs);
    *what = outputs[0];
    void *device = *(void **)((char *)r->args[0] + what->offset);
    *out = malloc(what->bytes);
    if (!*out) return status_set(SOL_E_MEMORY, "no memory for a result");
    enum sol_status status = make_plan(r, chooser, 1, &plan);
    /* What is added in place begins as zeros, so that nothing else is compared; elsewhere this
     * shows what was not written. */
    if (status == SOL_OK) status = gpu_zero(r->gpu, device, what->bytes);
    if (status == SOL_OK) status = plan_run(plan, NULL, false, NULL);
    if (status == SOL_OK) status = gpu_copy_out(r->gpu, *out, device, what->bytes);
    enum sol_status waited = gpu_wait(r->gpu);
    plan_destroy(plan);
    return status == SOL_OK ? waited : status;
}

/* Largest relative error of a row of `a`, with `b` taken as true. */
static double worst_row(const float *a, const float *b, const struct op_output *what)
{
    double worst = 0;
    int64_t n = what->row, rows = (int64_t)(what->bytes / 4) / n;
    for (int64_t r = 0; r < rows; r++) {
        double error = 0, norm = 0;
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double d = (double)a[i] - b[i];
            error += d * d;
            norm += (double)b[i] * b[i];
        }
        double relative = norm > 0 ? sqrt(error / norm) : error > 0 ? INFINITY : 0;
        if (!(relative <= worst)) worst = relative; /* NaN too */
    }
    return worst;
}

static enum sol_status check(const struct run *r, double *error)
{
    float *mine = NULL, *theirs = NULL;
    struct op_output what;
    struct chooser other = *r->chooser;
    char force[2 * TEXT_MAX];
    bool composed = strcmp(r->spec.check, "composed") == 0;
    if (r->spec.op != &op_gemm)
        SOL_TRY(chooser_force(&other, composed ? "moe_up=composed" : "moe_down=composed"));
    snprintf(force, sizeof force, "%s=%s",
             r->spec.op == &op_gemm || !composed ? "gemm" : r->spec.op->name, r->spec.check);
    SOL_TRY(chooser_force(&other, force));
    if (r->spec.op == &op_moe_up) SOL_TRY(chooser_force(&other, "moe_up=composed"));
    enum sol_status status = output(r, r->chooser, &mine, &what);
    if (status == SOL_OK) status = output(r, &other, &theirs, &what);
    if (status == SOL_OK) *error = worst_row(mine, theirs, &what);
    free(mine);
    free(theirs);
    return status;
}

static enum sol_status time_plan(const struct run *r, struct plan *plan, double ns[REPETITIONS])
{
    struct gpu_event *start = NULL, *end = NULL;
    enum sol_status status = gpu_event_create(r->gpu, &start);
    if (status == SOL_OK) status = gpu_event_create(r->gpu, &end);
    for (int i = -3; status == SOL_OK && i < REPETITIONS; i++) { /* the first load and capture */
        double took = 0;
        status = gpu_event_record(start);
        if (status == SOL_OK) status = plan_run(plan, NULL, false, NULL);
        if (status == SOL_OK) status = gpu_event_record(end);
        if (status == SOL_OK) status = gpu_event_elapsed(start, end, &took);
        if (status == SOL_OK) status = gpu_wait(r->gpu);
        if (i >= 0) ns[i] = took / r->sets;
    }
    gpu_event_destroy(start);
    gpu_event_destroy(end);
    return status;
}

/* ---- reporting ---- */

enum sol_status bench_op_table(struct table **out)
{
    return table_create(
        "op|shape|rows a group|variant|>us|>spread %|>TFLOP/s|>TB/s of weights|>error", out);
}

static enum sol_status report(const struct run *r, const struct plan *plan, const double *ns,
                              double error, struct table *table)
{
    const struct spec *s = &r->spec;
    struct statistics t;
    SOL_TRY(statistics_of(ns, REPETITIONS, &t));
    double products = s->op == &op_moe_up ? 2 : 1;
    double flops = 2.0 * products * (double)(s->m * s->top_k) * (double)s->n * (double)s->k;
    double bytes = r->weight_bytes * (s->groups > 1 ? r->touched / (double)s->groups : 1);
    table_cell(table, "%s", s->op->name);
    table_cell(table, "m=%lld n=%lld k=%lld %s", (long long)s->m, (long long)s->n, (long long)s->k,
               dtype_info(s->dtype)->name);
    if (s->groups > 1)
        table_cell(table, "%.0f-%.0f", r->rows_min, r->rows_max);
    else
        table_cell(table, "-");
    table_cell(table, "%s", plan_step_at(plan, 0)->variant);
    table_cell(table, "%.1f", t.median / 1e3);
    table_cell(table, "%.1f", 100 * (t.max - t.min) / t.median);
    table_cell(table, "%.1f", flops / t.median / 1e3);
    table_cell(table, "%.2f", bytes / t.median / 1e3);
    return *s->check ? table_cell(table, "%.1e", error) : table_cell(table, "-");
}

static enum sol_status time_spec(struct run *r, struct table *table)
{
    struct plan *plan = NULL;
    double ns[REPETITIONS], error = 0;
    SOL_TRY(make_sets(r));
    if (*r->spec.check) SOL_TRY(check(r, &error));
    enum sol_status status = make_plan(r, r->chooser, r->sets, &plan);
    if (status == SOL_OK) status = time_plan(r, plan, ns);
    if (status == SOL_OK) status = report(r, plan, ns, error, table);
    plan_destroy(plan);
    return status;
}

enum sol_status bench_op(const struct chooser *chooser, const char *text, struct table *table)
{
    struct run r = {.chooser = chooser, .gpu = chooser->device.gpu};
    SOL_TRY(parse(text, &r.spec));
    if (!r.gpu) return status_set(SOL_E_ARGUMENT, "--op needs a GPU: add --backend cuda");
    SOL_TRY(arena_create(1 << 20, &r.arena));
    rng_seed(&r.rng, 1);
    enum sol_status status = time_spec(&r, table);
    for (int i = 0; i < r.n_owned; i++) gpu_free(r.gpu, r.owned[i]);
    arena_destroy(r.arena);
    return status;
}
