/* A test owns its engine, so that its memory is its own. Order: a probe step that makes the plan
 * and fills the cache; the warm-up, during whose first repetition costs and routing are counted
 * layer by layer; the timed repetitions; with `ops` one more under clocks.
 *
 * Why costs are counted in the warm-up: all layers share one set of routing buffers, so after a
 * step only the last layer's routing can be read, and expert weights are most of what a step reads;
 * on a GPU the step must stop after each layer to look. Every repetition feeds the same tokens,
 * hence its work is the same. */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/sysinfo.h"
#include "bench/gpu_ceiling.h"
#include "bench/watch_sensors.h"
#include "gpu/device.h"
#include "infer/forward.h"
#include "infer/team.h"
#include "ops/args.h"
#include "ops/ops.h"

enum {
    RANDOM_SEED = 1234,
    STEPS_MAX = 1 << 18, /* whose times are kept */
};

/* See stats/samples.h for what these decide. */
static const struct stop_rule stop_defaults = {.least = 6, .most = 40, .seconds = 60};
static const double prompt_precision = 0.01, generation_precision = 0.005;
static const double settled_within = 0.01, warmup_share = 0.25; /* of the time of a test */

/* One plan, in the repetition that is looked at. */
struct plan_use {
    const struct plan *plan; /* owned by the engine */
    struct op_cost *costs;   /* [steps of the plan], sums over `runs` runs of it */
    int64_t runs;
};

/* Prompt or generation: the plans of its steps. A prompt's steps may be of several shapes. */
struct phase {
    const char *name;
    struct plan_use *uses; /* [n_uses] */
    int n_uses;
    int64_t steps; /* of a repetition */
};

struct bench {
    struct gpu *gpu; /* NULL: the processor */
    const struct bench_params *params;
    struct bench_result *result;
    struct engine *engine;
    struct bench_test test;
    int64_t max_batch;
    struct engine_row *prompt, *steps; /* [n_parallel * n_prompt], [n_gen][n_parallel] */
    int32_t *tokens;                   /* those of steps */
    int64_t n_prompt_rows;
    struct phase prompt_phase, generation;
    bool generating;    /* a generation step is running */
    int64_t plans_made; /* by the engine, after the repetition that is looked at */
    double touched, busiest, even;
    int64_t observations;
    bool keep_steps; /* the repetition counts: note the time of each generation step */
    struct energy_block {
        double before; /* GPU: the sensor after the last repetition */
        double joules, seconds;
        int repetitions;
    } block; /* of the repetitions since the last one whose energy is known */
};

char *bench_test_name(const struct bench_test *t, char text[80])
{
    int at = 0;
    if (t->n_prompt) at += snprintf(text, 80, "pp%lld", (long long)t->n_prompt);
    if (t->n_gen)
        at += snprintf(text + at, 80 - (size_t)at, "%stg%lld", at ? "+" : "", (long long)t->n_gen);
    if (t->n_parallel > 1)
        at += snprintf(text + at, 80 - (size_t)at, " x%lld", (long long)t->n_parallel);
    if (t->n_depth) snprintf(text + at, 80 - (size_t)at, " @ d%lld", (long long)t->n_depth);
    return text;
}

/* ---- setting up ---- */

static enum sol_status make_rows(struct bench *b, int64_t vocab)
{
    const struct bench_test *t = &b->test;
    struct rng rng;
    rng_seed(&rng, RANDOM_SEED);
    b->n_prompt_rows = t->n_prompt * t->n_parallel;
    b->prompt = calloc((size_t)b->n_prompt_rows + 1, sizeof *b->prompt);
    b->steps = calloc((size_t)(t->n_gen * t->n_parallel) + 1, sizeof *b->steps);
    b->tokens = calloc((size_t)(t->n_gen * t->n_parallel) + 1, sizeof *b->tokens);
    if (!b->prompt || !b->steps || !b->tokens)
        return status_set(SOL_E_MEMORY, "no memory for the tokens");
    for (int64_t i = 0; i < b->n_prompt_rows; i++)
        b->prompt[i] = (struct engine_row){
            .token = (int32_t)rng_range(&rng, 0, vocab - 1),
            .sequence = (int32_t)(i / t->n_prompt),
            .output = (i + 1) % t->n_prompt == 0,
        };
    for (int64_t i = 0; i < t->n_gen * t->n_parallel; i++)
        b->steps[i] = (struct engine_row){
            .token = (int32_t)rng_range(&rng, 0, vocab - 1),
            .sequence = (int32_t)(i % t->n_parallel),
            .output = true,
        };
    for (int64_t i = 0; i < t->n_gen * t->n_parallel; i++) b->tokens[i] = b->steps[i].token;
    return SOL_OK;
}

struct engine_params bench_engine_params(const struct bench_params *params,
                                         const struct bench_test *t)
{
    struct engine_params p = params->engine;
    int64_t widest = t->n_prompt ? t->n_prompt * t->n_parallel : t->n_parallel;
    p.context = t->n_depth + t->n_prompt + t->n_gen;
    p.sequences = p.max_outputs = t->n_parallel;
    if (p.max_batch > widest) p.max_batch = widest;
    if (p.max_batch < t->n_parallel) p.max_batch = t->n_parallel; /* a step is one step */
    return p;
}

static enum sol_status create_engine(struct bench *b, const struct model *model)
{
    const struct engine_params p = bench_engine_params(b->params, &b->test);
    b->max_batch = p.max_batch;
    SOL_TRY(engine_create(model, &p, &b->engine));
    b->result->batch = p.max_batch;
    b->result->threads = pool_size(engine_pool(b->engine));
    return SOL_OK;
}

static enum sol_status begin_sequences(struct bench *b)
{
    for (int32_t s = 0; s < b->test.n_parallel; s++) {
        engine_reset(b->engine, s);
        SOL_TRY(engine_pretend(b->engine, s, b->test.n_depth));
    }
    return SOL_OK;
}

/* Where the plan keeps the routing: in route's arguments, or in those of a fused
 * attn_out, attn_route or attn_moe. */
static const int32_t *routing_of(const struct plan_step *step)
{
    if (step->op == &op_route)
        return routing_on_host(&((const struct route_args *)step->args)->routing);
    if (step->op == &op_attn_out || step->op == &op_attn_route)
        return routing_on_host(&((const struct attn_out_args *)step->args)->routing);
    if (step->op == &op_attn_moe)
        return routing_on_host(&((const struct attn_moe_args *)step->args)->out.routing);
    return NULL;
}

/* One step of the kind that generation repeats. Its logits are asked for, the only ones, so that a
 * model that gives none is not measured. */
static enum sol_status probe(struct bench *b)
{
    const float *logits;
    SOL_TRY(begin_sequences(b));
    if (b->test.n_depth) SOL_TRY(engine_fill_cache(b->engine));
    struct engine_row row = b->test.n_gen ? b->steps[0] : b->prompt[0];
    row.output = true;
    if (!b->test.n_gen) return engine_eval(b->engine, &row, 1, NULL, NULL, &logits);
    return engine_eval(b->engine, b->steps, b->test.n_parallel, NULL, NULL, &logits);
}

/* ---- counting ---- */

static void add_cost(struct op_cost *sum, struct op_cost cost)
{
    sum->flops += cost.flops;
    sum->bytes += cost.bytes;
}

/* NULL: no memory, and nothing is as short of it as a step without costs. */
static struct plan_use *use_of(struct phase *phase, const struct plan *plan)
{
    for (int i = 0; i < phase->n_uses; i++)
        if (phase->uses[i].plan == plan) return &phase->uses[i];
    struct op_cost *costs = calloc((size_t)plan_step_count(plan), sizeof *costs);
    struct plan_use *grown =
        costs ? realloc(phase->uses, (size_t)(phase->n_uses + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(costs);
        return NULL;
    }
    phase->uses = grown;
    phase->uses[phase->n_uses] = (struct plan_use){.plan = plan, .costs = costs};
    return &phase->uses[phase->n_uses++];
}

static void free_uses(struct phase *phase)
{
    for (int i = 0; i < phase->n_uses; i++) free(phase->uses[i].costs);
    free(phase->uses);
}

static void tally_layer(struct bench *b, struct plan_use *use, int layer)
{
    for (int i = 0; i < plan_step_count(use->plan); i++) {
        const struct plan_step *step = plan_step_at(use->plan, i);
        if (step->layer != layer) continue;
        struct op_cost cost = step->op->cost(step->args);
        add_cost(&use->costs[i], cost);
        add_cost(&b->result->cost, cost);
        b->result->flops[step->numerics] += cost.flops;
    }
}

bool bench_experts_of(const struct plan *plan, int64_t n_experts, int64_t *touched,
                      int64_t *busiest)
{
    const int32_t *offsets = NULL;
    *touched = *busiest = 0;
    for (int i = 0; i < plan_step_count(plan) && !offsets; i++)
        offsets = routing_of(plan_step_at(plan, i));
    for (int64_t e = 0; offsets && e < n_experts; e++) {
        int64_t count = offsets[e + 1] - offsets[e];
        *touched += count > 0;
        if (count > *busiest) *busiest = count;
    }
    return offsets && n_experts > 0;
}

static void observe_experts(struct bench *b, const struct plan *plan, int64_t rows)
{
    const struct model_config *c = &engine_model(b->engine)->config;
    int64_t touched, busiest;
    if (!bench_experts_of(plan, c->n_experts, &touched, &busiest)) return;
    b->touched += (double)touched;
    b->busiest += (double)busiest;
    b->even += (double)(rows * c->top_k) / (double)c->n_experts;
    b->observations++;
}

static void observe_layer(void *arg, int layer, const float *x, int64_t rows)
{
    (void)x;
    struct bench *b = arg;
    const struct plan *plan = engine_last_plan(b->engine);
    struct phase *phase = b->generating ? &b->generation : &b->prompt_phase;
    struct plan_use *use = use_of(phase, plan);
    if (!use) return;
    tally_layer(b, use, layer);
    if (layer == engine_model(b->engine)->config.n_layers - 1) {
        tally_layer(b, use, -1); /* embedding and head belong to no layer */
        use->runs++;
        phase->steps++;
    }
    observe_experts(b, plan, rows);
}

/* ---- running ---- */

/* Nobody reads the logits: on a GPU they stay there. */
static enum sol_status run_prompt(struct bench *b)
{
    if (b->n_prompt_rows == 0) return SOL_OK;
    return engine_eval(b->engine, b->prompt, b->n_prompt_rows, NULL, NULL, NULL);
}

/* As texts are generated, of which each token but the last says that there is a next one; but
 * tokens are given, and none is drawn. */
static enum sol_status generation_step(struct bench *b, int64_t i)
{
    const int64_t width = b->test.n_parallel;
    const struct engine_outputs outputs = {.goes_on =
                                               width <= ENGINE_GO_ON_MOST && i + 1 < b->test.n_gen,
                                           .then = b->tokens + (i + 1) * width};
    SOL_TRY(interrupt_check());
    SOL_TRY(engine_begin(b->engine, b->steps + i * width, width, &outputs));
    return engine_finish(b->engine, NULL, NULL);
}

static enum sol_status run_generation(struct bench *b, struct progress *progress, uint64_t done)
{
    int64_t width = b->test.n_parallel;
    struct bench_result *r = b->result;
    for (int64_t i = 0; i < b->test.n_gen; i++) {
        uint64_t start = clock_ns();
        SOL_TRY(generation_step(b, i));
        if (b->keep_steps && r->n_steps < STEPS_MAX)
            r->step_ns[r->n_steps++] = (double)(clock_ns() - start);
        progress_update(progress, done + (uint64_t)(b->n_prompt_rows + (i + 1) * width));
    }
    return SOL_OK;
}

/* One repetition: *ns is the time of the work alone. `done` tokens went before it. */
static enum sol_status repeat(struct bench *b, struct progress *progress, uint64_t done, double *ns)
{
    SOL_TRY(begin_sequences(b));
    uint64_t start = clock_ns();
    SOL_TRY(run_prompt(b));
    b->generating = true;
    enum sol_status status = run_generation(b, progress, done);
    b->generating = false;
    *ns = (double)(clock_ns() - start);
    progress_update(progress, done + (uint64_t)b->result->tokens);
    return status;
}

/* Sensors move every 20 to 100 ms, so short repetitions are taken together until they last. */
static double energy_of_block(struct bench *b, double joules, double seconds)
{
    const double lasting_s = 0.5;
    struct energy_block *block = &b->block;
    block->joules += joules;
    block->seconds += seconds;
    block->repetitions++;
    if (block->seconds < lasting_s) return (double)NAN;
    double each = block->joules / block->repetitions;
    *block = (struct energy_block){.before = block->before};
    return each;
}

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Right after the work, while the clocks are those that it had. The host's cores matter little. */
static const char *gpu_cause(struct bench *b, bool warmup, struct watch_result *seen)
{
    unsigned held = b->result->reading.throttle;
    gpu_sensors_read(gpu_info(b->gpu), &b->result->reading, NULL);
    unsigned now = b->result->reading.throttle;
    b->result->reading.throttle |= warmup ? 0 : held; /* of any repetition that counts */
    if (gpu_throttle_is_external(now)) return "the GPU was held back by heat or its supply";
    seen->other_cores = 0;
    return watch_cause(seen);
}

/* A repetition that becomes the next sample. */
static enum sol_status sample_one(struct bench *b, struct progress *progress, bool warmup)
{
    struct bench_result *r = b->result;
    struct sample sample = {.started_ns = wall_ns(), .warmup = warmup};
    struct watch watch;
    struct watch_result seen;
    b->keep_steps = !warmup;
    watch_start(&watch);
    enum sol_status status =
        repeat(b, progress, (uint64_t)r->n_samples * (uint64_t)r->tokens, &sample.ns);
    watch_stop(&watch, &seen);
    b->keep_steps = false;
    if (status != SOL_OK) return status;
    sample.cause = b->gpu ? gpu_cause(b, warmup, &seen) : watch_cause(&seen);
    double joules = b->gpu ? r->reading.joules - b->block.before : seen.energy_j;
    b->block.before = r->reading.joules;
    sample.joules = warmup ? (double)NAN : energy_of_block(b, joules, 1e-9 * sample.ns);
    r->samples[r->n_samples++] = sample;
    return SOL_OK;
}

/* One with a fixed count; else until three agree or a quarter of the time is over. */
static enum sol_status warm_up(struct bench *b, const struct stop_rule *rule,
                               struct progress *progress)
{
    struct bench_result *r = b->result;
    uint64_t start = clock_ns();
    engine_set_trace(b->engine, observe_layer, b);
    enum sol_status status = sample_one(b, progress, true);
    engine_set_trace(b->engine, NULL, NULL);
    b->plans_made = engine_plans_made(b->engine);
    r->settled = rule->count > 0;
    while (status == SOL_OK && !r->settled && r->n_samples < BENCH_WARMUPS_MAX &&
           (double)(clock_ns() - start) * 1e-9 < warmup_share * rule->seconds) {
        status = sample_one(b, progress, true);
        r->settled = samples_settled(r->samples, r->n_samples, settled_within);
    }
    return status;
}

static enum sol_status summarize_samples(struct bench_result *r)
{
    struct sample *counted = r->samples + (r->n_samples - r->n_counted);
    double tokens = (double)r->tokens;
    SOL_TRY(samples_figure(counted, r->n_counted, tokens, &r->speed));
    SOL_TRY(samples_energy(counted, r->n_counted, tokens, &r->energy));
    samples_label_outliers(counted, r->n_counted);
    return SOL_OK;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

enum sol_status bench_add_samples(struct bench_result *r, const struct sample *samples, size_t n,
                                  const struct watch_result *seen)
{
    struct sample *all = calloc(r->n_samples + n + 1, sizeof *all);
    size_t at = 0;
    if (!all) return status_set(SOL_E_MEMORY, "no memory for the samples");
    for (int warmup = 1; warmup >= 0; warmup--) {
        for (size_t i = 0; i < r->n_samples; i++)
            if (r->samples[i].warmup == warmup) all[at++] = r->samples[i];
        for (size_t i = 0; i < n; i++)
            if (samples[i].warmup == warmup) all[at++] = samples[i];
    }
    for (size_t i = 0; i < n; i++) r->n_counted += !samples[i].warmup;
    free(r->samples);
    r->samples = all;
    r->n_samples = at;
    r->watch.other_cores = larger(r->watch.other_cores, seen->other_cores);
    r->watch.stolen_cores = larger(r->watch.stolen_cores, seen->stolen_cores);
    r->watch.throttled_share = larger(r->watch.throttled_share, seen->throttled_share);
    return summarize_samples(r);
}

/* On a GPU clock and temperature are its own. */
static void take_gpu_figures(struct bench *b)
{
    struct bench_result *r = b->result;
    unsigned throttle = r->reading.throttle;
    gpu_sensors_read(gpu_info(b->gpu), &r->reading, NULL);
    r->reading.throttle |= throttle;
    r->clock_mhz = r->reading.sm_mhz;
    r->temperature_c = r->reading.temperature_c;
    r->watch.heat = gpu_throttle_is_external(r->reading.throttle) ? 1 : 0;
    r->watch.other_cores = 0;
}

static enum sol_status run_repetitions(struct bench *b, const struct stop_rule *rule,
                                       struct progress *progress)
{
    struct bench_result *r = b->result;
    struct watch watch;
    size_t warmups = r->n_samples;
    uint64_t start = clock_ns();
    enum sol_status status = SOL_OK;
    engine_set_timed(b->engine, false); /* counts of kernels begin here */
    if (b->gpu) gpu_sensors_read(gpu_info(b->gpu), &r->reading, NULL);
    b->block = (struct energy_block){.before = r->reading.joules};
    r->reading.throttle = 0;
    watch_start(&watch);
    while (status == SOL_OK && r->stopped == STOP_NOT) {
        status = sample_one(b, progress, false);
        double spent = (double)(clock_ns() - start) * 1e-9;
        size_t count = r->n_samples - warmups;
        r->stopped = samples_stop(rule, r->samples + warmups, count, spent);
        size_t more = samples_expected(rule, r->samples + warmups, count, spent);
        progress->total = (uint64_t)r->tokens * (warmups + more);
    }
    char sensor[64];
    r->clock_mhz = sensors_clock_mhz(); /* while the threads are still awake */
    r->temperature_c = sensors_temperature(sensor, sizeof sensor);
    watch_stop(&watch, &r->watch);
    if (b->gpu) take_gpu_figures(b);
    if (status != SOL_OK) r->stopped = STOP_INTERRUPTED;
    r->n_counted = r->n_own = r->n_samples - warmups;
    if (r->n_counted == 0) return status;
    struct sample *last = &r->samples[r->n_samples - 1];
    if (isnan(last->joules) && b->block.repetitions == (int)r->n_counted) /* none lasted */
        last->joules = b->block.joules / b->block.repetitions;
    samples_sort(r->step_ns, r->n_steps);
    enum sol_status summed = summarize_samples(r);
    return status != SOL_OK ? status : summed;
}

/* ---- results ---- */

static struct bench_kernel *find_kernel(struct bench_result *r, const char *phase,
                                        const struct plan_step *step)
{
    for (int i = 0; i < r->n_kernels; i++) {
        struct bench_kernel *k = &r->kernels[i];
        if (k->phase == phase && k->op == step->op && strcmp(k->variant, step->variant) == 0)
            return k;
    }
    struct bench_kernel *k = &r->kernels[r->n_kernels++];
    *k = (struct bench_kernel){
        .phase = phase, .op = step->op, .variant = step->variant, .numerics = step->numerics};
    return k;
}

/* How often a repetition runs the plan. A prompt of one row and a generation step may share one. */
static int64_t runs_of(const struct bench *b, const struct plan *plan)
{
    int64_t runs = 0;
    for (int i = 0; i < b->prompt_phase.n_uses; i++)
        runs += b->prompt_phase.uses[i].plan == plan ? b->prompt_phase.uses[i].runs : 0;
    for (int i = 0; i < b->generation.n_uses; i++)
        runs += b->generation.uses[i].plan == plan ? b->generation.uses[i].runs : 0;
    return runs;
}

/* Of the calls that were counted those of this phase: without what the other one should have. */
static int64_t calls_here(int64_t counted, int64_t here, int64_t all, int64_t repetitions)
{
    return repetitions < 0 ? counted * here / all : counted - (all - here) * repetitions;
}

static enum sol_status collect_kernels(struct bench *b, const struct phase *phase)
{
    struct bench_result *r = b->result;
    int first = r->n_kernels, count = 0;
    int64_t repetitions = r->stopped == STOP_INTERRUPTED ? -1 : (int64_t)r->n_own;
    for (int u = 0; u < phase->n_uses; u++) count += plan_step_count(phase->uses[u].plan);
    struct bench_kernel *grown = realloc(r->kernels, (size_t)(first + count + 1) * sizeof *grown);
    if (!grown) return status_set(SOL_E_MEMORY, "no memory for the list of kernels");
    r->kernels = grown;
    for (int u = 0; u < phase->n_uses; u++) {
        const struct plan_use *use = &phase->uses[u];
        int64_t all = runs_of(b, use->plan);
        double part = 1.0 / (double)phase->steps;
        for (int i = 0; i < plan_step_count(use->plan); i++) {
            const struct plan_step *step = plan_step_at(use->plan, i);
            struct bench_kernel *k = find_kernel(r, phase->name, step);
            k->steps = phase->steps;
            k->calls += part * (double)use->runs;
            k->ran += calls_here((int64_t)step->runs, use->runs, all, repetitions);
            k->expected += use->runs * repetitions;
            add_cost(&k->cost,
                     (struct op_cost){part * use->costs[i].flops, part * use->costs[i].bytes});
        }
    }
    for (int i = first; i < r->n_kernels; i++) {
        struct bench_kernel *k = &r->kernels[i];
        if (repetitions < 0) k->expected = -1;
        r->proved = r->proved && k->ran == k->expected;
    }
    return SOL_OK;
}

/* Of one repetition under clocks, after the times were reset. */
static void add_kernel_times(const struct bench *b, const struct phase *phase)
{
    struct bench_result *r = b->result;
    double total = 0;
    for (int u = 0; u < phase->n_uses; u++) {
        const struct plan_use *use = &phase->uses[u];
        double all = (double)runs_of(b, use->plan), part = (double)use->runs / (double)phase->steps;
        for (int i = 0; i < plan_step_count(use->plan); i++) {
            const struct plan_step *step = plan_step_at(use->plan, i);
            double ns = (double)step->ns / all;
            double seconds = 1e-9 * fmax(ns - r->event_ns, ns / 10); /* a call is never nothing */
            find_kernel(r, phase->name, step)->seconds += part * seconds;
            total += part * seconds;
        }
    }
    for (int i = 0; i < r->n_kernels && total > 0; i++)
        if (r->kernels[i].phase == phase->name) r->kernels[i].share = r->kernels[i].seconds / total;
}

/* In which rows come from the rank before. */
static int pieces_of(const struct plan *plan, const struct model_config *config)
{
    int received = 0;
    for (int i = 0; i < plan_step_count(plan); i++)
        received += plan_step_at(plan, i)->op == &op_send_recv;
    return received ? received / forward_of(config)->n_carried : 1;
}

/* As itself, as what it is composed of, or in a sequence that is one kernel's or one variant's. */
static bool is_of(const struct plan_step *step, const struct op *op)
{
    if (step->op == op || step->parent == op) return true;
    for (int i = 0; step->op->is_sequence && i < OP_CALLS_MAX; i++)
        if (step->op->calls[i] == op) return true;
    return false;
}

/* Whether the plan has, in every layer, each of what a layer consists of, fused or not. */
static bool plan_covers(const struct plan *plan, const struct model_config *config)
{
    const struct op *const *wanted = forward_parts(config);
    const int pieces = pieces_of(plan, config);
    for (int w = 0; wanted[w]; w++) {
        if (config->alone && wanted[w]->collective) continue;
        int layers = 0, last = -1;
        for (int i = 0; i < plan_step_count(plan); i++) {
            const struct plan_step *step = plan_step_at(plan, i);
            if (step->op == &op_send_recv) last = -1; /* a piece begins */
            if (step->layer < 0 || !is_of(step, wanted[w])) continue;
            layers += step->layer != last;
            last = step->layer;
        }
        if (layers != pieces * config->n_layers) return false;
    }
    return true;
}

static bool covers_layers(const struct phase *phase, const struct model_config *config)
{
    for (int u = 0; u < phase->n_uses; u++)
        if (!plan_covers(phase->uses[u].plan, config)) return false;
    return true;
}

static size_t status_bytes(const char *key)
{
    char text[8192];
    unsigned long long kib;
    if (!sysinfo_read("/proc/self/status", text, sizeof text)) return 0;
    return sysinfo_field(text, key, &kib) ? (size_t)kib * 1024 : 0;
}

static void summarize(struct bench *b)
{
    struct bench_result *r = b->result;
    engine_memory_parts(b->engine, &r->memory_parts);
    r->memory_engine = engine_memory(b->engine);
    if (b->gpu) r->memory_device = gpu_memory_used(b->gpu);
    if (b->gpu) r->memory_device_peak = gpu_memory_peak(b->gpu);
    r->memory_anonymous = status_bytes("RssAnon:");
    r->memory_peak = status_bytes("VmHWM:");
    if (b->observations == 0) return;
    double n = (double)b->observations;
    r->experts = (struct bench_experts){.count = engine_model(b->engine)->config.n_experts,
                                        .touched = b->touched / n,
                                        .busiest = b->busiest / n,
                                        .even = b->even / n};
}

/* Every repetition did the same, so one more under clocks shows where their time went. */
static enum sol_status time_kernels(struct bench *b)
{
    struct progress progress;
    double ns;
    progress_start(&progress, "kernels", "tokens", (uint64_t)b->result->tokens);
    enum sol_status status = b->gpu ? gpu_event_cost(b->gpu, &b->result->event_ns) : SOL_OK;
    engine_set_timed(b->engine, true);
    if (status == SOL_OK) status = repeat(b, &progress, 0, &ns);
    progress_end(&progress);
    if (status != SOL_OK) return status;
    add_kernel_times(b, &b->prompt_phase);
    add_kernel_times(b, &b->generation);
    return SOL_OK;
}

static enum sol_status take_kernels(struct bench *b)
{
    struct bench_result *r = b->result;
    const struct team *team = engine_params_of(b->engine)->team;
    const struct model *model = team ? team_model(team, 0) : engine_model(b->engine);
    const struct model_config *config = &model->config;
    /* Steps of more shapes than the engine keeps plans for: those that were seen are gone. */
    if (engine_plans_made(b->engine) != b->plans_made) return SOL_OK;
    r->proved = r->layers_complete =
        covers_layers(&b->prompt_phase, config) && covers_layers(&b->generation, config);
    SOL_TRY(collect_kernels(b, &b->prompt_phase));
    SOL_TRY(collect_kernels(b, &b->generation));
    if (!b->params->ops || interrupt_requested()) return SOL_OK;
    return time_kernels(b);
}

static struct stop_rule stop_rule_of(const struct bench *b)
{
    const struct bench_params *p = b->params;
    struct stop_rule rule = stop_defaults;
    rule.count = p->repetitions;
    rule.precision = b->test.n_gen ? generation_precision : prompt_precision;
    rule.least_late = p->seconds > 0 ? 1 : BENCH_REPETITIONS;
    if (p->seconds > 0) rule.seconds = p->seconds;
    if (p->most_repetitions) rule.most = p->most_repetitions;
    return rule;
}

static enum sol_status run_all(struct bench *b, const struct model *model)
{
    char name[80];
    struct bench_result *r = b->result;
    struct stop_rule rule = stop_rule_of(b);
    if (b->gpu) gpu_memory_peak_reset(b->gpu);
    memory_peak_reset();
    SOL_TRY(make_rows(b, model->config.vocab));
    SOL_TRY(create_engine(b, model));
    SOL_TRY(probe(b));
    r->precision = rule.count ? 0 : rule.precision;
    /* By precision, how many there will be is a guess, which every repetition makes better. */
    uint64_t guess = (uint64_t)(rule.count ? rule.count + 1 : rule.least + 4);
    struct progress progress;
    progress_start(&progress, bench_test_name(&b->test, name), "tokens",
                   (uint64_t)r->tokens * guess);
    progress.whole = b->params->whole;
    enum sol_status status = warm_up(b, &rule, &progress);
    if (status == SOL_OK) status = run_repetitions(b, &rule, &progress);
    progress_end(&progress);
    if (r->n_counted == 0) return status;
    summarize(b);
    enum sol_status listed = take_kernels(b);
    return status != SOL_OK ? status : listed;
}

static enum sol_status check_test(const struct bench_params *params, const struct bench_test *t)
{
    if (t->n_prompt < 0 || t->n_gen < 0 || t->n_depth < 0 || t->n_parallel < 1 ||
        t->n_prompt + t->n_gen == 0)
        return status_set(SOL_E_ARGUMENT, "a test needs tokens to process or to generate");
    if (params->repetitions < 0 || params->repetitions > BENCH_REPETITIONS_MAX ||
        params->most_repetitions < 0 || params->most_repetitions > BENCH_REPETITIONS_MAX)
        return status_set(SOL_E_ARGUMENT, "1 to %d repetitions are possible",
                          BENCH_REPETITIONS_MAX);
    return SOL_OK;
}

enum sol_status bench_run(const struct model *model, const struct bench_params *params,
                          const struct bench_test *test, struct bench_result *out)
{
    *out = (struct bench_result){.test = *test, .started = time(NULL)};
    SOL_TRY(check_test(params, test));
    out->tokens = (test->n_prompt + test->n_gen) * test->n_parallel;
    size_t room = BENCH_WARMUPS_MAX + BENCH_REPETITIONS_MAX;
    out->samples = calloc(room, sizeof *out->samples);
    out->step_ns = test->n_gen ? malloc(STEPS_MAX * sizeof *out->step_ns) : NULL;
    if (!out->samples || (test->n_gen && !out->step_ns))
        return status_set(SOL_E_MEMORY, "no memory for the samples");
    struct bench b = {.params = params,
                      .result = out,
                      .test = *test,
                      .gpu = params->engine.chooser.device.gpu,
                      .prompt_phase.name = "prompt",
                      .generation.name = "generation"};
    enum sol_status status = run_all(&b, model);
    engine_destroy(b.engine);
    free_uses(&b.prompt_phase);
    free_uses(&b.generation);
    free(b.prompt);
    free(b.steps);
    free(b.tokens);
    return status;
}

void bench_result_free(struct bench_result *result)
{
    free(result->samples);
    free(result->step_ns);
    free(result->kernels);
    *result = (struct bench_result){0};
}
