/* Ranks that are processes, which Open MPI connects. Calls are started and asked for until they are
 * done, so that a rank that never comes is seen. */
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator_private.h"
#include "driver/mpi.h"

/* A wait spins as long as an exchange within a host takes, then sleeps longer and longer. */
enum { SPIN_NS = 200000, SLEEP_NS = 20000, SLEEP_MAX_NS = 1000000 };

struct mpi_rank {
    struct communicator base;
    const struct mpi_api *api;
};

static struct mpi_rank *mpi_of(struct communicator *c)
{
    return (struct mpi_rank *)(void *)c;
}

static enum sol_status finish(struct mpi_rank *m, int started, void *request, const char *what)
{
    const uint64_t began = clock_ns();
    long sleep = SLEEP_NS;
    int done = 0;
    SOL_TRY(mpi_status(m->api, started, what));
    for (;;) {
        SOL_TRY(mpi_status(m->api, m->api->test(&request, &done, NULL), what));
        if (done) break;
        const uint64_t waited = clock_ns() - began;
        if (waited > m->base.limit_ns) return communicator_late(&m->base, what);
        if (waited < SPIN_NS) continue;
        nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
        if (sleep < SLEEP_MAX_NS) sleep *= 2;
    }
    return SOL_OK;
}

static enum sol_status all_gather(struct communicator *c, const void *from, size_t bytes, void *to)
{
    struct mpi_rank *m = mpi_of(c);
    void *request = NULL, *byte = m->api->byte;
    const int n = (int)bytes;
    const int started = m->api->all_gather(from, n, byte, to, n, byte, m->api->world, &request);
    return finish(m, started, request, "all-gather");
}

static enum sol_status all_to_all(struct communicator *c, const void *from, size_t bytes, void *to)
{
    struct mpi_rank *m = mpi_of(c);
    void *request = NULL, *byte = m->api->byte;
    const int n = (int)bytes;
    const int started = m->api->all_to_all(from, n, byte, to, n, byte, m->api->world, &request);
    return finish(m, started, request, "all-to-all");
}

static enum sol_status send_recv(struct communicator *c, int from, int to, void *data, size_t bytes)
{
    struct mpi_rank *m = mpi_of(c);
    void *request = NULL, *byte = m->api->byte;
    const int n = (int)bytes;
    const int started = c->rank == from
                            ? m->api->send(data, n, byte, to, 0, m->api->world, &request)
                            : m->api->receive(data, n, byte, from, 0, m->api->world, &request);
    return finish(m, started, request, "send and receive");
}

static enum sol_status broadcast(struct communicator *c, int root, void *data, size_t bytes)
{
    struct mpi_rank *m = mpi_of(c);
    void *request = NULL;
    const int started =
        m->api->broadcast(data, (int)bytes, m->api->byte, root, m->api->world, &request);
    return finish(m, started, request, "broadcast");
}

static void fail(struct communicator *c, enum sol_status status, int exit_code)
{
    (void)status;
    mpi_of(c)->api->end_all(mpi_of(c)->api->world, exit_code);
}

/* MPI_Finalize waits for all ranks, for ever if one is gone. */
static void close_rank(struct communicator *c)
{
    struct mpi_rank *m = mpi_of(c);
    if (m->base.failed == SOL_OK) m->api->finalize();
    free(m);
}

static const struct communicator_calls calls = {
    .kind = "MPI",
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .send_recv = send_recv,
    .broadcast = broadcast,
    .fail = fail,
    .close = close_rank,
};

static enum sol_status start(struct mpi_rank *m, const struct launch *launch)
{
    int given;
    const struct mpi_api *api = m->api;
    SOL_TRY(mpi_status(api, api->init(NULL, NULL, MPI_THREADS_FUNNELED, &given), "starting"));
    SOL_TRY(mpi_status(api, api->on_error(api->world, api->errors_return), "errors"));
    SOL_TRY(mpi_status(api, api->rank(api->world, &m->base.rank), "rank"));
    SOL_TRY(mpi_status(api, api->size(api->world, &m->base.size), "size"));
    if (m->base.rank == launch->rank && m->base.size == launch->size) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED,
                      "%s says rank %d of %d, Open MPI %d of %d: start it by Open MPI's mpirun, or "
                      "by srun --mpi=pmix",
                      launch->by, launch->rank, launch->size, m->base.rank, m->base.size);
}

enum sol_status communicator_open_mpi(const struct launch *launch, struct communicator **out)
{
    uint64_t limit;
    const char *why;
    *out = NULL;
    SOL_TRY(communicator_limit(&limit));
    const struct mpi_api *api = mpi_load(&why);
    if (!api)
        return status_set(SOL_E_UNSUPPORTED,
                          "%d ranks of %s need Open MPI (Debian: openmpi-bin): %s", launch->size,
                          launch->by, why);
    struct mpi_rank *m = malloc(sizeof *m);
    if (!m) return status_set(SOL_E_MEMORY, "no memory for a communicator");
    *m = (struct mpi_rank){.base = {.calls = &calls, .size = 1, .limit_ns = limit}, .api = api};
    const enum sol_status status = start(m, launch);
    if (status != SOL_OK) {
        free(m);
        return status;
    }
    *out = &m->base;
    return SOL_OK;
}
