/* Times are those of the median repetition: on a busy machine a single call that was interrupted
 * would outweigh a thousand others.
 *
 * Three passes over the same tokens at each depth: one makes the plans, one counts costs layer by
 * layer (routing can only be read right after its layer), and then the timed ones. */
#include "profile/model.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/status.h"
#include "bench/bench.h"
#include "bench/gpu_ceiling.h"
#include "gpu/device.h"
#include "infer/team.h"
#include "model/shard.h"
#include "ops/args.h"
#include "ops/ops.h"

enum { RANDOM_SEED = 1234, NAME_SIZE = 160 };

struct profiler {
    const struct profile_params *params;
    struct profile_result *result;
    struct engine *engine;
    struct engine_row *rows; /* [n_prompt + n_gen] */
    int64_t max_batch, depth;
    const struct plan **plans; /* [n_evals] of one repetition, in order */
    size_t n_evals, eval;
    struct profile_phase *phase; /* of the present evaluation */
    struct profile_phase *prefill, *decode;
    int repetition;
    struct gpu *gpu;        /* NULL: the processor */
    bool walls, rows_timed; /* what the running repetition is for: times of steps, of kernels */
    struct profile_counters counters;
    struct progress progress;
    uint64_t done;
    uint16_t process, devices[SHARD_RANKS_MAX]; /* of each rank */
};

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for the profile");
}

/* ---- rows ---- */

static struct profile_row *find_row(const struct profiler *p, const struct plan_step *step)
{
    struct profile_phase *phase = p->phase;
    for (size_t i = 0; i < phase->n_rows; i++) {
        struct profile_row *row = &phase->rows[i];
        if (row->layer == step->layer && row->op == step->op && row->parent == step->parent &&
            strcmp(row->variant, step->variant) == 0)
            return row;
    }
    if (array_grow(&phase->rows, phase->n_rows, &phase->room, sizeof *phase->rows, "a profile") !=
        SOL_OK)
        return NULL;
    double *times = calloc((size_t)p->params->repetitions, sizeof *times);
    if (!times) return NULL;
    struct profile_row *row = &phase->rows[phase->n_rows++];
    *row = (struct profile_row){.layer = step->layer,
                                .op = step->op,
                                .parent = step->parent,
                                .variant = step->variant,
                                .numerics = step->numerics,
                                .of_repetition = times};
    return row;
}

static void add_costs(struct profiler *p, const struct plan *plan, int layer)
{
    double times = p->params->repetitions;
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        if (step->layer != layer) continue;
        struct profile_row *row = find_row(p, step);
        struct op_cost cost = step->op->cost(step->args);
        if (!row) continue; /* the timed pass reports it */
        row->flops += cost.flops * times;
        row->bytes += cost.bytes * times;
    }
}

static void observe_experts(struct profiler *p, const struct plan *plan, int64_t rows)
{
    const struct model_config *c = &engine_model(p->engine)->config;
    int64_t touched, busiest;
    if (!bench_experts_of(plan, c->n_experts, &touched, &busiest)) return;
    p->phase->experts_touched += (double)touched;
    p->phase->experts_busiest += (double)busiest;
    p->phase->experts_even += (double)(rows * c->top_k) / (double)c->n_experts;
}

static void observe_layer(void *arg, int layer, const float *x, int64_t rows)
{
    (void)x;
    struct profiler *p = arg;
    const struct plan *plan = engine_last_plan(p->engine);
    add_costs(p, plan, layer);
    observe_experts(p, plan, rows);
    /* What precedes and follows the layers belongs to none. */
    if (layer == engine_model(p->engine)->config.n_layers - 1) add_costs(p, plan, -1);
}

/* ---- the time line ---- */

static const char *row_name(const struct plan_step *step, char text[NAME_SIZE])
{
    bool generic =
        strcmp(step->variant, "reference") == 0 || strcmp(step->variant, "composed") == 0;
    if (generic)
        snprintf(text, NAME_SIZE, "%s_%s", step->op->name, step->variant);
    else
        snprintf(text, NAME_SIZE, "%s", step->variant);
    return text;
}

/* Without what events add; a call is never nothing. */
static double call_ns(const struct profiler *p, const struct plan_step *step)
{
    double ns = (double)step->ns, added = p->result->event_ns * (double)step->runs;
    return ns - added > ns / 10 ? ns - added : ns / 10;
}

static enum sol_status add_steps(struct profiler *p, const struct plan *plan, uint16_t device)
{
    struct timeline *t = p->result->timeline;
    struct trace_event e = {
        .detail = TRACE_NONE, .kind = EVENT_KERNEL, .device = device, .process = p->process};
    for (int i = 0; i < plan_step_count(plan); i++) {
        char text[NAME_SIZE];
        const struct plan_step *step = plan_step_at(plan, i);
        if (!step->together) continue; /* done by one before it */
        row_name(step, text);
        e.start = (int64_t)step->began;
        e.end = e.start + (int64_t)call_ns(p, step);
        SOL_TRY(timeline_string(t, text, strlen(text), &e.name));
        SOL_TRY(timeline_add(t, &e));
    }
    return SOL_OK;
}

static enum sol_status add_window(struct profile_phase *phase, const struct profile_window *window)
{
    SOL_TRY(array_grow(&phase->windows, phase->n_windows, &phase->window_room,
                       sizeof *phase->windows, "the steps of a profile"));
    phase->windows[phase->n_windows++] = *window;
    return SOL_OK;
}

static enum sol_status add_events(struct profiler *p, int64_t start, int64_t end)
{
    struct timeline *t = p->result->timeline;
    struct trace_event e = {.start = start,
                            .end = end,
                            .detail = TRACE_NONE,
                            .kind = EVENT_MARKER,
                            .device = TRACE_NO_DEVICE,
                            .process = p->process};
    SOL_TRY(timeline_string(t, p->phase->phase, strlen(p->phase->phase), &e.name));
    SOL_TRY(timeline_add(t, &e));
    SOL_TRY(add_window(p->phase, &(struct profile_window){start, end, p->repetition}));
    for (int r = 0; r < p->result->ranks; r++)
        SOL_TRY(add_steps(p, engine_rank_plan(p->engine, r), p->devices[r]));
    return SOL_OK;
}

static enum sol_status collect_rows(struct profiler *p, const struct plan *plan, int64_t start,
                                    int64_t end)
{
    struct profile_phase *phase = p->phase;
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        struct profile_row *row = find_row(p, step);
        if (!row) return no_memory();
        row->of_repetition[p->repetition] += call_ns(p, step);
        row->calls += step->runs;
        row->expected++;
    }
    if (p->gpu) phase->timed_ns += (double)(end - start);
    return add_events(p, start, end);
}

static void collect_wall(struct profiler *p, int64_t n, double ns)
{
    struct profile_phase *phase = p->phase;
    phase->of_repetition[p->repetition] += ns;
    phase->tokens += n;
    phase->steps++;
}

/* ---- running ---- */

static enum sol_status one_eval(struct profiler *p, const struct engine_row *rows, int64_t n)
{
    engine_set_timed(p->engine, p->rows_timed); /* from zero */
    int64_t start = (int64_t)clock_ns();
    SOL_TRY(engine_eval(p->engine, rows, n, NULL, NULL, NULL));
    int64_t end = (int64_t)clock_ns();
    const struct plan *plan = engine_last_plan(p->engine);
    p->plans[p->eval] = plan;
    if (p->rows_timed) SOL_TRY(collect_rows(p, plan, start, end));
    if (p->walls) collect_wall(p, n, (double)(end - start));
    p->eval++;
    p->done += (uint64_t)n;
    progress_update(&p->progress, p->done);
    return SOL_OK;
}

static void count(struct profiler *p, bool start)
{
    if (!p->walls || !p->phase || p->gpu) return;
    if (start)
        profile_counters_start(&p->counters);
    else
        profile_counters_stop(&p->counters, p->phase->counters);
}

static enum sol_status repeat(struct profiler *p)
{
    const struct profile_params *params = p->params;
    engine_reset(p->engine, 0);
    SOL_TRY(engine_pretend(p->engine, 0, p->depth));
    p->eval = 0;
    p->phase = p->prefill;
    count(p, true);
    for (int64_t at = 0; at < params->n_prompt; at += p->max_batch) {
        int64_t n = params->n_prompt - at < p->max_batch ? params->n_prompt - at : p->max_batch;
        SOL_TRY(one_eval(p, p->rows + at, n));
    }
    count(p, false);
    p->phase = p->decode;
    count(p, true);
    for (int64_t i = 0; i < params->n_gen; i++)
        SOL_TRY(one_eval(p, p->rows + params->n_prompt + i, 1));
    count(p, false);
    return SOL_OK;
}

/* `walls`: for the times of steps; `rows`: of kernels. */
static enum sol_status repeat_for(struct profiler *p, bool walls, bool rows)
{
    p->walls = walls;
    p->rows_timed = rows;
    return repeat(p);
}

static void mean_experts(struct profile_phase *phase, double n)
{
    if (!phase || n <= 0) return;
    phase->experts_even /= n;
    phase->experts_busiest /= n;
    phase->experts_touched /= n;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* One of the repetitions in the middle by `ns`, or the two where their number is even. */
static void middle_repetitions(const double *ns, int n, int middle[2])
{
    for (int i = 0; i < n; i++) {
        int shorter = 0;
        for (int j = 0; j < n; j++) shorter += ns[j] < ns[i];
        for (int j = 0; j < i; j++) shorter += ns[j] == ns[i]; /* of equal ones the first */
        if (shorter == (n - 1) / 2) middle[0] = i;
        if (shorter == n / 2) middle[1] = i;
    }
}

/* Those of the middle repetitions. */
static void keep_windows(struct profile_phase *phase, const int middle[2])
{
    size_t n = 0;
    for (size_t i = 0; i < phase->n_windows; i++) {
        const int r = phase->windows[i].repetition;
        if (r == middle[0] || r == middle[1]) phase->windows[n++] = phase->windows[i];
    }
    phase->n_windows = n;
}

/* Behind timeline_finish, which moves the origin. */
static enum sol_status measure_ranks(const struct timeline *t, struct profile_phase *phase)
{
    struct trace_window_set set = {.method = WINDOW_MARKER, .count = phase->n_windows};
    if (!phase->n_windows) return SOL_OK;
    set.windows = calloc(phase->n_windows, sizeof *set.windows);
    if (!set.windows) return no_memory();
    for (size_t i = 0; i < phase->n_windows; i++) {
        set.windows[i].begin = phase->windows[i].begin - t->origin;
        set.windows[i].end = phase->windows[i].end - t->origin;
    }
    enum sol_status status = trace_communicate(t, &set, &phase->communication);
    free(set.windows);
    /* On a GPU steps are shorter than their kernels one by one. */
    phase->communication.window = (int64_t)(phase->speed.value * phase->shared_tokens);
    return status;
}

/* Rows are those of the repetition that the figure is of, so that they add up to it. On a GPU they
 * come from repetitions of their own, of which the middle one is taken likewise. */
static enum sol_status take_figures(const struct profiler *p, struct profile_phase *phase)
{
    int n = p->params->repetitions, middle[2] = {0, 0};
    if (!phase) return SOL_OK;
    double *sums = calloc((size_t)n + 1, sizeof *sums), each = (double)phase->tokens / n;
    if (!sums) return no_memory();
    for (int r = 0; r < n; r++) sums[r] = phase->of_repetition[r] / each;
    phase->repetitions = n;
    enum sol_status status = figure_of_one(sums, (size_t)n, &phase->speed);
    for (int r = 0; r < n && p->gpu; r++) {
        sums[r] = 0;
        for (size_t i = 0; i < phase->n_rows; i++) sums[r] += phase->rows[i].of_repetition[r];
    }
    middle_repetitions(sums, n, middle);
    free(sums);
    keep_windows(phase, middle);
    phase->shared_tokens = each * (middle[0] == middle[1] ? 1 : 2);
    for (size_t i = 0; i < phase->n_rows; i++) {
        const double *of = phase->rows[i].of_repetition;
        phase->rows[i].ns = (of[middle[0]] + of[middle[1]]) / 2 * n;
    }
    return status;
}

static enum sol_status run_depth(struct profiler *p)
{
    const int layers = (int)engine_layers(p->engine);
    SOL_TRY(repeat_for(p, false, false));
    if (p->depth > 0) SOL_TRY(engine_fill_cache(p->engine));
    engine_set_trace(p->engine, observe_layer, p);
    enum sol_status status = repeat_for(p, false, false);
    engine_set_trace(p->engine, NULL, NULL);
    SOL_TRY(status);
    double prefills = ceil((double)p->params->n_prompt / (double)p->max_batch) * layers;
    mean_experts(p->prefill, prefills);
    mean_experts(p->decode, (double)p->params->n_gen * layers);
    if (p->gpu) SOL_TRY(repeat_for(p, false, false)); /* makes graphs of the plans */
    for (p->repetition = 0; p->repetition < p->params->repetitions; p->repetition++) {
        /* Events between kernels cost time and keep them from overlapping. */
        if (p->gpu) SOL_TRY(repeat_for(p, true, false));
        SOL_TRY(repeat_for(p, !p->gpu, true));
    }
    SOL_TRY(take_figures(p, p->prefill));
    return take_figures(p, p->decode);
}

/* ---- setting up ---- */

static struct profile_phase *add_phase(struct profiler *p, bool prefill)
{
    struct bench_test test = {.n_prompt = prefill ? p->params->n_prompt : 0,
                              .n_gen = prefill ? 0 : p->params->n_gen,
                              .n_depth = p->depth,
                              .n_parallel = 1};
    if (test.n_prompt + test.n_gen == 0) return NULL;
    struct profile_phase *phase = &p->result->phases[p->result->n_phases++];
    phase->phase = prefill ? "prefill" : "decode";
    phase->depth = p->depth;
    bench_test_name(&test, phase->metric);
    phase->of_repetition = calloc((size_t)p->params->repetitions, sizeof(double));
    for (int i = 0; i < PROFILE_COUNTERS && p->gpu; i++) phase->counters[i] = (double)NAN;
    return phase;
}

struct meeting {
    _Atomic int arrived;
    int threads;
};

/* Waits until all threads are here, or for 5 ms, since one may not get a core. */
static void meet(void *arg, int64_t begin, int64_t end, int worker)
{
    enum { PATIENCE_NS = 5000000 };
    (void)begin, (void)end, (void)worker;
    struct meeting *m = arg;
    uint64_t start = clock_ns();
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->threads && clock_ns() - start < PATIENCE_NS) continue;
}

/* Of loops right behind each other, as ops come. A low percentile: what the machine can do, without
 * the trials in which a thread had no core. */
static double measure_wakeup(struct pool *pool)
{
    enum { TRIALS = 101 };
    double times[TRIALS];
    int threads = pool_size(pool);
    if (threads < 2) return 0;
    for (int i = 0; i < TRIALS; i++) {
        struct meeting m = {.threads = threads};
        uint64_t start = clock_ns();
        pool_for(pool, threads, 1, meet, &m);
        times[i] = (double)(clock_ns() - start);
    }
    qsort(times, TRIALS, sizeof *times, by_value);
    return times[TRIALS / 10];
}

static enum sol_status profile_depth(struct profiler *p, const struct model *model)
{
    const struct profile_params *params = p->params;
    struct engine_params e = params->engine;
    e.context = p->depth + params->n_prompt + params->n_gen;
    e.sequences = 1;
    e.max_outputs = 1;
    if (params->n_prompt && e.max_batch > params->n_prompt) e.max_batch = params->n_prompt;
    p->max_batch = e.max_batch;
    SOL_TRY(engine_create(model, &e, &p->engine));
    p->result->threads = pool_size(engine_pool(p->engine));
    if (!p->gpu) p->result->wakeup_ns = measure_wakeup(engine_pool(p->engine));
    p->prefill = add_phase(p, true);
    p->decode = add_phase(p, false);
    bool room =
        (!p->prefill || p->prefill->of_repetition) && (!p->decode || p->decode->of_repetition);
    enum sol_status status = room ? run_depth(p) : no_memory();
    engine_destroy(p->engine);
    p->engine = NULL;
    return status;
}

static enum sol_status make_rows(struct profiler *p, int64_t vocab)
{
    int64_t n = p->params->n_prompt + p->params->n_gen;
    struct rng rng;
    rng_seed(&rng, RANDOM_SEED);
    p->rows = calloc((size_t)n + 1, sizeof *p->rows);
    p->plans = calloc((size_t)n + 1, sizeof(const struct plan *));
    if (!p->rows || !p->plans) return no_memory();
    for (int64_t i = 0; i < n; i++)
        p->rows[i] = (struct engine_row){.token = (int32_t)rng_range(&rng, 0, vocab - 1),
                                         .output = i + 1 >= p->params->n_prompt};
    return SOL_OK;
}

static enum sol_status make_timeline(struct profiler *p)
{
    struct timeline *t;
    const struct team *team = p->params->engine.team;
    struct trace_process process = {.level = TRACE_NODE, .complete = true};
    struct trace_device device = {.cpu = !p->gpu};
    SOL_TRY(timeline_create(&p->result->timeline));
    t = p->result->timeline;
    SOL_TRY(timeline_string(t, "sol profile", 11, &process.command));
    SOL_TRY(timeline_add_process(t, &process, &p->process));
    for (int r = 0; r < p->result->ranks; r++) {
        const char *name = team && p->gpu ? gpu_info(team_gpu(team, r))->name : p->result->device;
        SOL_TRY(timeline_string(t, name, strlen(name), &device.name));
        SOL_TRY(timeline_add_device(t, &device, &p->devices[r]));
    }
    return SOL_OK;
}

static enum sol_status run_all(struct profiler *p, const struct model *model)
{
    const struct profile_params *params = p->params;
    int64_t tokens = params->n_prompt + params->n_gen;
    if (tokens < 1 || params->repetitions < 1 || params->n_depths < 1)
        return status_set(SOL_E_ARGUMENT, "a profile needs tokens to process or to generate");
    SOL_TRY(make_rows(p, model->config.vocab));
    SOL_TRY(make_timeline(p));
    progress_start(&p->progress, "profile", "tokens",
                   (uint64_t)tokens *
                       (uint64_t)(p->gpu ? 2 * params->repetitions + 3 : params->repetitions + 2) *
                       (uint64_t)params->n_depths);
    enum sol_status status = SOL_OK;
    for (int i = 0; i < params->n_depths && status == SOL_OK; i++) {
        p->depth = params->depths[i];
        status = profile_depth(p, model);
    }
    progress_end(&p->progress);
    if (status == SOL_OK) status = timeline_finish(p->result->timeline);
    for (int i = 0; i < p->result->n_phases && status == SOL_OK; i++)
        status = measure_ranks(p->result->timeline, &p->result->phases[i]);
    return status;
}

enum sol_status profile_model(const struct model *model, const struct profile_params *params,
                              struct profile_result *out)
{
    *out = (struct profile_result){.n_phases = 0};
    struct profiler p = {.params = params, .result = out, .gpu = params->engine.chooser.device.gpu};
    out->on_gpu = p.gpu != NULL;
    out->ranks = params->engine.team ? team_size(params->engine.team) : 1;
    out->device = p.gpu ? gpu_info(p.gpu)->name : cpu_info()->model;
    /* Before the engine starts its threads, which are counted only then. */
    profile_counters_open(&p.counters);
    snprintf(out->no_counters, sizeof out->no_counters, "%s",
             p.gpu ? "those of a GPU need --counters and a command" : p.counters.why);
    enum sol_status status = p.gpu ? gpu_event_cost(p.gpu, &out->event_ns) : SOL_OK;
    struct watch watch;
    watch_start(&watch);
    if (status == SOL_OK) status = run_all(&p, model);
    watch_stop(&watch, &out->watch);
    profile_counters_close(&p.counters);
    engine_destroy(p.engine);
    free(p.rows);
    free((void *)p.plans);
    if (status != SOL_OK) profile_result_free(out);
    return status;
}

void profile_result_free(struct profile_result *result)
{
    for (int i = 0; i < result->n_phases; i++) {
        for (size_t j = 0; j < result->phases[i].n_rows; j++)
            free(result->phases[i].rows[j].of_repetition);
        free(result->phases[i].rows);
        free(result->phases[i].of_repetition);
        free(result->phases[i].windows);
        trace_communication_free(&result->phases[i].communication);
    }
    timeline_destroy(result->timeline);
    *result = (struct profile_result){0};
}
