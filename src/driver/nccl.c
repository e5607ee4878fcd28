#include "driver/nccl.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/library.h"

static const struct library_symbol symbols[] = {
#define NCCL_FUNCTION(field, symbol, result, parameters)                                           \
    {symbol, offsetof(struct nccl_api, field), false},
#include "driver/nccl_functions.list"
#undef NCCL_FUNCTION
};
static const char *const usual_names[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                          "/usr/local/cuda/lib/libnccl.so.2", NULL};

static struct nccl_api table;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    int version = 0;
    const char *named = getenv("SOL_NCCL");
    const char *const names[] = {named, NULL};
    const struct library_spec spec = {"NCCL", named && *named ? names : usual_names, symbols,
                                      sizeof symbols / sizeof *symbols};
    if (!library_load(&spec, &table, reason)) return;
    usable = table.version(&version) == NCCL_OK && version >= NCCL_CONFIG_VERSION;
    if (!usable)
        snprintf(reason, sizeof reason, "NCCL %d.%d.%d is too old: 2.18 or later is needed",
                 version / 10000, version / 100 % 100, version % 100);
}

const struct nccl_api *nccl_load(const char **why)
{
    pthread_once(&once, load);
    if (why) *why = usable ? NULL : reason;
    return usable ? &table : NULL;
}

enum sol_status nccl_status(const struct nccl_api *api, int result, void *comm, const char *what)
{
    if (result == NCCL_OK) return SOL_OK;
    const char *text = api->error_string(result), *last = comm ? api->last_error(comm) : NULL;
    return status_set(SOL_E_DEVICE, "NCCL: %s (error %d: %s%s%s)", what, result, text ? text : "",
                      last && *last ? "; " : "", last && *last ? last : "");
}
