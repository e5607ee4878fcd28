/* See op.h. */
#include "bench/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "bench/op_private.h"
#include "gpu/device.h"
#include "gpu/watch.h"
#include "ops/ops.h"
#include "stats/statistics.h"

enum { REPETITIONS = BENCH_OP_REPETITIONS, WARM = 3 };

/* ---- running ---- */

static enum sol_status make_plan(const struct run *r, const struct chooser *chooser, int sets,
                                 struct plan **out)
{
    SOL_TRY(plan_create(chooser, out));
    for (int i = 0; i < sets; i++) plan_call(*out, r->spec.op, r->sets[i].args);
    return plan_finish(*out);
}

static enum sol_status copy(const struct run *r, void *to, const void *from, size_t bytes, bool in)
{
    if (!r->gpu)
        memcpy(to, from, bytes);
    else
        return in ? gpu_copy_in(r->context.stream, to, from, bytes)
                  : gpu_copy_out(r->context.stream, to, from, bytes);
    return SOL_OK;
}

/* What the call of the first set makes of its outputs, which are there and in `bytes` as they were
 * made. */
static enum sol_status run_first(const struct run *r, const struct chooser *chooser,
                                 const struct op_output *outputs, int count,
                                 void *bytes[OP_OUTPUTS_MAX])
{
    struct plan *plan = NULL;
    const struct set *set = &r->sets[0];
    enum sol_status status = make_plan(r, chooser, 1, &plan);
    for (int in = 1; status == SOL_OK && in >= 0; in--) {
        for (int i = 0; status == SOL_OK && i < count; i++) {
            void *there = *(void **)((char *)set->args + outputs[i].offset);
            status = copy(r, in ? there : bytes[i], in ? bytes[i] : there, outputs[i].bytes, in);
        }
        if (in && status == SOL_OK) status = plan_run(plan, &r->context, false, NULL);
    }
    enum sol_status waited = r->gpu ? gpu_wait(r->context.stream) : SOL_OK;
    plan_destroy(plan);
    return status == SOL_OK ? waited : status;
}

/* Largest relative error of a row of `a`, with `b` taken as true. */
static double worst_row(const void *a, const void *b, const struct op_output *what)
{
    double worst = 0;
    int64_t n = what->row, rows = (int64_t)what->bytes / op_output_size(what) / n;
    for (int64_t r = 0; r < rows; r++) {
        double error = 0, norm = 0;
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double right = op_output_number(what, b, i);
            double d = op_output_number(what, a, i) - right;
            error += d * d;
            norm += right * right;
        }
        double relative = norm > 0 ? sqrt(error / norm) : error > 0 ? INFINITY : 0;
        if (!(relative <= worst)) worst = relative; /* NaN too */
    }
    return worst;
}

/* A variant of the op, or of the products that it is made of. */
static enum sol_status chooser_of_check(const struct run *r, struct chooser *out)
{
    const struct op *op = r->spec.op;
    char force[2 * TEXT_MAX];
    bool own = !op->compose;
    for (int v = 0; v < op_variant_count(op); v++)
        own |= strcmp(op_variant_name(op, v), r->spec.check) == 0;
    *out = *r->chooser;
    snprintf(force, sizeof force, "%s=%s", own ? op->name : "gemm", r->spec.check);
    SOL_TRY(chooser_force(out, force));
    if (own) return SOL_OK;
    snprintf(force, sizeof force, "%s=%s", op->name, op_variant_name(op, op->n_variants));
    return chooser_force(out, force);
}

static enum sol_status check(const struct run *r, double *error)
{
    const struct op *op = r->spec.op;
    struct chooser other;
    struct op_output outputs[OP_OUTPUTS_MAX];
    void *mine[OP_OUTPUTS_MAX] = {NULL}, *theirs[OP_OUTPUTS_MAX] = {NULL};
    SOL_TRY(chooser_of_check(r, &other));
    int count = op_outputs(op, r->sets[0].host_args, false, outputs);
    enum sol_status status = SOL_OK;
    for (int i = 0; status == SOL_OK && i < count; i++) {
        const void *original = *(void **)((char *)r->sets[0].host_args + outputs[i].offset);
        mine[i] = malloc(outputs[i].bytes);
        theirs[i] = malloc(outputs[i].bytes);
        if (!mine[i] || !theirs[i]) {
            status = status_set(SOL_E_MEMORY, "no memory for a result");
            break;
        }
        memcpy(mine[i], original, outputs[i].bytes);
        memcpy(theirs[i], original, outputs[i].bytes);
    }
    if (status == SOL_OK) status = run_first(r, r->chooser, outputs, count, mine);
    if (status == SOL_OK) status = run_first(r, &other, outputs, count, theirs);
    for (int i = 0; i < count; i++) {
        /* Beside float32, bytes are rounded numbers, or follow from them. */
        bool bytes = !outputs[i].is_number && !outputs[0].is_number;
        double one = 0;
        if (status == SOL_OK && outputs[i].is_number)
            one = worst_row(mine[i], theirs[i], &outputs[i]);
        if (status == SOL_OK && bytes && memcmp(mine[i], theirs[i], outputs[i].bytes) != 0)
            one = (double)INFINITY;
        if (!(one <= *error)) *error = one; /* NaN too */
        free(mine[i]);
        free(theirs[i]);
    }
    return status;
}

static enum sol_status time_on_gpu(const struct run *r, struct plan *plan, double *took,
                                   struct gpu_event *const events[2])
{
    SOL_TRY(gpu_event_record(events[0], r->context.stream));
    SOL_TRY(plan_run(plan, &r->context, false, NULL));
    SOL_TRY(gpu_event_record(events[1], r->context.stream));
    SOL_TRY(gpu_event_elapsed(events[0], events[1], took));
    return gpu_wait(r->context.stream);
}

static enum sol_status time_plan(const struct run *r, struct plan *plan, double ns[REPETITIONS])
{
    struct gpu_event *events[2] = {NULL, NULL};
    enum sol_status status = SOL_OK;
    for (int i = 0; r->gpu && status == SOL_OK && i < 2; i++)
        status = gpu_event_create(r->gpu, &events[i]);
    for (int i = -WARM; status == SOL_OK && i < REPETITIONS; i++) { /* the first load and capture */
        double took = 0;
        uint64_t start = clock_ns();
        if (r->gpu)
            status = time_on_gpu(r, plan, &took, events);
        else
            status = plan_run(plan, &r->context, false, NULL);
        if (!r->gpu) took = (double)(clock_ns() - start);
        if (i >= 0) ns[i] = took / r->n_sets;
    }
    gpu_event_destroy(events[0]);
    gpu_event_destroy(events[1]);
    return status;
}

/* ---- reporting ---- */

enum sol_status bench_op_print(const json_t *rows, enum table_format format, FILE *to)
{
    struct table *table;
    json_t *row;
    size_t i;
    SOL_TRY(table_create("op|~shape|-rows a group|=variant|>us|>-spread %|>TFLOP/s|>TB/s|>-scratch "
                         "MiB|>error",
                         &table));
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        const char *groups = json_string_value(json_object_get(row, "group_rows"));
        const json_t *error = json_object_get(row, "error");
        table_cell(table, "%s", json_string_value(json_object_get(row, "op")));
        table_cell(table, "%s", json_string_value(json_object_get(row, "shape")));
        table_cell(table, "%s", groups ? groups : "-");
        table_cell(table, "%s", json_string_value(json_object_get(row, "variant")));
        table_cell(table, "%.1f", json_number_value(json_object_get(row, "us")));
        table_cell(table, "%.1f", json_number_value(json_object_get(row, "spread_percent")));
        table_number(table, json_number_value(json_object_get(row, "tflop_s")), 3);
        table_number(table, json_number_value(json_object_get(row, "tb_s")), 3);
        table_number(table, json_number_value(json_object_get(row, "scratch_bytes")) / (1 << 20),
                     3);
        if (json_is_number(error))
            table_cell(table, "%.1e", json_number_value(error));
        else
            table_cell(table, "%s", json_is_string(error) ? json_string_value(error) : "-");
    }
    table_print(table, format, to);
    table_destroy(table);
    return SOL_OK;
}

/* "m=300 n=64 k=128 bf16" */
static void describe_shape(const struct spec *s, char *text, size_t size)
{
    struct op_problem p = s->problem;
    bool grouped = s->op == &op_gemm && p.top_k;
    int at = snprintf(text, size, "m=%lld", (long long)(grouped ? p.rows / p.top_k : p.rows));
    for (int i = 1; i < OP_SIZES; i++) {
        const int64_t *value = op_size(&p, i);
        const char *const *words = op_size_words(i);
        if (*value && words)
            at += snprintf(text + at, size - (size_t)at, " %s=%s", op_size_name(i), words[*value]);
        else if (*value && value != &p.groups && value != &p.top_k && value != &p.sequences)
            at += snprintf(text + at, size - (size_t)at, " %s=%lld", op_size_name(i),
                           (long long)*value);
    }
    if (p.sequences)
        at += snprintf(text + at, size - (size_t)at, " sequences=%lld depth=%lld",
                       (long long)s->sequences, (long long)s->depth);
    snprintf(text + at, size - (size_t)at, " %s", dtype_info(p.dtype)->name);
}

/* "40-70", of the set that was made last. */
static void describe_groups(const struct run *r, char *text, size_t size)
{
    const struct case_maker *made = &r->sets[r->n_sets - 1].made;
    const int32_t *offsets = made->routing.group_offsets;
    int32_t least = INT32_MAX, most = 0;
    *text = '\0';
    if (!r->spec.problem.groups || !offsets) return;
    for (int64_t g = 0; g < made->n_experts; g++) {
        int32_t rows = offsets[g + 1] - offsets[g];
        if (rows < least) least = rows;
        if (rows > most) most = rows;
    }
    snprintf(text, size, "%d-%d", least, most);
}

static struct op_cost mean_cost(const struct run *r)
{
    struct op_cost cost = {0, 0};
    for (int i = 0; i < r->n_sets; i++) {
        struct op_cost one = r->spec.op->cost(r->sets[i].host_args);
        cost.flops += one.flops / r->n_sets;
        cost.bytes += one.bytes / r->n_sets;
    }
    return cost;
}

static const char *variant_of(const struct run *r)
{
    return op_variant_name(r->spec.op, chooser_choose(r->chooser, r->spec.op, r->sets[0].args));
}

/* With the sizes of a composition, which are what one compares: "chunked:1024". */
static void describe_variant(const struct run *r, char *text, size_t size)
{
    const struct op *op = r->spec.op;
    const void *args = r->sets[0].args;
    const int v = chooser_choose(r->chooser, op, args);
    const char *choice = op_choice_name(op, v, chooser_choice(r->chooser, op, v, args));
    const bool named = op_is_composed(op, v) && *choice;
    snprintf(text, size, "%s%s%s", variant_of(r), named ? ":" : "", named ? choice : "");
}

static enum sol_status report(const struct run *r, const struct plan *plan, const double *ns,
                              double error, json_t *rows)
{
    const struct spec *s = &r->spec;
    struct statistics t;
    char shape[256], groups[64], variant[2 * TEXT_MAX];
    const struct op_cost cost = mean_cost(r);
    SOL_TRY(statistics_of(ns, REPETITIONS, &t));
    describe_shape(s, shape, sizeof shape);
    describe_groups(r, groups, sizeof groups);
    describe_variant(r, variant, sizeof variant);
    /* What is not finite is no number of JSON. */
    json_t *wrong = !*s->check        ? json_null()
                    : isfinite(error) ? json_real(error)
                                      : json_string("not finite");
    json_t *row =
        json_pack("{s:s, s:s, s:s?, s:s, s:f, s:f, s:f, s:f, s:I, s:o}", "op", s->op->name, "shape",
                  shape, "group_rows", *groups ? groups : NULL, "variant", variant, "us",
                  t.median / 1e3, "spread_percent", 100 * (t.max - t.min) / t.median, "tflop_s",
                  cost.flops / t.median / 1e3, "tb_s", cost.bytes / t.median / 1e3, "scratch_bytes",
                  (json_int_t)plan_bytes(plan), "error", wrong);
    if (!row || json_array_append_new(rows, row) != 0)
        return status_set(SOL_E_MEMORY, "no memory for a result");
    return SOL_OK;
}

/* The spec's own variant counts more than what is forced for all. */
static enum sol_status force_own(struct run *r)
{
    char force[2 * TEXT_MAX];
    if (!*r->spec.variant) return SOL_OK;
    r->own = *r->chooser;
    r->chooser = &r->own;
    snprintf(force, sizeof force, "%s=%s", r->spec.op->name, r->spec.variant);
    return chooser_force(&r->own, force);
}

/* Which has to serve the problem: another one's time would stand under the wrong name. */
static enum sol_status check_own(const struct run *r)
{
    const struct op *op = r->spec.op;
    const char *wanted = *r->spec.variant ? r->own.forces[r->own.n_forces - 1].variant : "";
    char why[OP_REASON_MAX];
    for (int v = 0; v < op_variant_count(op); v++)
        if (strcmp(op_variant_name(op, v), wanted) == 0 &&
            !chooser_can_run(r->chooser, op, v, r->sets[0].args, why))
            return status_set(SOL_E_UNSUPPORTED, "--op %s: %s does not serve it: %s", op->name,
                              wanted, why);
    return SOL_OK;
}

static enum sol_status time_spec(struct run *r, json_t *rows)
{
    struct plan *plan = NULL;
    double ns[REPETITIONS], error = 0;
    SOL_TRY(bench_op_make_sets(r));
    SOL_TRY(check_own(r));
    if (*r->spec.check) SOL_TRY(check(r, &error));
    enum sol_status status = make_plan(r, r->chooser, r->n_sets, &plan);
    if (status == SOL_OK) status = time_plan(r, plan, ns);
    if (status == SOL_OK) status = report(r, plan, ns, error, rows);
    plan_destroy(plan);
    return status;
}

/* The host has everything once, a GPU twice where weights are packed. */
static enum sol_status find_room(struct run *r)
{
    size_t free_there;
    r->room = memory_available();
    if (r->room == 0) r->room = SIZE_MAX;
    if (!r->gpu) return SOL_OK;
    SOL_TRY(gpu_memory_free(r->gpu, &free_there));
    if (free_there / 2 < r->room) r->room = free_there / 2;
    return SOL_OK;
}

static enum sol_status open_run(const struct chooser *chooser, struct run **out)
{
    struct run *r = *out = calloc(1, sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for a run");
    r->chooser = chooser;
    r->gpu = chooser->device.gpu;
    rng_seed(&r->rng, 1);
    SOL_TRY(find_room(r));
    SOL_TRY(pool_create(chooser->device.workers, &r->context.pool));
    return r->gpu ? gpu_stream_create(r->gpu, &r->context.stream) : SOL_OK;
}

static void close_run(struct run *r)
{
    if (!r) return;
    for (int i = 0; i < r->n_sets; i++) bench_op_free_set(r, &r->sets[i]);
    gpu_stream_destroy(r->context.stream);
    pool_destroy(r->context.pool);
    free(r);
}

static enum sol_status bench_one(const struct chooser *chooser, const char *text, json_t *rows)
{
    struct run *r;
    enum sol_status status = open_run(chooser, &r);
    if (status == SOL_OK) status = bench_op_parse(text, &r->spec);
    if (status == SOL_OK) status = force_own(r);
    if (status == SOL_OK) status = time_spec(r, rows);
    close_run(r);
    return status;
}

static enum sol_status time_call(struct run *r, struct bench_op_times *out)
{
    struct plan *plan = NULL;
    SOL_TRY(bench_op_make_sets(r));
    enum sol_status status = make_plan(r, r->chooser, r->n_sets, &plan);
    if (status == SOL_OK) status = time_plan(r, plan, out->ns);
    if (status == SOL_OK) {
        out->variant = variant_of(r);
        out->cost = mean_cost(r);
    }
    plan_destroy(plan);
    return status;
}

enum sol_status bench_op_time(const struct chooser *chooser, const struct bench_op_call *call,
                              struct bench_op_times *out)
{
    struct run *r;
    enum sol_status status = open_run(chooser, &r);
    if (status == SOL_OK) {
        r->spec.op = call->op;
        r->spec.call = call;
        status = time_call(r, out);
    }
    close_run(r);
    return status;
}

/* ---- which kernels ---- */

struct watched {
    struct gpu_watched seen[BENCH_OP_KERNELS];
    double ns[BENCH_OP_KERNELS][REPETITIONS];
};

static enum sol_status watch_call(const struct run *r, struct plan *plan, int repetition,
                                  struct watched *w, int *count)
{
    struct gpu_watch *watch = NULL;
    uint64_t start = clock_ns();
    *count = 1;
    if (r->gpu) SOL_TRY(gpu_watch_begin(r->context.stream, BENCH_OP_KERNELS, &watch));
    enum sol_status status = plan_run(plan, &r->context, true, NULL); /* timed: without a graph */
    w->seen[0].ns = (double)(clock_ns() - start);
    enum sol_status waited = r->gpu ? gpu_watch_end(watch, w->seen, count) : SOL_OK;
    for (int i = 0; i < *count && i < BENCH_OP_KERNELS && repetition >= 0; i++)
        w->ns[i][repetition] = w->seen[i].ns;
    return status == SOL_OK ? waited : status;
}

/* Sets of buffers in turn, so that a call finds the cache as it does when it is timed. */
static enum sol_status watch_calls(struct run *r, struct plan *plans[SETS_MAX], struct watched *w,
                                   int *count)
{
    SOL_TRY(bench_op_make_sets(r));
    for (int i = 0; i < r->n_sets; i++) {
        SOL_TRY(plan_create(r->chooser, &plans[i]));
        plan_call(plans[i], r->spec.op, r->sets[i].args);
        SOL_TRY(plan_finish(plans[i]));
    }
    for (int i = -WARM; i < REPETITIONS; i++)
        SOL_TRY(watch_call(r, plans[(i + WARM) % r->n_sets], i, w, count));
    return SOL_OK;
}

static enum sol_status fill_kernels(const struct run *r, const struct plan *plan,
                                    const struct watched *w, int count,
                                    struct bench_op_kernels *out)
{
    *out = (struct bench_op_kernels){.variant = variant_of(r),
                                     .choice = plan_step_at(plan, 0)->choice,
                                     .count = count,
                                     .launches = r->gpu ? count : 0};
    for (int i = 0; i < count && i < BENCH_OP_KERNELS; i++) {
        struct statistics t;
        SOL_TRY(statistics_of(w->ns[i], REPETITIONS, &t));
        out->list[i].ns = t.median;
        snprintf(out->list[i].name, sizeof out->list[i].name, "%s",
                 r->gpu ? w->seen[i].name : out->variant);
    }
    return SOL_OK;
}

static enum sol_status watch_run(struct run *r, struct bench_op_kernels *out)
{
    struct plan *plans[SETS_MAX] = {NULL};
    int count = 0;
    struct watched *w = calloc(1, sizeof *w);
    if (!w) return status_set(SOL_E_MEMORY, "no memory for times");
    enum sol_status status = watch_calls(r, plans, w, &count);
    if (status == SOL_OK) status = fill_kernels(r, plans[0], w, count, out);
    for (int i = 0; i < SETS_MAX; i++) plan_destroy(plans[i]);
    free(w);
    return status;
}

enum sol_status bench_op_kernels(const struct chooser *chooser, const struct bench_op_call *call,
                                 struct bench_op_kernels *out)
{
    struct run *r;
    enum sol_status status = open_run(chooser, &r);
    if (status == SOL_OK) {
        r->spec.op = call->op;
        r->spec.call = call;
        status = watch_run(r, out);
    }
    close_run(r);
    return status;
}

/* ---- by specs ---- */

enum sol_status bench_op(const struct chooser *chooser, const char *text, json_t *rows)
{
    if (strcmp(text, "all") != 0) return bench_one(chooser, text, rows);
    for (int i = 0; i < op_table_count; i++) SOL_TRY(bench_one(chooser, op_table[i]->name, rows));
    return SOL_OK;
}
