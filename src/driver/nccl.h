/* NCCL as a table of functions: what GPUs pass to each other, of one host or many. */
#ifndef DRIVER_NCCL_H
#define DRIVER_NCCL_H

#include <stddef.h>

#include "base/status.h"

enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_F32 = 7, NCCL_BF16 = 9 };
enum { NCCL_SUM = 0 };

struct nccl_id {
    char bytes[128];
};

/* As 2.18 has it; later versions read what `version` says is there. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, ctas_least, ctas_most;
    const char *net;
    int split_share;
};
enum { NCCL_CONFIG_VERSION = 21800, NCCL_UNSET = -2147483647 - 1 };
#define NCCL_CONFIG_MAGIC 0xcafebeefu

struct nccl_api {
#define NCCL_FUNCTION(field, symbol, result, parameters) result(*field) parameters;
#include "driver/nccl_functions.list"
#undef NCCL_FUNCTION
};

/* Loaded once a process and kept; SOL_NCCL names another file (tests). NULL where it cannot be
 * used: *why (may be NULL) says what is missing then. Versions before 2.18 are refused: they cannot
 * be started without waiting. */
const struct nccl_api *nccl_load(const char **why);

/* SOL_OK, or an error with NCCL's number, what it says itself, and the call's purpose. `comm` may
 * be NULL. */
enum sol_status nccl_status(const struct nccl_api *api, int result, void *comm, const char *what);

#endif
