/* Who this process is among those that were started together, as what started them says in the
 * environment. */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include "sol/status.h"

struct launch {
    int rank, size;   /* 0 of 1: it was started alone */
    int local_rank;   /* among the ranks of this host: which GPU is its */
    const char *by;   /* "torchrun", "Open MPI", "MPICH", "Slurm"; NULL: alone */
    const char *from; /* the variable that the rank was read from; NULL: alone */
};

/* The first that is found of torchrun's variables, Open MPI's, MPICH's and Intel MPI's, and those
 * of a Slurm step (a batch script outside of srun is no step). SOL_E_ARGUMENT where a number is
 * none, or contradicts another. */
enum sol_status launch_find(struct launch *out);

#endif
