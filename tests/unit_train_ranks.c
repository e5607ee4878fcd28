/* Trainers of several ranks, as threads: the losses and weights of one that is alone, whatever the
 * number of ranks; with sums in a tree their bits; and all of them stop for one. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "base/threads.h"
#include "comm/communicator.h"
#include "support/effort.h"
#include "train/shards.h"
#include "train/trainer.h"

enum { VOCAB = 96, LENGTH = 32, ROWS = 12, STEPS = 6, RANKS_MAX = 6, MESSAGE = 256 };

static const char gpt[] =
    "--depth=3 --aspect-ratio=16 --head-dim=16 --max-seq-len=32 --window-pattern=SSL "
    "--total-batch-size=384 --num-iterations=20 --warmup-steps=4 --warmdown-ratio=0.5 "
    "--matrix-lr=0.6 --embedding-lr=3 --unembedding-lr=0.1 --scalar-lr=5";
static const char gpt_oss[] =
    "--arch=gpt-oss --depth=3 --width=64 --head-dim=16 --kv-heads=2 --experts=6 --top-k=2 "
    "--expert-width=32 --sliding-window=9 --balance=0.01 --dropout=0.1 --mxfp4-from=0.1 "
    "--max-seq-len=32 --total-batch-size=384 --num-iterations=20 --warmup-steps=4 "
    "--warmdown-ratio=0.5 --matrix-lr=0.6 --embedding-lr=3 --unembedding-lr=0.1 --scalar-lr=5";

/* ---- shards ---- */

/* Every unit is one rank's, all blocks fit where they are said to, pieces lie one behind the other,
 * and no rank has more than its part, rounded up. */
static void check_shards(int64_t units, int64_t numbers, int ranks, int pieces)
{
    int64_t owned[64] = {0}, total = 0;
    for (int r = 0; r < ranks; r++) {
        const struct shard s = shard_of(units, numbers, ranks, r, pieces);
        int64_t own = 0, next = 0;
        assert_in_range(s.pieces, 1, pieces);
        for (int i = 0; i < s.pieces; i++) {
            const struct piece p = shard_piece(&s, i);
            assert_int_equal(p.first, next);
            next += p.block * (s.parted ? ranks : 1);
            assert_true(p.count >= 0 && p.own >= p.first && p.count <= p.block);
            assert_true(p.own + p.count <= units && p.first < units);
            assert_true(p.count == 0 || !s.parted || p.own == p.first + r * p.block);
            assert_int_equal(shard_own(&s, p.own), own);
            for (int64_t u = p.own; u < p.own + p.count; u++) owned[u]++;
            own += p.count;
        }
        assert_int_equal(next, shard_padded(&s));
        assert_true(shard_padded(&s) < units + ranks);
        assert_int_equal(shard_own(&s, units), own);
        assert_true(own <= (s.parted ? (units + ranks - 1) / ranks : units));
        total += own;
        if (s.parted) continue;
        assert_int_equal(own, units);
        total = units;
        for (int64_t u = 0; u < units; u++) owned[u] = 1;
    }
    assert_int_equal(total, units);
    for (int64_t u = 0; u < units; u++) assert_int_equal(owned[u], 1);
}

static void test_shards(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 1);
    for (int i = 0; i < 5000; i++)
        check_shards(rng_range(&rng, 1, 60), rng_range(&rng, 1, 400), (int)rng_range(&rng, 1, 9),
                     (int)rng_range(&rng, 1, 7));
}

/* ---- trainers ---- */

struct task {
    const char *flags;
    struct communicator *communicator; /* NULL: alone */
    bool tree;
    size_t memory; /* that it may take; 0: what there is */
    pthread_t thread;
    /* What came of it. */
    enum sol_status status;
    char message[MESSAGE];
    double loss[STEPS], norm[STEPS];
    float *values; /* all weights, then all states */
    int64_t count;
    struct trainer_memory bytes;
};

/* Row `row` of update `step`: the same for every number of ranks. */
static void fill_row(int64_t step, int64_t row, int32_t *x, int32_t *y)
{
    struct rng rng;
    rng_seed(&rng, (uint64_t)(step * ROWS + row));
    int32_t token = (int32_t)rng_range(&rng, 0, VOCAB - 1);
    for (int i = 0; i < LENGTH; i++) {
        x[i] = token;
        token = (int32_t)((token * 7 + 3 + rng_range(&rng, 0, 3)) % VOCAB);
        y[i] = row % 5 == 4 && i < 9 ? -1 : token;
    }
}

static void take(struct task *t, const struct params *p, const struct matrix *m)
{
    const int64_t n = m->data ? m->rows * m->cols : 0;
    t->values = realloc(t->values, (size_t)(t->count + n + 1) * sizeof *t->values);
    if (n) assert_int_equal(params_read(p, NULL, m, t->values + t->count), SOL_OK);
    t->count += n;
}

static enum sol_status take_all(struct task *t, struct trainer *trainer)
{
    const struct params *p = trainer_weights(trainer);
    for (int i = 0; i < p->count; i++) take(t, p, &p->all[i].value);
    for (int half = 0; half < STATE_HALVES; half++) {
        SOL_TRY(trainer_gather_states(trainer, half));
        for (int i = 0; i < p->count * STATES; i++) {
            const enum state_kind kind = (enum state_kind)(i % STATES);
            const struct matrix m = state_whole(p, &p->all[i / STATES], kind);
            if (state_half(kind) == half) take(t, p, &m);
        }
    }
    return SOL_OK;
}

static enum sol_status one_update(struct trainer *trainer, int64_t step, double *loss, double *norm)
{
    const int64_t ranks = trainer_ranks(trainer), rounds = ROWS / ranks;
    for (int64_t i = 0; i < rounds; i++) {
        int32_t x[LENGTH], y[LENGTH];
        fill_row(step, i * ranks + trainer_rank(trainer), x, y);
        /* In every other update nothing is said of the last one. */
        const struct micro_batch batch = {.x = x, .y = y, .last = step % 2 == 0 && i + 1 == rounds};
        SOL_TRY(trainer_micro(trainer, &batch, 1.0 / ROWS, false));
    }
    SOL_TRY(trainer_update(trainer, step, false));
    return trainer_results(trainer, step, loss, norm);
}

static enum sol_status train(struct task *t, const struct train_recipe *recipe)
{
    struct trainer_params params;
    struct trainer *trainer;
    trainer_params_init(&params);
    params.recipe = recipe;
    params.sequences = 1;
    params.threads = 1;
    params.tree = t->tree;
    params.memory = t->memory;
    params.communicator = t->communicator;
    SOL_TRY(trainer_create(&params, &trainer));
    trainer_memory(trainer, &t->bytes);
    enum sol_status status = trainer_init(trainer);
    for (int64_t step = 0; step < STEPS && status == SOL_OK; step++)
        status = one_update(trainer, step, &t->loss[step], &t->norm[step]);
    if (status == SOL_OK) status = take_all(t, trainer);
    trainer_destroy(trainer);
    return status;
}

static void *run_task(void *arg)
{
    struct task *t = arg;
    struct train_flags flags;
    struct train_recipe recipe;
    char *memory;
    t->status = train_flags_parse("test", t->flags, &flags, &memory);
    if (t->status == SOL_OK) t->status = recipe_settle(&flags, VOCAB, &recipe);
    if (t->status == SOL_OK) t->status = train(t, &recipe);
    if (t->status != SOL_OK) snprintf(t->message, sizeof t->message, "%s", sol_last_error());
    free(memory);
    return NULL;
}

/* `poor`: the rank that has no memory, or -1. */
static void run(const char *flags, int ranks, bool tree, int poor, struct task tasks[RANKS_MAX])
{
    struct communicator *c[RANKS_MAX] = {0};
    if (ranks > 1) assert_int_equal(communicators_of_threads(ranks, c), SOL_OK);
    for (int r = 0; r < ranks; r++) {
        tasks[r] = (struct task){
            .flags = flags, .communicator = c[r], .tree = tree, .memory = r == poor ? 1 : 0};
        assert_int_equal(thread_start(&tasks[r].thread, run_task, &tasks[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(tasks[r].thread, NULL);
    for (int r = 0; r < ranks; r++) communicator_close(c[r]);
    for (int r = 0; r < ranks && poor < 0; r++)
        if (tasks[r].status != SOL_OK) fail_msg("rank %d of %d: %s", r, ranks, tasks[r].message);
}

static void give(struct task *tasks, int ranks)
{
    for (int r = 0; r < ranks; r++) free(tasks[r].values);
}

static void compare(const struct task *alone, const struct task *t, bool same_bits)
{
    assert_int_equal(alone->count, t->count);
    for (int i = 0; i < STEPS; i++) {
        const double bound = same_bits ? 0 : 5e-5;
        assert_true(fabs(alone->loss[i] - t->loss[i]) <= bound);
        assert_true(fabs(alone->norm[i] - t->norm[i]) <= bound * alone->norm[i]);
    }
    if (same_bits)
        assert_memory_equal(alone->values, t->values, (size_t)t->count * sizeof *t->values);
}

/* States are held once, but for what is small. Of more ranks than layers all have some stacks. */
static void check_memory(const struct task *alone, const struct task *tasks, int ranks)
{
    const size_t whole = alone->bytes.optimizer;
    size_t all = 0;
    for (int r = 0; r < ranks; r++) {
        const size_t own = tasks[r].bytes.optimizer;
        assert_true(own * (size_t)ranks <= whole * 5 / 4);
        all += own;
    }
    assert_in_range(all, whole, whole * 9 / 8);
}

static void check_ranks(const char *flags, bool tree)
{
    static const int counts[] = {3, 2, 4, 6};
    const int64_t n = effort("numbers of ranks", sizeof counts / sizeof *counts, 2);
    struct task alone[RANKS_MAX], tasks[RANKS_MAX];
    run(flags, 1, tree, -1, alone);
    assert_true(alone->loss[STEPS - 1] < alone->loss[0]);
    for (int64_t i = 0; i < n; i++) {
        const int ranks = counts[i];
        run(flags, ranks, tree, -1, tasks);
        compare(alone, tasks, tree && (ranks & (ranks - 1)) == 0);
        for (int r = 1; r < ranks; r++) compare(tasks, &tasks[r], true);
        if (ranks <= 3) check_memory(alone, tasks, ranks);
        give(tasks, ranks);
    }
    give(alone, 1);
}

static void test_gpt(void **state)
{
    (void)state;
    check_ranks(gpt, false);
    check_ranks(gpt, true);
}

static void test_gpt_oss(void **state)
{
    (void)state;
    check_ranks(gpt_oss, false);
    check_ranks(gpt_oss, true);
}

/* One that cannot: none waits for it. */
static void test_one_fails(void **state)
{
    (void)state;
    struct task tasks[RANKS_MAX];
    run(gpt, 3, false, 1, tasks);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(tasks[r].status, SOL_E_MEMORY);
        assert_int_equal(strncmp(tasks[r].message, "rank 1: ", 8) == 0, r != 1);
        assert_non_null(strstr(tasks[r].message, "lower --device-batch-size"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_gpt),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_one_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
