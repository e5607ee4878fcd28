/* Fork and join without locks.
 *
 * One atomic word, `state`, carries the protocol:
 *   bits 0..15   workers inside the present loop
 *   bit 16       open: a loop is there to be joined
 *   bit 17       stop: the pool ends
 *   bits 32..63  generation, counts loops
 * The caller writes the job, opens the loop (+generation +open in one addition), works too, closes
 * it when no chunk is left, and waits until nobody is inside. A worker adds itself; only if the
 * value it got back says open may it read the job. So the caller never waits for a worker that was
 * asleep or not scheduled: whoever is late finds the loop closed, and on a busy machine the caller
 * does the work alone instead of waiting for a time slice.
 *
 * Sleeping: a worker counts itself in `sleepers`, then looks at `state` once more, then waits on
 * the futex `wakeups`. The caller opens, then reads `sleepers`. All four are sequentially
 * consistent, so one of the two sees the other. */
#include "base/threads.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/status.h"

#define STATE_INSIDE     UINT64_C(0xffff)
#define STATE_OPEN       (UINT64_C(1) << 16)
#define STATE_STOP       (UINT64_C(1) << 17)
#define STATE_GENERATION (UINT64_C(1) << 32)

enum {
    THREAD_STACK_MIN = 1 << 20,
    POOL_MAX = 4096, /* fits the 16 bits of STATE_INSIDE */
    CACHE_LINE = 64,
    /* Workers spin this long before they sleep. A decode step leaves gaps of a few microseconds
     * between loops and about 100 around sampling; waking a sleeper costs 5 to 50. */
    SPIN_NS = 100000,
    PAUSES_PER_LOOK = 32, /* at the clock; a pause takes 10 to 50 ns */
    SPINS_BEFORE_YIELD = 4096,
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    int number;
};

struct pool {
    /* Apart from each other: written by different threads at different times. */
    _Alignas(CACHE_LINE) _Atomic uint64_t state;
    _Alignas(CACHE_LINE) _Atomic int64_t next_chunk;
    _Alignas(CACHE_LINE) _Atomic uint32_t wakeups; /* the futex */
    _Atomic uint32_t sleepers;
    /* The job: written while the loop is closed and nobody is inside. */
    _Alignas(CACHE_LINE) pool_fn fn;
    void *arg;
    int64_t n, grain, n_chunks;
    /* Fixed after creation. */
    bool crowded; /* more threads than cores: spinning would keep others from working */
    int size, started;
    struct worker *workers; /* size - 1 of them; worker 0 is the caller */
};

int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    pthread_attr_t attributes;
    size_t size = 0;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    if (pthread_attr_getstacksize(&attributes, &size) == 0 && size < THREAD_STACK_MIN)
        pthread_attr_setstacksize(&attributes, THREAD_STACK_MIN);
    error = pthread_create(thread, &attributes, run, arg);
    pthread_attr_destroy(&attributes);
    return error;
}

void thread_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void work(struct pool *pool, int worker)
{
    int64_t grain = pool->grain, n = pool->n, n_chunks = pool->n_chunks;
    for (;;) {
        int64_t chunk = atomic_fetch_add_explicit(&pool->next_chunk, 1, memory_order_relaxed);
        if (chunk >= n_chunks) return;
        int64_t begin = chunk * grain;
        pool->fn(pool->arg, begin, n - begin > grain ? begin + grain : n, worker);
    }
}

/* Whether a worker that has seen the generation of `seen` has something to do. */
static bool has_news(uint64_t state, uint64_t seen)
{
    return (state & STATE_STOP) || (state >> 32) != (seen >> 32);
}

static uint64_t spin(struct pool *pool, uint64_t seen)
{
    uint64_t state = atomic_load_explicit(&pool->state, memory_order_acquire);
    if (pool->crowded) return state;
    uint64_t started = 0;
    while (!has_news(state, seen)) {
        for (int i = 0; i < PAUSES_PER_LOOK && !has_news(state, seen); i++) {
            thread_pause();
            state = atomic_load_explicit(&pool->state, memory_order_acquire);
        }
        uint64_t now = clock_ns();
        if (!started) started = now;
        if (now - started > SPIN_NS) break;
    }
    return state;
}

static uint64_t wait_for_news(struct pool *pool, uint64_t seen)
{
    uint64_t state = spin(pool, seen);
    while (!has_news(state, seen)) {
        atomic_fetch_add(&pool->sleepers, 1);
        uint32_t wakeups = atomic_load(&pool->wakeups);
        state = atomic_load(&pool->state);
        if (!has_news(state, seen)) futex_wait(&pool->wakeups, wakeups);
        atomic_fetch_sub(&pool->sleepers, 1);
        state = atomic_load(&pool->state);
    }
    return state;
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct pool *pool = self->pool;
    uint64_t seen = 0;
    for (;;) {
        seen = wait_for_news(pool, seen);
        if (seen & STATE_STOP) return NULL;
        if (!(seen & STATE_OPEN)) continue; /* too late for that loop */
        /* Acquire: the job. Release: what fn wrote, read by the caller after it sees nobody inside.
         */
        seen = atomic_fetch_add_explicit(&pool->state, 1, memory_order_acq_rel);
        if (seen & STATE_OPEN) work(pool, self->number);
        atomic_fetch_sub_explicit(&pool->state, 1, memory_order_acq_rel);
    }
}

static void wake_sleepers(struct pool *pool)
{
    if (atomic_load(&pool->sleepers) == 0) return;
    atomic_fetch_add(&pool->wakeups, 1);
    futex_wake_all(&pool->wakeups);
}

/* In chunks of grain here too: scratch memory of fn may be sized by it. */
static void run_alone(int64_t n, int64_t grain, pool_fn fn, void *arg)
{
    int64_t begin = 0;
    for (; n - begin > grain; begin += grain) fn(arg, begin, begin + grain, 0);
    fn(arg, begin, n, 0);
}

void pool_for(struct pool *pool, int64_t n, int64_t grain, pool_fn fn, void *arg)
{
    assert(grain > 0);
    if (n <= 0) return;
    if (n <= grain || pool->size == 1) {
        run_alone(n, grain, fn, arg);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->n = n;
    pool->grain = grain;
    pool->n_chunks = n / grain + (n % grain != 0);
    atomic_store_explicit(&pool->next_chunk, 0, memory_order_relaxed);
    uint64_t before = atomic_fetch_add(&pool->state, STATE_GENERATION + STATE_OPEN);
    assert(!(before & STATE_OPEN)); /* else fn started a loop on its own pool */
    (void)before;
    wake_sleepers(pool);

    work(pool, 0);
    uint64_t state = atomic_fetch_sub(&pool->state, STATE_OPEN) - STATE_OPEN;
    for (int spins = 0; state & STATE_INSIDE; spins++) {
        if (pool->crowded || spins > SPINS_BEFORE_YIELD)
            sched_yield();
        else
            thread_pause();
        state = atomic_load_explicit(&pool->state, memory_order_acquire);
    }
}

static enum sol_status start_workers(struct pool *pool)
{
    /* Signals belong to the thread that runs the program. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = 0;
    while (pool->started < pool->size - 1 && !error) {
        struct worker *worker = &pool->workers[pool->started];
        *worker = (struct worker){.pool = pool, .number = pool->started + 1};
        error = thread_start(&worker->thread, worker_main, worker);
        if (!error) pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return status_set(SOL_E_MEMORY, "cannot start thread %d of %d: %s; ask for fewer threads",
                          pool->started + 2, pool->size, strerror(error));
    return SOL_OK;
}

enum sol_status pool_create(int n_threads, struct pool **out)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_MAX)
        return status_set(SOL_E_ARGUMENT, "%d threads asked for; 1 to %d are possible", n_threads,
                          POOL_MAX);
    struct pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    enum sol_status status = SOL_OK;
    if (pool) {
        memset(pool, 0, sizeof *pool);
        pool->size = n_threads;
        pool->crowded = n_threads > cpu_info()->cores;
        pool->workers = calloc((size_t)n_threads, sizeof *pool->workers);
    }
    if (!pool || !pool->workers) {
        status = status_set(SOL_E_MEMORY, "out of memory for %d threads", n_threads);
        goto fail;
    }
    status = start_workers(pool);
    if (status != SOL_OK) goto fail;
    *out = pool;
    return SOL_OK;
fail:
    pool_destroy(pool);
    return status;
}

void pool_destroy(struct pool *pool)
{
    if (!pool) return;
    atomic_fetch_or(&pool->state, STATE_STOP);
    wake_sleepers(pool);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
    free(pool);
}

int pool_size(const struct pool *pool)
{
    return pool->size;
}
