#include "comm/launch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/status.h"

enum { RANKS_MAX = 1 << 20 };

struct starter {
    const char *by;
    const char *rank, *size, *local_rank; /* variables */
    const char *local_rank_otherwise;     /* of older versions; NULL: none */
    const char *also; /* another that must be there, as the first ones are elsewhere too */
};

/* Slurm sets SLURM_PROCID in batch scripts as well, which are one process whatever -n says. */
static const struct starter starters[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", NULL, "MASTER_ADDR"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", NULL,
     NULL},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", NULL},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID"},
};

static enum sol_status number_of(const char *name, long most, int *out)
{
    const char *text = getenv(name);
    char *end = NULL;
    const long number = text ? strtol(text, &end, 10) : 0;
    if (!text) return status_set(SOL_E_ARGUMENT, "%s is not set", name);
    if (end == text || *end || number < 0 || number > most)
        return status_set(SOL_E_ARGUMENT, "%s is '%.40s': a number from 0 to %ld was expected",
                          name, text, most);
    *out = (int)number;
    return SOL_OK;
}

static enum sol_status read_starter(const struct starter *s, struct launch *out)
{
    *out = (struct launch){.by = s->by, .from = s->rank};
    SOL_TRY(number_of(s->size, RANKS_MAX, &out->size));
    SOL_TRY(number_of(s->rank, RANKS_MAX, &out->rank));
    if (out->rank >= out->size)
        return status_set(SOL_E_ARGUMENT, "%s is %d and %s is %d: ranks count from 0", s->rank,
                          out->rank, s->size, out->size);
    const char *local =
        getenv(s->local_rank) || !s->local_rank_otherwise ? s->local_rank : s->local_rank_otherwise;
    if (!getenv(local)) {
        out->local_rank = 0; /* not all of them say it */
        return SOL_OK;
    }
    return number_of(local, out->size - 1, &out->local_rank);
}

enum sol_status launch_find(struct launch *out)
{
    *out = (struct launch){.size = 1};
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++) {
        const struct starter *s = &starters[i];
        if (!getenv(s->rank) || (s->also && !getenv(s->also))) continue;
        enum sol_status status = read_starter(s, out);
        if (status != SOL_OK) return status_prefix(status, "what %s says of this rank", s->by);
        return SOL_OK;
    }
    return SOL_OK;
}
