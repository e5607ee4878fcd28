/* Open MPI as a table of functions. It moves bytes between processes that mpirun or srun started;
 * sums are made by sol's ops, in an order of their own. */
#ifndef DRIVER_MPI_H
#define DRIVER_MPI_H

#include "base/status.h"

enum { MPI_THREADS_FUNNELED = 1, MPI_ERROR_TEXT_MAX = 256 };

struct mpi_api {
#define MPI_FUNCTION(field, symbol, parameters) int(*field) parameters;
#include "driver/mpi_functions.list"
#undef MPI_FUNCTION
    void *world, *byte, *errors_return; /* handles: addresses in the library */
};

/* Loaded once a process and kept; SOL_MPI names another file (tests). NULL where it cannot be used:
 * *why (may be NULL) says what is missing then. */
const struct mpi_api *mpi_load(const char **why);

/* SOL_OK, or an error with what the library says of `code` and the call's purpose. */
enum sol_status mpi_status(const struct mpi_api *api, int code, const char *what);

#endif
