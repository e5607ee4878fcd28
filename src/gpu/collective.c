#include "gpu/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "driver/nccl.h"
#include "gpu/gpu_private.h"
#include "gpu/peers.h"

enum { SLEEP_NS = 200000 };

struct gpu_ranks {
    struct gpu *gpu;
    const struct nccl_api *api; /* NULL: without NCCL */
    void *comm;                 /* NULL: none, or it was ended */
    int rank;
    uint64_t limit_ns;
    struct gpu_peers *peers;
    enum sol_status (*others)(void *arg); /* or NULL */
    void *others_arg;
    enum sol_status ended; /* why nobody is waited for any longer, with its message */
    char message[512];
};

_Static_assert(sizeof(struct nccl_id) == GPU_RANKS_ID, "an id is NCCL's");

bool gpu_collective_usable(const char **why)
{
    return nccl_load(why) != NULL;
}

static enum sol_status load(const struct nccl_api **out)
{
    const char *why;
    *out = nccl_load(&why);
    return *out ? SOL_OK : status_set(SOL_E_UNSUPPORTED, "several GPUs need NCCL: %s", why);
}

enum sol_status gpu_ranks_id(unsigned char id[GPU_RANKS_ID])
{
    struct nccl_id made;
    const struct nccl_api *api;
    SOL_TRY(load(&api));
    SOL_TRY(nccl_status(api, api->unique_id(&made), NULL, "making an id"));
    memcpy(id, &made, sizeof made);
    return SOL_OK;
}

/* A call that was begun is asked for until it is done: to put one takes NCCL some ten microseconds,
 * but the first ones find connections first, for which all ranks have to come. */
static enum sol_status settle(const struct gpu_ranks *r, int result, uint64_t limit_ns,
                              const char *what)
{
    enum { SPIN_NS = 1000000 };
    const uint64_t began = clock_ns();
    while (result == NCCL_IN_PROGRESS) {
        const uint64_t waited = clock_ns() - began;
        if (waited > limit_ns)
            return status_set(SOL_E_DEVICE, "NCCL: %s: not all ranks came within %g s", what,
                              (double)limit_ns * 1e-9);
        if (waited > SPIN_NS) {
            if (r->others) SOL_TRY(r->others(r->others_arg));
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
        }
        SOL_TRY(nccl_status(r->api, r->api->state(r->comm, &result), r->comm, what));
    }
    return nccl_status(r->api, result, r->comm, what);
}

static enum sol_status start(struct gpu_ranks *r, const unsigned char *bytes, int size,
                             uint64_t limit_ns)
{
    struct nccl_id id;
    struct nccl_config config = {.size = sizeof config,
                                 .magic = NCCL_CONFIG_MAGIC,
                                 .version = NCCL_CONFIG_VERSION,
                                 .blocking = 0,
                                 .cga_cluster_size = NCCL_UNSET,
                                 .ctas_least = NCCL_UNSET,
                                 .ctas_most = NCCL_UNSET,
                                 .split_share = NCCL_UNSET};
    memcpy(&id, bytes, sizeof id);
    SOL_TRY(cuda_status(r->gpu->cuda, gpu_enter(r->gpu), "joining ranks"));
    return settle(r, r->api->init(&r->comm, size, id, r->rank, &config), limit_ns, "joining ranks");
}

enum sol_status gpu_ranks_open(struct gpu *gpu, const unsigned char *id, int rank, int size,
                               uint64_t limit_ns, struct gpu_ranks **out)
{
    const struct nccl_api *api = NULL;
    *out = NULL;
    if (id) SOL_TRY(load(&api));
    struct gpu_ranks *r = malloc(sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for ranks");
    *r = (struct gpu_ranks){.gpu = gpu, .api = api, .rank = rank, .limit_ns = limit_ns};
    const enum sol_status status = id ? start(r, id, size, limit_ns) : SOL_OK;
    if (status == SOL_OK)
        *out = gpu->ranks = r;
    else
        gpu_ranks_close(r, true);
    return status;
}

void gpu_ranks_watch(struct gpu_ranks *r, struct gpu_peers *peers,
                     enum sol_status (*others)(void *arg), void *arg)
{
    r->peers = peers;
    r->others = others;
    r->others_arg = arg;
}

struct gpu_peers *gpu_ranks_peers(const struct gpu_ranks *r)
{
    return r->peers;
}

bool gpu_ranks_reach(const struct gpu *gpu, int ranks, char *why, size_t size)
{
    bool all = ranks <= GPU_PEERS_MAX;
    int found = 1;
    if (gpu->ranks) all = gpu->ranks->peers != NULL;
    for (int i = 0; gpu->cuda && !gpu->ranks && all && found < ranks; i++) {
        if (i == gpu->info.ordinal) continue;
        all = gpu_reaches(gpu, i);
        found++;
    }
    if (!all)
        snprintf(why, size,
                 "the GPUs of %d ranks do not reach each other's memory, or are not of "
                 "one process",
                 ranks);
    return all;
}

/* ---- waiting ---- */

/* Nobody waits for other ranks any longer, on the GPU either. */
static void give_up(struct gpu_ranks *r, enum sol_status status)
{
    if (r->ended != SOL_OK) return;
    r->ended = status;
    snprintf(r->message, sizeof r->message, "%s", sol_last_error());
    if (r->peers) gpu_peers_stop(r->peers);
    if (r->comm) r->api->end_all(r->comm);
    r->comm = NULL;
}

static enum sol_status late(const struct gpu_ranks *r)
{
    return status_set(SOL_E_DEVICE,
                      "waited %g s for GPU %d, whose work needs other ranks; is one stopped, or "
                      "dead? SOL_RANK_SECONDS sets how long",
                      (double)r->limit_ns * 1e-9, r->gpu->info.ordinal);
}

/* What there is to say of the others while this rank's GPU is at work. */
static enum sol_status look_around(struct gpu_ranks *r, uint64_t waited)
{
    if (r->others) SOL_TRY(r->others(r->others_arg));
    SOL_TRY(gpu_ranks_check(r));
    return waited > r->limit_ns ? late(r) : SOL_OK;
}

/* A short wait is not slept through: it is what a token takes. */
enum sol_status gpu_ranks_wait(struct gpu_ranks *r, struct gpu_stream *stream)
{
    enum { LOOK_NS = 1000000, SPIN_NS = 20000000, NAP_NS = 50000 };
    static const uint64_t most_ns = 5000000000;
    const uint64_t end_ns = r->limit_ns < most_ns ? r->limit_ns : most_ns; /* of what was stopped */
    const struct gpu *gpu = stream->gpu;
    uint64_t began = clock_ns(), looked = began;
    for (cuda_result result;;) {
        SOL_TRY(cuda_status(gpu->cuda, gpu_enter(gpu), "waiting for the GPU"));
        result = gpu->cuda->stream_query(stream->handle);
        if (result != CUDA_E_NOT_READY) {
            SOL_TRY(cuda_status(gpu->cuda, result, "the GPU's work failed"));
            return gpu_ranks_check(r);
        }
        const uint64_t now = clock_ns();
        if (now - looked < LOOK_NS) continue;
        looked = now;
        const bool over = r->ended != SOL_OK;
        if (over && now - began > end_ns) return gpu_ranks_check(r);
        const enum sol_status status = over ? SOL_OK : look_around(r, now - began);
        if (status != SOL_OK) give_up(r, status), began = now;
        if (now - began > SPIN_NS) nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

void gpu_ranks_close(struct gpu_ranks *r, bool broken)
{
    if (!r) return;
    r->gpu->ranks = NULL;
    gpu_peers_destroy(r->peers);
    (void)gpu_enter(r->gpu);
    if (r->comm && broken) {
        r->api->end_all(r->comm);
    } else if (r->comm) {
        enum { LIMIT_NS = 1000000000 };
        const int begun = r->api->finalize(r->comm);
        if (settle(r, begun, LIMIT_NS, "parting") == SOL_OK)
            r->api->destroy(r->comm);
        else
            r->api->end_all(r->comm);
    }
    free(r);
}

enum sol_status gpu_ranks_check(struct gpu_ranks *r)
{
    int state = NCCL_OK;
    if (r->ended != SOL_OK) return status_set(r->ended, "%s", r->message);
    if (r->peers) SOL_TRY(gpu_peers_check(r->peers));
    if (!r->comm) return SOL_OK;
    SOL_TRY(nccl_status(r->api, r->api->state(r->comm, &state), r->comm, "asking"));
    return state == NCCL_IN_PROGRESS ? SOL_OK : nccl_status(r->api, state, r->comm, "other ranks");
}

/* What there is to put. */
struct put {
    struct gpu_ranks *ranks;
    enum gpu_collective what;
    int from, to; /* of a pair; else both -1 */
    bool narrow;
    void *x;
    int64_t n;
};

static int call(const struct put *p, void *stream)
{
    struct gpu_ranks *r = p->ranks;
    const int type = p->narrow ? NCCL_BF16 : NCCL_F32;
    const size_t count = (size_t)p->n;
    void *x = p->x, *own = (char *)x + (size_t)(r->rank * p->n) * (p->narrow ? 2 : 4);
    if (p->from == r->rank) return r->api->send(x, count, type, p->to, r->comm, stream);
    if (p->to == r->rank) return r->api->receive(x, count, type, p->from, r->comm, stream);
    if (p->what == GPU_ALL_REDUCE)
        return r->api->all_reduce(x, x, count, type, NCCL_SUM, r->comm, stream);
    if (p->what == GPU_REDUCE_SCATTER)
        return r->api->reduce_scatter(x, own, count, type, NCCL_SUM, r->comm, stream);
    return r->api->all_gather(own, x, count, type, r->comm, stream);
}

static enum sol_status begin(struct gpu_stream *stream, const struct put *p)
{
    struct gpu_ranks *r = p->ranks;
    SOL_TRY(gpu_ranks_check(r)); /* NCCL is there, then */
    SOL_TRY(cuda_status(stream->gpu->cuda, gpu_enter(stream->gpu), "passing between ranks"));
    return settle(r, call(p, stream->handle), r->limit_ns, "putting a collective");
}

static void put(struct gpu_stream *stream, const struct put *p)
{
    if (stream->put_status != SOL_OK) return;
    enum sol_status status = gpu_watch_before(stream);
    if (status == SOL_OK) status = begin(stream, p);
    if (status == SOL_OK) status = gpu_watch_behind(stream, "NCCL");
    stream->kernels += status == SOL_OK && !stream->capturing;
    gpu_keep(stream, status);
}

void gpu_put_collective(struct gpu_stream *stream, struct gpu_ranks *ranks,
                        enum gpu_collective what, bool narrow, void *x, int64_t n)
{
    put(stream, &(struct put){ranks, what, -1, -1, narrow, x, n});
}

void gpu_put_send_recv(struct gpu_stream *stream, struct gpu_ranks *ranks, int from, int to,
                       bool narrow, void *x, int64_t n)
{
    put(stream,
        &(struct put){.ranks = ranks, .from = from, .to = to, .narrow = narrow, .x = x, .n = n});
}
