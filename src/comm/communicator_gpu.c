/* Ranks and their GPUs: who reaches whose memory, and whether there is NCCL. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "comm/communicator_private.h"
#include "gpu/collective.h"
#include "gpu/device.h"
#include "gpu/peers.h"

/* What a rank says of itself. */
struct place {
    char host[64];
    long process;
    int ordinal; /* of its GPU */
    bool nccl;   /* is there */
    bool box;    /* for what the others send */
    void *address;
};

/* Whether the GPUs are of this process, one for each rank, and this one reaches all. */
static bool reaches_all(const struct communicator *c, const struct gpu *gpu,
                        const struct place *all, int ordinals[GPU_PEERS_MAX])
{
    const struct place *own = &all[c->rank];
    if (c->size > GPU_PEERS_MAX) return false;
    for (int r = 0; r < c->size; r++) {
        ordinals[r] = all[r].ordinal;
        if (all[r].process != own->process || strcmp(all[r].host, own->host) != 0) return false;
        if (r != c->rank && ordinals[r] == own->ordinal) return false;
        if (!gpu_reaches(gpu, ordinals[r])) return false;
    }
    return true;
}

/* *out stays NULL where not all ranks reach each other. */
static enum sol_status find_peers(struct communicator *c, struct gpu *gpu, struct place *all,
                                  struct gpu_peers **out)
{
    int ordinals[GPU_PEERS_MAX];
    void *boxes[GPU_PEERS_MAX];
    struct place own = all[c->rank];
    struct gpu_peers *peers = NULL;
    bool together = true;
    if (reaches_all(c, gpu, all, ordinals)) {
        own.box = gpu_peers_create(gpu, c->rank, c->size, ordinals, c->limit_ns, &peers) == SOL_OK;
        if (own.box)
            own.address = gpu_peers_box(peers);
        else
            LOG_WARN("rank %d: %s; NCCL does without", c->rank, sol_last_error());
    }
    const enum sol_status status = communicator_all_gather(c, &own, sizeof own, all);
    for (int r = 0; r < c->size && status == SOL_OK; r++) together &= all[r].box;
    if (status != SOL_OK || !together) {
        gpu_peers_destroy(peers);
        return status;
    }
    for (int r = 0; r < c->size; r++) boxes[r] = all[r].address;
    gpu_peers_join(peers, boxes);
    *out = peers;
    return SOL_OK;
}

static enum sol_status find_all(struct communicator *c, struct gpu *gpu, struct place *all,
                                struct gpu_peers **peers)
{
    struct place own = {.process = getpid(),
                        .ordinal = gpu_info(gpu)->ordinal,
                        .nccl = gpu_collective_usable(NULL)};
    gethostname(own.host, sizeof own.host - 1);
    SOL_TRY(communicator_all_gather(c, &own, sizeof own, all));
    return find_peers(c, gpu, all, peers);
}

/* Without NCCL there are only kernels that reach all ranks' memory. */
static enum sol_status join(struct communicator *c, struct gpu *gpu, const struct place *all,
                            const struct gpu_peers *peers)
{
    unsigned char id[GPU_RANKS_ID] = {0};
    bool nccl = true;
    for (int r = 0; r < c->size; r++) nccl &= all[r].nccl;
    nccl |= !peers; /* it says what is missing */
    const enum sol_status made = nccl && c->rank == 0 ? gpu_ranks_id(id) : SOL_OK;
    SOL_TRY(communicator_agree(c, made));
    SOL_TRY(communicator_broadcast(c, 0, id, sizeof id));
    return gpu_ranks_open(gpu, nccl ? id : NULL, c->rank, c->size, c->limit_ns, &c->gpu);
}

static enum sol_status others(void *arg)
{
    struct communicator *c = arg;
    return c->calls->others ? c->calls->others(c) : SOL_OK;
}

enum sol_status communicator_add_gpu(struct communicator *c, struct gpu *gpu)
{
    struct gpu_peers *peers = NULL;
    struct place *all = calloc((size_t)c->size, sizeof *all);
    SOL_TRY(communicator_agree(c, all ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for ranks")));
    enum sol_status status = find_all(c, gpu, all, &peers);
    if (status == SOL_OK) status = join(c, gpu, all, peers);
    free(all);
    if (c->gpu)
        gpu_ranks_watch(c->gpu, peers, others, c);
    else
        gpu_peers_destroy(peers);
    return communicator_agree(c, status);
}
