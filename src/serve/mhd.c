#include "serve/mhd.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/status.h"
#include "driver/library.h"

static const struct library_symbol symbols[] = {
#define MHD_FUNCTION(field, symbol, type, parameters)                                              \
    {symbol, offsetof(struct mhd_api, field), false},
#include "serve/mhd_functions.list"
#undef MHD_FUNCTION
};

static struct mhd_api table;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const char *named = getenv("SOL_MICROHTTPD");
    const char *const usual[] = {"libmicrohttpd.so.12", NULL};
    const char *const other[] = {named, NULL};
    const struct library_spec spec = {"libmicrohttpd", named && *named ? other : usual, symbols,
                                      sizeof symbols / sizeof *symbols};
    usable = library_load(&spec, &table, reason);
}

enum sol_status mhd_load(const struct mhd_api **out)
{
    pthread_once(&once, load);
    *out = usable ? &table : NULL;
    if (usable) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s; a server needs it: install libmicrohttpd12", reason);
}
