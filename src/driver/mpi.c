#include "driver/mpi.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "driver/library.h"

static const struct library_symbol symbols[] = {
#define MPI_FUNCTION(field, symbol, parameters) {symbol, offsetof(struct mpi_api, field), false},
#include "driver/mpi_functions.list"
#undef MPI_FUNCTION
    {"ompi_mpi_comm_world", offsetof(struct mpi_api, world), false},
    {"ompi_mpi_byte", offsetof(struct mpi_api, byte), false},
    {"ompi_mpi_errors_return", offsetof(struct mpi_api, errors_return), false},
};
static const char *const usual_names[] = {"libmpi.so.40", NULL}; /* Open MPI 4 and 5 */

static struct mpi_api table;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const char *named = getenv("SOL_MPI");
    const char *const names[] = {named, NULL};
    const struct library_spec spec = {"Open MPI", named && *named ? names : usual_names, symbols,
                                      sizeof symbols / sizeof *symbols};
    usable = library_load(&spec, &table, reason);
}

const struct mpi_api *mpi_load(const char **why)
{
    pthread_once(&once, load);
    if (why) *why = usable ? NULL : reason;
    return usable ? &table : NULL;
}

enum sol_status mpi_status(const struct mpi_api *api, int code, const char *what)
{
    char said[MPI_ERROR_TEXT_MAX + 1] = "";
    int length = 0;
    if (code == 0) return SOL_OK;
    if (api->error_string(code, said, &length) != 0) said[0] = '\0';
    return status_set(SOL_E_DEVICE, "MPI: %s (error %d%s%s)", what, code, *said ? ": " : "", said);
}
