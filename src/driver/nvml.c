#include "driver/nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/library.h"

static const struct library_symbol symbols[] = {
#define NVML_FUNCTION(field, symbol, optional, parameters)                                         \
    {symbol, offsetof(struct nvml_api, field), optional},
#include "driver/nvml_functions.list"
#undef NVML_FUNCTION
};

static struct nvml_api table;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const char *named = getenv("SOL_NVML");
    const char *const names[] = {named && *named ? named : "libnvidia-ml.so.1", NULL};
    const struct library_spec spec = {"NVML", names, symbols, sizeof symbols / sizeof *symbols};
    if (!library_load(&spec, &table, reason)) return;
    int result = table.init();
    usable = result == NVML_OK;
    if (!usable) snprintf(reason, sizeof reason, "NVML does not start (error %d)", result);
}

const struct nvml_api *nvml_load(const char **why)
{
    pthread_once(&once, load);
    if (why) *why = usable ? NULL : reason;
    return usable ? &table : NULL;
}
