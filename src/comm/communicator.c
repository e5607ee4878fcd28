/* See communicator.h. */
#include "comm/communicator.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "comm/communicator_private.h"
#include "gpu/collective.h"

enum { LIMIT_SECONDS = 1800, LIMIT_MOST = 1000000 };

enum sol_status communicator_limit(uint64_t *ns)
{
    const char *text = getenv("SOL_RANK_SECONDS");
    char *end = NULL;
    const double seconds = text && *text ? strtod(text, &end) : LIMIT_SECONDS;
    if (end && (*end || !(seconds > 0) || seconds > LIMIT_MOST))
        return status_set(
            SOL_E_ARGUMENT,
            "SOL_RANK_SECONDS is '%.40s': seconds to wait for other ranks, %d at most", text,
            LIMIT_MOST);
    *ns = (uint64_t)(seconds * 1e9);
    return SOL_OK;
}

enum sol_status communicator_late(const struct communicator *c, const char *what)
{
    return status_set(SOL_E_DEVICE,
                      "waited %g s for the other %d ranks (%s); is one stopped, or dead? "
                      "SOL_RANK_SECONDS sets how long",
                      (double)c->limit_ns * 1e-9, c->size - 1, what);
}

int communicator_rank(const struct communicator *c)
{
    return c->rank;
}

int communicator_size(const struct communicator *c)
{
    return c->size;
}

const char *communicator_kind(const struct communicator *c)
{
    return c->calls->kind;
}

enum sol_status communicator_check(const struct communicator *c)
{
    if (c->failed != SOL_OK) return status_set(c->failed, "%s", c->message);
    return c->gpu ? gpu_ranks_check(c->gpu) : SOL_OK;
}

static enum sol_status keep(struct communicator *c, enum sol_status status)
{
    if (status == SOL_OK) return SOL_OK;
    c->failed = status;
    snprintf(c->message, sizeof c->message, "%s", sol_last_error());
    return status;
}

enum sol_status communicator_all_gather(struct communicator *c, const void *from, size_t bytes,
                                        void *to)
{
    assert(bytes <= COMMUNICATOR_PART_MAX);
    SOL_TRY(communicator_check(c));
    return keep(c, c->calls->all_gather(c, from, bytes, to));
}

enum sol_status communicator_all_to_all(struct communicator *c, const void *from, size_t bytes,
                                        void *to)
{
    assert(bytes <= COMMUNICATOR_PART_MAX);
    SOL_TRY(communicator_check(c));
    return keep(c, c->calls->all_to_all(c, from, bytes, to));
}

enum sol_status communicator_send_recv(struct communicator *c, int from, int to, void *data,
                                       size_t bytes)
{
    assert(from != to && from < c->size && to < c->size && (c->rank == from || c->rank == to) &&
           bytes <= COMMUNICATOR_PART_MAX);
    SOL_TRY(communicator_check(c));
    return keep(c, c->calls->send_recv(c, from, to, data, bytes));
}

enum sol_status communicator_broadcast(struct communicator *c, int root, void *data, size_t bytes)
{
    assert(root >= 0 && root < c->size && bytes <= COMMUNICATOR_PART_MAX);
    SOL_TRY(communicator_check(c));
    return keep(c, c->calls->broadcast(c, root, data, bytes));
}

struct said {
    enum sol_status status;
    char message[COMMUNICATOR_MESSAGE];
};

enum sol_status communicator_agree(struct communicator *c, enum sol_status mine)
{
    if (!c) return mine;
    struct said own = {.status = mine};
    struct said *all = calloc((size_t)c->size, sizeof *all);
    if (!all) return status_set(SOL_E_MEMORY, "no memory for what %d ranks say", c->size);
    if (mine != SOL_OK) snprintf(own.message, sizeof own.message, "%s", sol_last_error());
    enum sol_status status = communicator_all_gather(c, &own, sizeof own, all);
    for (int r = 0; r < c->size && status == SOL_OK; r++) {
        if (all[r].status == SOL_OK) continue;
        all[r].message[COMMUNICATOR_MESSAGE - 1] = '\0';
        status = r == c->rank ? status_set(all[r].status, "%s", all[r].message)
                              : status_set(all[r].status, "rank %d: %s", r, all[r].message);
    }
    free(all);
    return status;
}

void communicator_fail(struct communicator *c, enum sol_status status, int exit_code)
{
    c->calls->fail(c, status, exit_code);
}

struct gpu_ranks *communicator_gpu_ranks(const struct communicator *c)
{
    return c->gpu;
}

void communicator_close(struct communicator *c)
{
    if (!c) return;
    if (c->gpu && c->calls->part) c->calls->part(c);
    gpu_ranks_close(c->gpu, c->failed != SOL_OK);
    c->calls->close(c);
}
