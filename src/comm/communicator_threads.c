/* Ranks that are threads of one process: each shows the others where its data lies, and they copy.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "comm/communicator_private.h"

/* What a rank has for another one; NULL: nothing, or it was taken. */
struct passing {
    const char *data;
    bool taking; /* the other one copies it */
};

struct group {
    pthread_mutex_t mutex;
    pthread_cond_t met;
    int size, open; /* ranks; of those that were not closed */
    int arrived;
    int parted; /* ranks with GPUs that are about to be closed */
    uint64_t meetings;
    enum sol_status failed;
    char message[COMMUNICATOR_MESSAGE];
    struct passing *passing; /* [size][size] from each to each */
    const char *shown[];     /* [size] */
};

struct thread_rank {
    struct communicator base;
    struct group *group;
};

static struct group *group_of(struct communicator *c)
{
    return ((struct thread_rank *)(void *)c)->group;
}

static struct timespec time_after(uint64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

static void fail_locked(struct group *g, enum sol_status status, const char *message)
{
    if (g->failed == SOL_OK) {
        g->failed = status;
        snprintf(g->message, sizeof g->message, "%s", message);
    }
    pthread_cond_broadcast(&g->met);
}

/* Until all ranks are here. */
static enum sol_status meet(struct communicator *c, const char *what)
{
    struct group *g = group_of(c);
    const struct timespec end = time_after(c->limit_ns);
    pthread_mutex_lock(&g->mutex);
    const uint64_t meeting = g->meetings;
    if (++g->arrived == g->size && g->failed == SOL_OK) {
        g->arrived = 0;
        g->meetings++;
        pthread_cond_broadcast(&g->met);
    }
    int waited = 0;
    while (g->meetings == meeting && g->failed == SOL_OK && waited == 0)
        waited = pthread_cond_timedwait(&g->met, &g->mutex, &end);
    const bool late = g->meetings == meeting && g->failed == SOL_OK;
    if (late) {
        const enum sol_status status = communicator_late(c, what);
        fail_locked(g, status, sol_last_error());
    }
    const enum sol_status failed = g->meetings == meeting ? g->failed : SOL_OK;
    if (failed != SOL_OK) (void)status_set(failed, "%s", g->message);
    pthread_mutex_unlock(&g->mutex);
    return failed;
}

/* All have shown their data; `copy` takes what this rank wants of it; none goes on before all have.
 */
static enum sol_status share(struct communicator *c, const void *from, const char *what)
{
    group_of(c)->shown[c->rank] = from;
    return meet(c, what);
}

static enum sol_status all_gather(struct communicator *c, const void *from, size_t bytes, void *to)
{
    SOL_TRY(share(c, from, "all-gather"));
    for (int r = 0; r < c->size; r++)
        memcpy((char *)to + (size_t)r * bytes, group_of(c)->shown[r], bytes);
    return meet(c, "all-gather");
}

static enum sol_status all_to_all(struct communicator *c, const void *from, size_t bytes, void *to)
{
    SOL_TRY(share(c, from, "all-to-all"));
    for (int r = 0; r < c->size; r++)
        memcpy((char *)to + (size_t)r * bytes, group_of(c)->shown[r] + (size_t)c->rank * bytes,
               bytes);
    return meet(c, "all-to-all");
}

static enum sol_status broadcast(struct communicator *c, int root, void *data, size_t bytes)
{
    SOL_TRY(share(c, data, "broadcast"));
    if (c->rank != root) memcpy(data, group_of(c)->shown[root], bytes);
    return meet(c, "broadcast");
}

/* With the group locked: until there is something, or nothing any more. */
static enum sol_status await(struct communicator *c, const struct passing *p, bool something)
{
    struct group *g = group_of(c);
    const struct timespec end = time_after(c->limit_ns);
    int waited = 0;
    while ((p->data != NULL) != something && g->failed == SOL_OK && waited == 0)
        waited = pthread_cond_timedwait(&g->met, &g->mutex, &end);
    if (g->failed == SOL_OK && (p->data != NULL) == something) return SOL_OK;
    if (g->failed == SOL_OK) {
        const enum sol_status status = communicator_late(c, "send and receive");
        fail_locked(g, status, sol_last_error());
    }
    return status_set(g->failed, "%s", g->message);
}

/* With the group locked, by the receiver. */
static void take(struct group *g, struct passing *p, void *data, size_t bytes)
{
    p->taking = true;
    pthread_mutex_unlock(&g->mutex);
    memcpy(data, p->data, bytes);
    pthread_mutex_lock(&g->mutex);
    *p = (struct passing){NULL, false};
    pthread_cond_broadcast(&g->met);
}

/* The sender waits until it was taken, so that the receiver copies what nobody changes; after a
 * failure nobody takes it any more. */
static enum sol_status send_recv(struct communicator *c, int from, int to, void *data, size_t bytes)
{
    struct group *g = group_of(c);
    struct passing *p = &g->passing[from * g->size + to];
    pthread_mutex_lock(&g->mutex);
    if (c->rank == from) {
        p->data = data;
        pthread_cond_broadcast(&g->met);
    }
    const enum sol_status status = await(c, p, c->rank == to);
    if (status == SOL_OK && c->rank == to) take(g, p, data, bytes);
    while (c->rank == from && p->taking) pthread_cond_wait(&g->met, &g->mutex);
    if (c->rank == from) p->data = NULL;
    pthread_mutex_unlock(&g->mutex);
    return status;
}

static void fail(struct communicator *c, enum sol_status status, int exit_code)
{
    (void)exit_code;
    char message[COMMUNICATOR_MESSAGE];
    struct group *g = group_of(c);
    snprintf(message, sizeof message, "rank %d: %s", c->rank, sol_last_error());
    pthread_mutex_lock(&g->mutex);
    fail_locked(g, status, message);
    pthread_mutex_unlock(&g->mutex);
}

static enum sol_status others(struct communicator *c)
{
    struct group *g = group_of(c);
    pthread_mutex_lock(&g->mutex);
    const enum sol_status failed = g->failed;
    if (failed != SOL_OK) (void)status_set(failed, "%s", g->message);
    pthread_mutex_unlock(&g->mutex);
    return failed;
}

/* A rank that waits for others on its GPU does so for the limit, and then comes here; one that
 * hears of an error comes soon. */
static void part(struct communicator *c)
{
    static const uint64_t soon_ns = 5000000000, more_ns = 10000000000;
    struct group *g = group_of(c);
    const struct timespec soon = time_after(soon_ns), end = time_after(c->limit_ns + more_ns);
    int waited = 0;
    pthread_mutex_lock(&g->mutex);
    if (++g->parted == g->size) pthread_cond_broadcast(&g->met);
    while (g->parted < g->size && waited == 0)
        waited = pthread_cond_timedwait(&g->met, &g->mutex, g->failed == SOL_OK ? &end : &soon);
    pthread_mutex_unlock(&g->mutex);
}

static void group_destroy(struct group *g)
{
    pthread_cond_destroy(&g->met);
    pthread_mutex_destroy(&g->mutex);
    free(g->passing);
    free(g);
}

static void close_rank(struct communicator *c)
{
    struct group *g = group_of(c);
    pthread_mutex_lock(&g->mutex);
    const bool last = --g->open == 0;
    pthread_mutex_unlock(&g->mutex);
    if (last) group_destroy(g);
    free(c);
}

static const struct communicator_calls calls = {
    .kind = "threads",
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .send_recv = send_recv,
    .broadcast = broadcast,
    .fail = fail,
    .close = close_rank,
    .others = others,
    .part = part,
};

static struct group *group_create(int size)
{
    pthread_condattr_t by;
    struct group *g = calloc(1, sizeof *g + (size_t)size * sizeof *g->shown);
    if (g) g->passing = calloc((size_t)size * (size_t)size, sizeof *g->passing);
    if (!g || !g->passing) {
        free(g);
        return NULL;
    }
    g->size = g->open = size;
    pthread_mutex_init(&g->mutex, NULL);
    pthread_condattr_init(&by);
    pthread_condattr_setclock(&by, CLOCK_MONOTONIC);
    pthread_cond_init(&g->met, &by);
    pthread_condattr_destroy(&by);
    return g;
}

enum sol_status communicators_of_threads(int size, struct communicator *out[])
{
    uint64_t limit;
    for (int r = 0; r < size; r++) out[r] = NULL;
    SOL_TRY(communicator_limit(&limit));
    struct group *g = group_create(size);
    if (!g) goto fail;
    for (int r = 0; r < size; r++) {
        struct thread_rank *rank = malloc(sizeof *rank);
        if (!rank) goto fail;
        *rank =
            (struct thread_rank){{.calls = &calls, .rank = r, .size = size, .limit_ns = limit}, g};
        out[r] = &rank->base;
    }
    return SOL_OK;
fail:
    for (int r = 0; r < size; r++) free(out[r]), out[r] = NULL;
    if (g) group_destroy(g);
    return status_set(SOL_E_MEMORY, "no memory for %d ranks", size);
}
