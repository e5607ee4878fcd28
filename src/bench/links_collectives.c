/* The collectives by size and variant, each rank in a thread with a GPU of its own: many calls in a
 * graph, timed by events on every GPU. All ranks run through the same list. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/threads.h"
#include "bench/links.h"
#include "comm/communicator.h"
#include "ops/ops.h"
#include "ops/plan.h"

enum { CALLS_MAX = 200, PASSES_MIN = 6, PASSES_MAX = 50 };
/* 2880 numbers: a row of gpt-oss's hidden state; and 2048 such rows. */
static const size_t sizes[] = {8,       1024,    11520,    65536,        262144,   524288,
                               1 << 20, 4 << 20, 16 << 20, 11520 * 2048, 64 << 20, 256 << 20};
enum { N_SIZES = sizeof sizes / sizeof *sizes };
static const struct op *const ops[] = {&op_all_reduce, &op_all_reduce_add, &op_reduce_scatter,
                                       &op_all_gather};

struct rank {
    int rank;
    struct communicator *communicator;
    struct links *out; /* rank 0 writes */
    double seconds;
    size_t most;
    struct progress *progress;
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_event *begin, *end;
    void *x;
    enum sol_status status;
    char message[512];
    pthread_t thread;
};

double links_bus_share(const char *op, int gpus)
{
    const double part = (gpus - 1) / (double)gpus;
    return strncmp(op, "all_reduce", strlen("all_reduce")) == 0 ? 2 * part : part;
}

union args {
    struct collective_args all;
    struct all_reduce_add_args add;
};

/* Blocks of all ranks for ops that have blocks; a problem has at least a number of each. */
static union args args_of(const struct rank *r, const struct op *op, size_t bytes)
{
    const int64_t ranks = r->out->gpus, count = (int64_t)(bytes / 4);
    const bool whole = op == &op_all_reduce;
    const int64_t n = whole ? count : count / ranks ? count / ranks : 1;
    if (op == &op_all_reduce_add)
        return (union args){.add = {.ranks = ranks,
                                    .m = 1,
                                    .n = count,
                                    .part = matrix_f32(r->x, 1, count),
                                    .x = matrix_f32((char *)r->x + r->most, 1, count)}};
    return (union args){
        .all = {.ranks = ranks, .m = 1, .n = n, .x = matrix_f32(r->x, whole ? 1 : ranks, n)}};
}

static enum sol_status time_run(const struct rank *r, struct plan *plan, double *ns)
{
    const struct op_context context = {.stream = r->stream, .communicator = r->communicator};
    SOL_TRY(gpu_event_record(r->begin, r->stream));
    SOL_TRY(plan_run(plan, &context, false, NULL));
    SOL_TRY(gpu_event_record(r->end, r->stream));
    SOL_TRY(gpu_wait(r->stream)); /* which looks after the other ranks */
    return gpu_event_elapsed(r->begin, r->end, ns);
}

/* Of each pass the shortest of all ranks: they end together, and who began last did not wait. */
static enum sol_status shortest(const struct rank *r, double *each, int passes)
{
    const size_t n = (size_t)passes;
    double *all = malloc(n * (size_t)r->out->gpus * sizeof *all);
    enum sol_status status =
        communicator_agree(r->communicator, all ? SOL_OK : status_set(SOL_E_MEMORY, "no memory"));
    if (status == SOL_OK)
        status = communicator_all_gather(r->communicator, each, n * sizeof *each, all);
    for (int g = 0; all && g < r->out->gpus && status == SOL_OK; g++)
        for (int i = 0; i < passes; i++) each[i] = fmin(each[i], all[g * passes + i]);
    free(all);
    return status;
}

/* How often, as rank 0 has it: the others do as much. */
static enum sol_status passes_for(const struct rank *r, double ns, int *passes)
{
    double wanted = ns > 0 ? 1e9 * r->seconds / ns : PASSES_MAX;
    *passes = wanted < PASSES_MIN ? PASSES_MIN : wanted > PASSES_MAX ? PASSES_MAX : (int)wanted;
    return communicator_broadcast(r->communicator, 0, passes, sizeof *passes);
}

/* The first run loads kernels, the second makes the graph. */
static enum sol_status time_plan(const struct rank *r, struct plan *plan, int calls,
                                 struct figure *out)
{
    double each[PASSES_MAX], ns = 0;
    int passes;
    for (int i = 0; i < 3; i++) SOL_TRY(time_run(r, plan, &ns));
    SOL_TRY(passes_for(r, ns, &passes));
    for (int i = 0; i < passes; i++) {
        SOL_TRY(time_run(r, plan, &each[i]));
        each[i] /= calls;
    }
    SOL_TRY(shortest(r, each, passes));
    return figure_of_one(each, (size_t)passes, out);
}

/* Of a graph: as many as take about `seconds` in the fewest passes. */
static int calls_for(size_t bytes, double seconds)
{
    const double call_s = 1e-5 + 1e-11 * (double)bytes, calls = seconds / PASSES_MIN / call_s;
    return calls > CALLS_MAX ? CALLS_MAX : calls < 2 ? 2 : (int)calls;
}

static void keep_line(const struct rank *r, const struct op *op, int v, size_t bytes, int calls,
                      const struct figure *ns)
{
    struct links *out = r->out;
    const double rate = ns->value > 0 ? 1e9 * (double)bytes / ns->value : 0;
    if (r->rank || out->n_lines == LINKS_LINES_MAX) return;
    out->lines[out->n_lines++] =
        (struct links_line){.op = op->name,
                            .variant = op_variant_name(op, v),
                            .bytes = bytes,
                            .calls = calls,
                            .ns = *ns,
                            .algorithm = rate,
                            .bus = rate * links_bus_share(op->name, out->gpus)};
}

static enum sol_status measure(const struct rank *r, const struct op *op, int v, size_t bytes)
{
    struct chooser chooser;
    struct plan *plan;
    struct figure ns;
    char why[OP_REASON_MAX];
    const union args args = args_of(r, op, bytes);
    const int calls = calls_for(bytes, r->seconds);
    chooser_init(&chooser, 1);
    chooser.device.gpu = r->gpu;
    if (!chooser_can_run(&chooser, op, v, &args, why)) return SOL_OK; /* the same for all ranks */
    chooser.forces[chooser.n_forces].op = op;
    chooser.forces[chooser.n_forces].choice = -1;
    chooser.forces[chooser.n_forces++].variant = op_variant_name(op, v);
    SOL_TRY(plan_create(&chooser, &plan));
    for (int i = 0; i < calls; i++) plan_call(plan, op, &args);
    enum sol_status status = communicator_agree(r->communicator, plan_finish(plan));
    if (status == SOL_OK) status = time_plan(r, plan, calls, &ns);
    if (status == SOL_OK) keep_line(r, op, v, bytes, calls, &ns);
    plan_destroy(plan);
    return status;
}

static enum sol_status measure_all(const struct rank *r)
{
    uint64_t done = 0;
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (size_t s = 0; s < N_SIZES && sizes[s] <= r->most; s++) {
            for (int v = 0; v < ops[o]->n_variants; v++) SOL_TRY(measure(r, ops[o], v, sizes[s]));
            if (r->rank == 0) progress_update(r->progress, ++done);
            SOL_TRY(communicator_agree(r->communicator, interrupt_check()));
        }
    return SOL_OK;
}

static enum sol_status open_rank(struct rank *r)
{
    SOL_TRY(gpu_open(r->rank, &r->gpu));
    SOL_TRY(gpu_stream_create(r->gpu, &r->stream));
    SOL_TRY(gpu_event_create(r->gpu, &r->begin));
    SOL_TRY(gpu_event_create(r->gpu, &r->end));
    SOL_TRY(gpu_alloc(r->gpu, "messages", 2 * r->most, &r->x)); /* and what they are added to */
    SOL_TRY(gpu_zero(r->stream, r->x, 2 * r->most));            /* sums stay 0 */
    return gpu_wait(r->stream);
}

static void *run(void *arg)
{
    struct rank *r = arg;
    r->status = communicator_agree(r->communicator, open_rank(r));
    if (r->status == SOL_OK) r->status = communicator_add_gpu(r->communicator, r->gpu);
    if (r->status == SOL_OK) r->status = measure_all(r);
    if (r->status != SOL_OK) {
        snprintf(r->message, sizeof r->message, "%s", sol_last_error());
        communicator_fail(r->communicator, r->status, 1);
        if (r->stream) gpu_settle(r->stream);
    }
    communicator_close(r->communicator);
    gpu_event_destroy(r->begin);
    gpu_event_destroy(r->end);
    gpu_stream_destroy(r->stream);
    gpu_close(r->gpu);
    return NULL;
}

enum sol_status links_measure_collectives(double seconds, size_t most, struct links *out)
{
    struct rank ranks[GPU_PEERS_MAX] = {0};
    struct communicator *all[GPU_PEERS_MAX];
    struct progress progress;
    SOL_TRY(communicators_of_threads(out->gpus, all));
    progress_start(&progress, "measuring collectives", "sizes", N_SIZES * sizeof ops / sizeof *ops);
    int started = 0;
    for (int r = 0; r < out->gpus; r++) {
        ranks[r] = (struct rank){.rank = r,
                                 .communicator = all[r],
                                 .out = out,
                                 .seconds = seconds,
                                 .most = most,
                                 .progress = &progress};
        if (r && thread_start(&ranks[r].thread, run, &ranks[r]) == 0) started++;
    }
    if (started < out->gpus - 1)
        communicator_fail(all[0], status_set(SOL_E_MEMORY, "no thread for a rank"), 1);
    run(&ranks[0]);
    for (int r = 1; r < out->gpus; r++)
        if (ranks[r].thread)
            pthread_join(ranks[r].thread, NULL);
        else
            communicator_close(all[r]);
    progress_end(&progress);
    if (ranks[0].status == SOL_OK) return SOL_OK;
    return status_set(ranks[0].status, "%s", ranks[0].message);
}
