/* Running a plan's list: step by step on the CPU, as launches or one graph on a GPU. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "comm/communicator.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "ops/plan_private.h"

static bool ends_layer(const struct plan *plan, int i)
{
    return i + 1 == plan->n_steps || plan->steps[i + 1].layer != plan->steps[i].layer;
}

/* A step, and those joined to it as far as they are among the next `there`. */
static void run_some(const struct plan_step *step, int there, const struct op_context *context)
{
    const void *more[OP_JOINED_MAX];
    struct op_context own = *context;
    own.more = more;
    own.n_more = (there < step->together ? there : step->together) - 1;
    for (int i = 0; i < own.n_more; i++) more[i] = step[i + 1].args;
    own.choice = step->choice_index;
    own.workspace = step->workspace;
    step->run(&own, step->args);
}

static void run_step(const struct plan_step *step, const struct op_context *context)
{
    run_some(step, OP_JOINED_MAX, context);
}

/* How far the two streams of a run are. */
struct lanes {
    struct gpu_stream *main, *beside;
    bool apart; /* work runs beside */
    bool ahead; /* and the first stream has got more since */
};

static enum sol_status meet(struct lanes *l)
{
    const bool apart = l->apart;
    l->apart = false;
    return apart ? gpu_stream_join(l->main, l->beside) : SOL_OK;
}

/* *stream: where the step goes. */
static enum sol_status choose_lane(struct lanes *l, const struct plan_step *step,
                                   struct gpu_stream **stream)
{
    *stream = l->main;
    if (!l->beside) return SOL_OK;
    if (step->beside) {
        if (!l->apart || l->ahead) SOL_TRY(gpu_stream_fork(l->main, l->beside));
        l->apart = true;
        l->ahead = false;
        *stream = l->beside;
        return SOL_OK;
    }
    if (step->meets || step->op->collective) SOL_TRY(meet(l));
    l->ahead = true;
    return SOL_OK;
}

static enum sol_status put_step(struct lanes *l, const struct plan_step *step,
                                const struct op_context *context)
{
    struct op_context own = *context;
    SOL_TRY(choose_lane(l, step, &own.stream));
    run_step(step, &own);
    return SOL_OK;
}

static void run_slowly(struct plan_step *step, const struct op_context *context)
{
    uint64_t start = clock_ns();
    run_step(step, context);
    uint64_t end = clock_ns(), took = end - start;
    if (!step->fastest || took < step->fastest) step->fastest = took;
    if (took > 2 * step->fastest) took = 2 * step->fastest;
    uint64_t until = end + (uint64_t)(step->slow * (double)took);
    while (clock_ns() < until) continue;
}

static enum sol_status make_events(struct plan *plan)
{
    if (!plan->events) plan->events = calloc((size_t)plan->n_steps + 1, sizeof(struct gpu_event *));
    if (!plan->events) return status_set(SOL_E_MEMORY, "no memory for events");
    for (; plan->n_events <= plan->n_steps; plan->n_events++)
        SOL_TRY(gpu_event_create(plan->chooser.device.gpu, &plan->events[plan->n_events]));
    return SOL_OK;
}

/* The time of a step is that from the event before it to the one behind. `began`: the first one,
 * which the host saw right before. */
static enum sol_status add_times(struct plan *plan, uint64_t began)
{
    for (int i = 0; i < plan->n_steps; i++) {
        double ns;
        SOL_TRY(gpu_event_elapsed(plan->events[i], plan->events[i + 1], &ns));
        plan->steps[i].ns += (uint64_t)ns;
        plan->steps[i].began = began;
        began += (uint64_t)ns;
    }
    return SOL_OK;
}

static void drop_graph(struct plan *plan)
{
    gpu_graph_destroy(plan->graph);
    plan->graph = NULL;
}

/* From then on a run is one launch. */
static enum sol_status capture(struct plan *plan, const struct op_context *context)
{
    struct gpu_stream *stream = context->stream;
    struct lanes lanes = {.main = stream, .beside = context->beside};
    enum sol_status laid = SOL_OK;
    SOL_TRY(gpu_graph_begin(stream));
    for (int i = 0; i < plan->n_steps && laid == SOL_OK; i++)
        laid = put_step(&lanes, &plan->steps[i], context);
    const enum sol_status met = meet(&lanes);
    enum sol_status put = laid == SOL_OK ? met : laid;
    if (put == SOL_OK) put = gpu_put_status(stream);
    const enum sol_status ended = gpu_graph_end(stream, &plan->graph);
    if (put == SOL_OK) return ended;
    drop_graph(plan);   /* it would lack steps */
    gpu_settle(stream); /* told; the next try is a new one */
    return put;
}

static enum sol_status run_graph(struct plan *plan, const struct op_context *context)
{
    if (plan->graph && gpu_graph_stream(plan->graph) != context->stream) drop_graph(plan);
    if (!plan->graph) SOL_TRY(capture(plan, context));
    for (int i = 0; i < plan->n_steps; i++) plan->steps[i].runs++;
    return gpu_graph_launch(plan->graph);
}

static enum sol_status run_on_gpu(struct plan *plan, const struct op_context *context, bool timed,
                                  const struct plan_observer *observer)
{
    struct gpu_stream *stream = context->stream;
    const bool often = plan->single_runs >= plan->graph_after;
    if (!timed && !observer && plan->n_steps && often) return run_graph(plan, context);
    struct lanes lanes = {.main = stream, .beside = timed || observer ? NULL : context->beside};
    plan->single_runs++;
    if (timed) SOL_TRY(make_events(plan));
    const uint64_t began = timed ? clock_ns() : 0;
    if (timed) SOL_TRY(gpu_event_record(plan->events[0], stream));
    for (int i = 0; i < plan->n_steps; i++) {
        struct plan_step *step = &plan->steps[i];
        SOL_TRY(put_step(&lanes, step, context));
        step->runs++;
        if (timed) SOL_TRY(gpu_event_record(plan->events[i + 1], stream));
        if (!observer || !ends_layer(plan, i)) continue;
        SOL_TRY(gpu_wait(stream));
        SOL_TRY(observer->after_layer(observer->arg, step->layer));
    }
    SOL_TRY(meet(&lanes));
    return timed ? add_times(plan, began) : SOL_OK;
}

enum sol_status plan_kernels(const struct plan *plan, const struct op_context *context,
                             int64_t *kernels)
{
    struct gpu_stream *stream = context->stream;
    *kernels = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        struct gpu_graph *graph;
        SOL_TRY(gpu_graph_begin(stream));
        run_step(&plan->steps[i], context);
        enum sol_status put = gpu_put_status(stream), ended = gpu_graph_end(stream, &graph);
        if (graph) *kernels += gpu_graph_kernels(graph);
        gpu_graph_destroy(graph);
        if (put != SOL_OK) gpu_settle(stream); /* told */
        SOL_TRY(put);
        SOL_TRY(ended);
    }
    return SOL_OK;
}

static enum sol_status observe(const struct plan *plan, int i, const struct plan_observer *o)
{
    if (o->after_step) SOL_TRY(o->after_step(o->arg, &plan->steps[i]));
    return ends_layer(plan, i) ? o->after_layer(o->arg, plan->steps[i].layer) : SOL_OK;
}

enum sol_status plan_run(struct plan *plan, const struct op_context *context, bool timed,
                         const struct plan_observer *observer)
{
    if (plan->chooser.device.gpu) return run_on_gpu(plan, context, timed, observer);
    for (int i = 0; i < plan->n_steps; i++) {
        struct plan_step *step = &plan->steps[i];
        uint64_t start = timed ? clock_ns() : 0;
        if (step->together && step->slow > 0)
            run_slowly(step, context);
        else if (step->together)
            run_step(step, context);
        if (timed && step->together) step->ns += clock_ns() - start;
        if (timed) step->began = start;
        step->runs++;
        if (observer) SOL_TRY(observe(plan, i, observer));
        /* Ranks stop where all of them do, not where one saw Ctrl-C. */
        const bool whole = context->whole || context->communicator;
        if (i % 16 == 0 && !whole && interrupt_requested()) return interrupt_check();
    }
    return context->communicator ? communicator_check(context->communicator) : SOL_OK;
}

enum sol_status plan_run_until(struct plan *plan, const struct op_context *context,
                               const void *args)
{
    int end = plan->n_steps - 1;
    while (end >= 0 && plan->steps[end].args != args) end--;
    for (int i = 0; i < end; i++)
        if (plan->steps[i].together) run_some(&plan->steps[i], end - i, context);
    return context->communicator ? communicator_check(context->communicator) : SOL_OK;
}
