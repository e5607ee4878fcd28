/* A pool of pthreads for data-parallel loops. The caller works too, so a pool of one starts no
 * thread. Workers spin briefly between loops (a decode step has hundreds of short ones), then
 * sleep. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include <pthread.h>
#include <stdint.h>

#include "sol/status.h"

/* pthread_create with a stack that does not shrink with ulimit -s; returns its error. */
int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

/* Between two looks at a word that another thread is about to write; 10 to 50 ns. */
void thread_pause(void);

struct pool;

/* Does items [begin, end), at most `grain` of them. `worker` is 0..pool_size-1 and is held by one
 * thread at a time. */
typedef void (*pool_fn)(void *arg, int64_t begin, int64_t end, int worker);

enum sol_status pool_create(int n_threads, struct pool **out);
void pool_destroy(struct pool *pool); /* takes NULL */
int pool_size(const struct pool *pool);

/* Runs fn over 0..n-1 in chunks of `grain` handed out dynamically; returns when all are done. Runs
 * on the caller alone when n <= grain. Not reentrant: fn may not start another loop on the same
 * pool. */
void pool_for(struct pool *pool, int64_t n, int64_t grain, pool_fn fn, void *arg);

#endif
