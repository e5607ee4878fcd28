#include "base/threads.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"

enum { N_MAX = 5000, POOL_LARGEST = 16 };

/* What a loop does: counts its items without atomics, so that an item done twice or a missing
 * synchronisation shows (the latter to ThreadSanitizer). */
struct tally {
    int64_t n, grain;
    int pool_size;
    int done[N_MAX];
    int64_t per_worker[POOL_LARGEST];
    _Atomic int inside[POOL_LARGEST];
    _Atomic int broken;
};

static void count_items(void *arg, int64_t begin, int64_t end, int worker)
{
    struct tally *tally = arg;
    if (worker < 0 || worker >= tally->pool_size || begin < 0 || begin >= end || end > tally->n) {
        atomic_store(&tally->broken, 1);
        return;
    }
    if (end - begin > tally->grain) atomic_store(&tally->broken, 2);
    if (atomic_fetch_add(&tally->inside[worker], 1) != 0) atomic_store(&tally->broken, 3);
    for (int64_t i = begin; i < end; i++) tally->done[i]++;
    tally->per_worker[worker] += end - begin;
    atomic_fetch_sub(&tally->inside[worker], 1);
}

static void run_tally(struct pool *pool, struct tally *tally, int64_t n, int64_t grain)
{
    memset(tally, 0, sizeof *tally);
    tally->n = n;
    tally->grain = grain;
    tally->pool_size = pool_size(pool);
    pool_for(pool, n, grain, count_items, tally);
    assert_int_equal(atomic_load(&tally->broken), 0);
    for (int64_t i = 0; i < n; i++)
        if (tally->done[i] != 1) fail_msg("item %d was done %d times", (int)i, tally->done[i]);
    int64_t sum = 0;
    for (int i = 0; i < tally->pool_size; i++) sum += tally->per_worker[i];
    assert_int_equal(sum, n);
}

static void test_shapes(void **state)
{
    (void)state;
    static struct tally tally;
    const int64_t sizes[] = {0, 1, 2, 3, 7, 64, 1000, N_MAX};
    const int64_t grains[] = {1, 2, 3, 64, 999, N_MAX, INT64_MAX};
    for (int threads = 1; threads <= 5; threads++) {
        struct pool *pool;
        assert_int_equal(pool_create(threads, &pool), SOL_OK);
        assert_int_equal(pool_size(pool), threads);
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++)
                run_tally(pool, &tally, sizes[s], grains[g]);
        pool_destroy(pool);
    }
}

/* Many loops in a row, of random shapes, with pauses that let workers fall asleep, on pools smaller
 * and larger than the machine. */
static void test_stress(void **state)
{
    (void)state;
    static struct tally tally;
    const int threads[] = {2, 3, POOL_LARGEST};
    struct rng rng;
    rng_seed(&rng, 11);
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        struct pool *pool;
        assert_int_equal(pool_create(threads[t], &pool), SOL_OK);
        for (int i = 0; i < 3000; i++) {
            run_tally(pool, &tally, rng_range(&rng, 0, 200), rng_range(&rng, 1, 20));
            if (i % 100 == 0) usleep((useconds_t)rng_range(&rng, 0, 400));
        }
        pool_destroy(pool);
    }
}

/* The result of one loop feeds the next, as in a forward pass: writes of all workers must be
 * visible to all workers of the next loop. */
struct chain {
    int64_t from[64], to[64];
};

static void add_all(void *arg, int64_t begin, int64_t end, int worker)
{
    struct chain *chain = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t sum = 0;
        for (int k = 0; k < 64; k++) sum += chain->from[k];
        chain->to[i] = sum % 1000003 + i;
    }
}

static int64_t run_chain(int threads)
{
    struct pool *pool;
    struct chain chain = {.from = {1}};
    assert_int_equal(pool_create(threads, &pool), SOL_OK);
    for (int i = 0; i < 2000; i++) {
        pool_for(pool, 64, 1, add_all, &chain);
        memcpy(chain.from, chain.to, sizeof chain.from);
    }
    pool_destroy(pool);
    return chain.from[63];
}

static void test_visibility(void **state)
{
    (void)state;
    int64_t alone = run_chain(1);
    assert_int_equal(run_chain(2), alone);
    assert_int_equal(run_chain(4), alone);
}

static void note_thread(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)begin, (void)end;
    pthread_t *threads = arg;
    threads[worker] = pthread_self();
    usleep(2000); /* long enough for the others to take a chunk each */
}

static void test_workers_take_part(void **state)
{
    (void)state;
    struct pool *pool;
    pthread_t threads[3] = {0};
    assert_int_equal(pool_create(3, &pool), SOL_OK);
    for (int i = 0; i < 100 && (!threads[1] || !threads[2]); i++)
        pool_for(pool, 30, 1, note_thread, threads);
    assert_true(pthread_equal(threads[0], pthread_self()));
    assert_true(threads[1] && threads[2]);
    assert_false(pthread_equal(threads[0], threads[1]));
    assert_false(pthread_equal(threads[1], threads[2]));
    pool_destroy(pool);
}

static void test_create_and_destroy(void **state)
{
    (void)state;
    struct pool *pool;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(pool_create(1 + i % 6, &pool), SOL_OK);
        if (i % 3 == 0) usleep(150); /* some asleep, some not */
        pool_destroy(pool);
    }
    pool_destroy(NULL);
    assert_int_equal(pool_create(0, &pool), SOL_E_ARGUMENT);
    assert_null(pool);
    assert_int_equal(pool_create(1 << 20, &pool), SOL_E_ARGUMENT);
}

static void *run_own_pool(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)run_chain(2);
}

/* Pools share nothing. */
static void test_two_pools_at_once(void **state)
{
    (void)state;
    pthread_t other;
    void *result;
    assert_int_equal(pthread_create(&other, NULL, run_own_pool, NULL), 0);
    int64_t mine = run_chain(2);
    pthread_join(other, &result);
    assert_int_equal((intptr_t)result, mine);
}

static void do_nothing(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)arg, (void)begin, (void)end, (void)worker;
}

/* Not a pass or fail of nanoseconds: on a shared machine only a gross fault (every loop waits for a
 * sleeper) may fail. The figure is printed. */
static void test_latency(void **state)
{
    (void)state;
    enum { LOOPS = 20000 };
    int threads = cpu_info()->cores < 4 ? cpu_info()->cores : 4;
    struct pool *pool;
    assert_int_equal(pool_create(threads, &pool), SOL_OK);
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < 5; round++) {
        uint64_t start = clock_ns();
        for (int i = 0; i < LOOPS; i++) pool_for(pool, threads, 1, do_nothing, NULL);
        uint64_t took = (clock_ns() - start) / LOOPS;
        if (took < best) best = took;
    }
    print_message("fork-join of %d threads: %d ns\n", threads, (int)best);
    assert_true(best < 100000);
    pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_stress),
        cmocka_unit_test(test_visibility),
        cmocka_unit_test(test_workers_take_part),
        cmocka_unit_test(test_create_and_destroy),
        cmocka_unit_test(test_two_pools_at_once),
        cmocka_unit_test(test_latency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
