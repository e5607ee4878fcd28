/* See verify_ranks.h. */
#include "check/verify_ranks.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "ops/cases.h"

enum { RANKS_MAX = 16 };

struct rank {
    const struct op *op;
    const struct chooser *chooser;
    struct op_problem problem;
    struct communicator *communicator;
    pthread_t thread;
    bool started;
};

static enum sol_status run(const struct op *op, const void *args, const struct chooser *chooser,
                           const struct op_context *context)
{
    struct plan *plan;
    SOL_TRY(plan_create(chooser, &plan));
    plan_call(plan, op, args);
    enum sol_status status = plan_finish(plan);
    if (status == SOL_OK) status = plan_run(plan, context, false, NULL);
    plan_destroy(plan);
    return status;
}

static enum sol_status run_drawn(const struct rank *r, struct arena *arena, struct pool *pool)
{
    struct rng rng;
    const struct op_context context = {.pool = pool, .communicator = r->communicator};
    struct case_maker maker = {.arena = arena, .rng = &rng, .kind = CASE_RANDOM};
    void *args = arena_alloc(arena, r->op->args_size, 64);
    if (!args) return status_set(SOL_E_MEMORY, "no memory for a rank's inputs");
    rng_seed(&rng, (uint64_t)communicator_rank(r->communicator) + 1);
    r->op->make_problem(&maker, &r->problem, args);
    return run(r->op, args, r->chooser, &context);
}

/* A rank that cannot begin would leave the others waiting. */
static void *run_other(void *arg)
{
    struct rank *r = arg;
    struct arena *arena = NULL;
    struct pool *pool = NULL;
    enum sol_status status = arena_create(1 << 20, &arena);
    if (status == SOL_OK) status = pool_create(1, &pool);
    if (status == SOL_OK) status = run_drawn(r, arena, pool);
    if (status != SOL_OK) communicator_fail(r->communicator, status, 1);
    pool_destroy(pool);
    arena_destroy(arena);
    return NULL;
}

static enum sol_status run_together(struct rank *ranks, int own, const void *args,
                                    const struct op_context *context)
{
    const int size = communicator_size(ranks->communicator);
    struct op_context mine = *context;
    enum sol_status status = SOL_OK;
    for (int r = 0; r < size && status == SOL_OK; r++) {
        if (r == own) continue;
        ranks[r].started = thread_start(&ranks[r].thread, run_other, &ranks[r]) == 0;
        if (!ranks[r].started) status = status_set(SOL_E_MEMORY, "no thread for a rank");
    }
    mine.communicator = ranks[own].communicator;
    if (status == SOL_OK) status = run(ranks->op, args, ranks->chooser, &mine);
    if (status != SOL_OK) communicator_fail(mine.communicator, status, 1);
    for (int r = 0; r < size; r++)
        if (ranks[r].started) pthread_join(ranks[r].thread, NULL);
    return status;
}

enum sol_status verify_ranks(const struct op *op, const void *args, const struct chooser *chooser,
                             const struct op_context *context)
{
    struct rank ranks[RANKS_MAX] = {0};
    struct communicator *communicators[RANKS_MAX];
    struct op_problem problem;
    op->problem(args, &problem);
    const int size = (int)problem.groups;
    if (size < 1 || size > RANKS_MAX)
        return status_set(SOL_E_UNSUPPORTED, "%s of %d ranks: at most %d are verified", op->name,
                          size, RANKS_MAX);
    SOL_TRY(communicators_of_threads(size, communicators));
    for (int r = 0; r < size; r++)
        ranks[r] = (struct rank){
            .op = op, .chooser = chooser, .problem = problem, .communicator = communicators[r]};
    const int own = (int)((problem.rows + problem.n) % size);
    const enum sol_status status = run_together(ranks, own, args, context);
    for (int r = 0; r < size; r++) communicator_close(communicators[r]);
    return status;
}
