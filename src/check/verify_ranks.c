/* See verify_ranks.h. */
#include "check/verify_ranks.h"

#include <pthread.h>
#include <stdbool.h>

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "format/dtype.h"
#include "gpu/device.h"
#include "ops/cases.h"

struct rank {
    const struct op *op;
    const void *like; /* arguments of the same problem, whose matrices have the same types */
    struct chooser chooser;
    int ordinal; /* of its GPU; -1: the CPU */
    struct op_problem problem;
    struct communicator *communicator;
    pthread_t thread;
    bool started;
};

/* What a GPU can reach where the host has it: then the same arguments serve both. */
static void *pinned_take(void *gpu, size_t bytes)
{
    void *memory;
    return gpu_alloc_pinned(gpu, bytes, &memory) == SOL_OK ? memory : NULL;
}

static void pinned_give(void *gpu, void *memory)
{
    gpu_free_pinned(gpu, memory);
}

enum sol_status verify_arena(struct gpu *gpu, struct arena **out)
{
    const struct arena_source pinned = {pinned_take, pinned_give, gpu};
    return gpu ? arena_create_from(&pinned, 1 << 20, out) : arena_create(1 << 20, out);
}

bool verify_ranks_fit(const struct op *op, const void *args, const struct chooser *chooser,
                      char why[OP_REASON_MAX])
{
    struct gpu_info infos[VERIFY_RANKS_MAX];
    struct op_problem problem;
    int count = VERIFY_RANKS_MAX;
    op->problem(args, &problem);
    if (chooser->device.gpu && gpu_list(infos, VERIFY_RANKS_MAX, &count) != SOL_OK) count = 0;
    if (problem.groups <= count) return true;
    snprintf(why, OP_REASON_MAX, "%lld ranks, and there are %d GPUs", (long long)problem.groups,
             count);
    return false;
}

void verify_ranks_hold(const struct op *op, const struct chooser *chooser,
                       struct gpu *held[VERIFY_RANKS_MAX])
{
    struct gpu_info infos[VERIFY_RANKS_MAX];
    int count = 0;
    memset(held, 0, VERIFY_RANKS_MAX * sizeof *held);
    if (!op->collective || !chooser->device.gpu) return;
    if (gpu_list(infos, VERIFY_RANKS_MAX, &count) != SOL_OK) return;
    for (int i = 0; i < count && i < VERIFY_RANKS_MAX; i++)
        if (gpu_open(i, &held[i]) != SOL_OK) return; /* who runs on it says it */
}

void verify_ranks_release(struct gpu *held[VERIFY_RANKS_MAX])
{
    for (int i = 0; i < VERIFY_RANKS_MAX; i++) gpu_close(held[i]);
}

static enum sol_status run(const struct op *op, const void *args, const struct chooser *chooser,
                           const struct op_context *context, enum op_numerics *numerics)
{
    struct plan *plan;
    SOL_TRY(plan_create(chooser, &plan));
    plan_call(plan, op, args);
    enum sol_status status = plan_finish(plan);
    if (status == SOL_OK) status = plan_run(plan, context, false, NULL);
    if (status == SOL_OK && chooser->device.gpu) status = gpu_wait(context->stream);
    if (status == SOL_OK && numerics) *numerics = plan_numerics(plan);
    plan_destroy(plan);
    return status;
}

/* In place: numbers that bf16 has, and as bf16 where `like` has them so. */
static enum sol_status narrow(struct arena *arena, struct matrix *m, const struct matrix *like)
{
    const int64_t n = m->rows * m->cols;
    float *x = matrix_floats(m);
    uint16_t *codes = arena_alloc(arena, (size_t)n * sizeof *codes + 1, 256);
    if (!codes) return status_set(SOL_E_MEMORY, "no memory for a rank's inputs");
    for (int64_t i = 0; i < n; i++) codes[i] = bf16_from_f32(x[i]), x[i] = bf16_to_f32(codes[i]);
    if (like->dtype == DTYPE_BF16) m->data = codes, m->dtype = DTYPE_BF16;
    return SOL_OK;
}

static enum sol_status draw(const struct rank *r, struct arena *arena, void **out)
{
    struct rng rng;
    struct case_maker maker = {.arena = arena, .rng = &rng, .kind = CASE_RANDOM};
    void *args = *out = arena_alloc(arena, r->op->args_size, 64);
    if (!args) return status_set(SOL_E_MEMORY, "no memory for a rank's inputs");
    rng_seed(&rng, (uint64_t)communicator_rank(r->communicator) + 1);
    r->op->make_problem(&maker, &r->problem, args);
    for (int i = 0; r->op->matrices[i].access; i++)
        SOL_TRY(narrow(arena, op_matrix_of(&r->op->matrices[i], args),
                       op_matrix_of(&r->op->matrices[i], r->like)));
    return SOL_OK;
}

/* What a rank computes with. */
struct bench {
    struct gpu *gpu;
    struct arena *arena;
    struct op_context context;
};

static enum sol_status open_bench(struct rank *r, struct bench *b)
{
    b->context.communicator = r->communicator;
    if (r->ordinal >= 0) SOL_TRY(gpu_open(r->ordinal, &b->gpu));
    if (b->gpu) SOL_TRY(gpu_stream_create(b->gpu, &b->context.stream));
    r->chooser.device.gpu = b->gpu;
    SOL_TRY(verify_arena(b->gpu, &b->arena));
    return pool_create(1, &b->context.pool);
}

/* Whether all ranks can; then GPUs are joined. */
static enum sol_status join(struct communicator *c, struct gpu *gpu, enum sol_status status)
{
    SOL_TRY(communicator_agree(c, status));
    return gpu ? communicator_add_gpu(c, gpu) : SOL_OK;
}

static void *run_other(void *arg)
{
    struct rank *r = arg;
    struct bench b = {0};
    void *args;
    enum sol_status status = open_bench(r, &b);
    status = join(r->communicator, b.gpu, status);
    if (status == SOL_OK) status = draw(r, b.arena, &args);
    if (status == SOL_OK) status = run(r->op, args, &r->chooser, &b.context, NULL);
    if (status != SOL_OK) communicator_fail(r->communicator, status, 1);
    communicator_close(r->communicator);
    pool_destroy(b.context.pool);
    arena_destroy(b.arena);
    gpu_stream_destroy(b.context.stream);
    gpu_close(b.gpu);
    return NULL;
}

static enum sol_status run_together(struct rank *ranks, int size, int own, const void *args,
                                    const struct op_context *context, enum op_numerics *numerics)
{
    struct op_context mine = *context;
    struct communicator *c = mine.communicator = ranks[own].communicator;
    enum sol_status status = SOL_OK;
    for (int r = 0; r < size && status == SOL_OK; r++) {
        if (r == own) continue;
        ranks[r].started = thread_start(&ranks[r].thread, run_other, &ranks[r]) == 0;
        if (!ranks[r].started) status = status_set(SOL_E_MEMORY, "no thread for a rank");
    }
    if (status == SOL_OK) status = join(c, ranks[own].chooser.device.gpu, SOL_OK);
    if (status == SOL_OK) status = run(ranks[own].op, args, &ranks[own].chooser, &mine, numerics);
    if (status != SOL_OK) communicator_fail(c, status, 1);
    communicator_close(c); /* GPUs part together */
    for (int r = 0; r < size; r++)
        if (ranks[r].started) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < size; r++)
        if (r != own && !ranks[r].started) communicator_close(ranks[r].communicator);
    return status;
}

enum sol_status verify_ranks(const struct op *op, const void *args, const struct chooser *chooser,
                             const struct op_context *context, enum op_numerics *numerics)
{
    struct rank ranks[VERIFY_RANKS_MAX] = {0};
    struct communicator *communicators[VERIFY_RANKS_MAX];
    struct op_problem problem;
    const struct gpu *gpu = chooser->device.gpu;
    op->problem(args, &problem);
    const int size = (int)problem.groups;
    if (size < 1 || size > VERIFY_RANKS_MAX)
        return status_set(SOL_E_UNSUPPORTED, "%s of %d ranks: at most %d are verified", op->name,
                          size, VERIFY_RANKS_MAX);
    SOL_TRY(communicators_of_threads(size, communicators));
    const int own = (int)((problem.rows + problem.n) % size);
    for (int r = 0, next = 0; r < size; r++) {
        if (gpu && next == gpu_info(gpu)->ordinal) next++;
        ranks[r] = (struct rank){.op = op,
                                 .like = args,
                                 .chooser = *chooser,
                                 .ordinal = !gpu       ? -1
                                            : r == own ? gpu_info(gpu)->ordinal
                                                       : next++,
                                 .problem = problem,
                                 .communicator = communicators[r]};
    }
    return run_together(ranks, size, own, args, context, numerics);
}
