#include "gpu/collective.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "driver/nccl.h"
#include "gpu/gpu_private.h"

enum { SLEEP_NS = 200000 };

struct gpu_ranks {
    struct gpu *gpu;
    const struct nccl_api *api;
    void *comm;
    int rank;
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

/* A call that was begun is asked for until it is done. */
static enum sol_status settle(const struct gpu_ranks *r, int result, uint64_t limit_ns,
                              const char *what)
{
    const uint64_t began = clock_ns();
    while (result == NCCL_IN_PROGRESS) {
        if (clock_ns() - began > limit_ns)
            return status_set(SOL_E_DEVICE, "NCCL: %s: not all ranks came within %g s", what,
                              (double)limit_ns * 1e-9);
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
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

enum sol_status gpu_ranks_open(struct gpu *gpu, const unsigned char id[GPU_RANKS_ID], int rank,
                               int size, uint64_t limit_ns, struct gpu_ranks **out)
{
    const struct nccl_api *api;
    *out = NULL;
    SOL_TRY(load(&api));
    struct gpu_ranks *r = malloc(sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for ranks");
    *r = (struct gpu_ranks){.gpu = gpu, .api = api, .rank = rank};
    const enum sol_status status = start(r, id, size, limit_ns);
    if (status == SOL_OK)
        *out = r;
    else
        gpu_ranks_close(r, true);
    return status;
}

void gpu_ranks_close(struct gpu_ranks *r, bool broken)
{
    if (!r) return;
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
    SOL_TRY(nccl_status(r->api, r->api->state(r->comm, &state), r->comm, "asking"));
    return state == NCCL_IN_PROGRESS ? SOL_OK : nccl_status(r->api, state, r->comm, "other ranks");
}

static enum sol_status put(struct gpu_stream *stream, struct gpu_ranks *r, enum gpu_collective what,
                           bool narrow, void *x, int64_t n)
{
    enum { LIMIT_NS = 1000000000 };
    const int type = narrow ? NCCL_BF16 : NCCL_F32;
    void *own = (char *)x + (size_t)(r->rank * n) * (narrow ? 2 : 4);
    const size_t count = (size_t)n;
    int result;
    SOL_TRY(cuda_status(stream->gpu->cuda, gpu_enter(stream->gpu), "adding up ranks"));
    if (what == GPU_ALL_REDUCE || what == GPU_ALL_MEAN)
        result = r->api->all_reduce(x, x, count, type, what == GPU_ALL_MEAN ? NCCL_MEAN : NCCL_SUM,
                                    r->comm, stream->handle);
    else if (what == GPU_REDUCE_SCATTER)
        result = r->api->reduce_scatter(x, own, count, type, NCCL_SUM, r->comm, stream->handle);
    else
        result = r->api->all_gather(own, x, count, type, r->comm, stream->handle);
    return settle(r, result, LIMIT_NS, "putting a collective");
}

void gpu_put_collective(struct gpu_stream *stream, struct gpu_ranks *ranks,
                        enum gpu_collective what, bool narrow, void *x, int64_t n)
{
    if (stream->put_status != SOL_OK) return;
    enum sol_status status = gpu_watch_before(stream);
    if (status == SOL_OK) status = put(stream, ranks, what, narrow, x, n);
    if (status == SOL_OK) status = gpu_watch_behind(stream, "NCCL");
    stream->kernels += status == SOL_OK && !stream->capturing;
    gpu_keep(stream, status);
}
