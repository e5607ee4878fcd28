/* See ranks.h. */
#include "cli/ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/status.h"
#include "cli/cli.h"

enum { HOST = 256 };

/* How many ranks have this host's name. */
static enum sol_status count_host_ranks(struct ranks *r)
{
    char own[HOST] = "";
    const int size = communicator_size(r->communicator);
    char *all = calloc((size_t)size, HOST);
    if (!all) return status_set(SOL_E_MEMORY, "no memory for the names of %d hosts", size);
    gethostname(own, HOST - 1);
    enum sol_status status = communicator_all_gather(r->communicator, own, HOST, all);
    r->host_ranks = 0;
    for (int i = 0; i < size; i++) r->host_ranks += memcmp(all + i * HOST, own, HOST) == 0;
    free(all);
    return status;
}

enum sol_status ranks_open(struct ranks *out)
{
    *out = (struct ranks){.host_ranks = 1};
    SOL_TRY(launch_find(&out->launch));
    if (out->launch.size == 1) return SOL_OK;
    SOL_TRY(communicator_open_mpi(&out->launch, &out->communicator));
    return count_host_ranks(out);
}

enum sol_status ranks_split(int size, struct ranks out[])
{
    struct communicator *all[RANKS_SPLIT_MAX];
    SOL_TRY(communicators_of_threads(size, all));
    for (int r = 0; r < size; r++)
        out[r] = (struct ranks){
            .communicator = all[r],
            .launch = {.rank = r, .size = size, .local_rank = r, .by = "sol", .from = "--gpus"},
            .host_ranks = size,
            .threads = true};
    return SOL_OK;
}

bool ranks_lead(const struct ranks *r)
{
    return r->launch.rank == 0;
}

int ranks_threads(const struct ranks *r, int wanted)
{
    const int cores = cpu_info()->cores;
    const bool bound = cores < (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (wanted || r->host_ranks <= 1 || bound) return wanted;
    return cores > r->host_ranks ? cores / r->host_ranks : 1;
}

int ranks_close(struct ranks *r, enum sol_status status)
{
    struct communicator *c = r->communicator;
    const bool together = !c || communicator_check(c) == SOL_OK;
    if (status != SOL_OK && !together) status = status_prefix(status, "rank %d", r->launch.rank);
    const bool says = ranks_lead(r) || (!r->threads && (!c || !together));
    const int code = says ? cli_fail(status) : status_exit_code(status);
    if (!together || (c && r->threads && status != SOL_OK)) communicator_fail(c, status, code);
    communicator_close(c);
    *r = (struct ranks){0};
    return code;
}

enum sol_status ranks_refuse(const char *command, const char *verb)
{
    struct launch launch;
    SOL_TRY(launch_find(&launch));
    if (launch.size == 1) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s %s runs as one process, and %s started %d", command,
                      verb, launch.by, launch.size);
}
