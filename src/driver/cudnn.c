#include "driver/cudnn.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/library.h"

enum { LEAST_VERSION = 91600, UNSUPPORTED_END = CUDNN_E_UNSUPPORTED + 1000 };

static const struct library_symbol symbols[] = {
#define CUDNN_FUNCTION(field, symbol, result, parameters)                                          \
    {symbol, offsetof(struct cudnn_api, field), false},
#include "driver/cudnn_functions.list"
#undef CUDNN_FUNCTION
};
static const char *const usual_names[] = {"libcudnn.so.9", "libcudnn.so",
                                          "/usr/local/cuda/lib64/libcudnn.so.9", NULL};

static struct cudnn_api table;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const char *named = getenv("SOL_CUDNN");
    const char *const names[] = {named, NULL};
    const struct library_spec spec = {"cuDNN", named && *named ? names : usual_names, symbols,
                                      sizeof symbols / sizeof *symbols};
    if (!library_load(&spec, &table, reason)) return;
    const size_t version = table.version();
    usable = version >= LEAST_VERSION;
    if (!usable)
        snprintf(reason, sizeof reason, "cuDNN %zu.%zu.%zu is too old: 9.16 or later is needed",
                 version / 10000, version / 100 % 100, version % 100);
}

const struct cudnn_api *cudnn_load(const char **why)
{
    pthread_once(&once, load);
    if (why) *why = usable ? NULL : reason;
    return usable ? &table : NULL;
}

enum sol_status cudnn_status(const struct cudnn_api *api, int result, const char *what)
{
    char said[256] = "";
    if (result == CUDNN_OK) return SOL_OK;
    const bool memory = result == CUDNN_E_HOST_MEMORY || result == CUDNN_E_DEVICE_MEMORY;
    const bool unsupported = result >= CUDNN_E_UNSUPPORTED && result < UNSUPPORTED_END;
    api->last_error(said, sizeof said);
    return status_set(memory        ? SOL_E_MEMORY
                      : unsupported ? SOL_E_UNSUPPORTED
                                    : SOL_E_DEVICE,
                      "cuDNN: %s (error %d%s%s)", what, result, *said ? ": " : "", said);
}
