#include "hub/curl.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "driver/library.h"

static const struct library_symbol symbols[] = {
#define CURL_FUNCTION(field, symbol, type, parameters)                                             \
    {symbol, offsetof(struct curl_api, field), false},
#include "hub/curl_functions.list"
#undef CURL_FUNCTION
};

static struct curl_api table;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Debian has it with either of two TLS libraries. */
static void load(void)
{
    const char *named = getenv("SOL_CURL");
    const char *const usual[] = {"libcurl-gnutls.so.4", "libcurl.so.4", NULL};
    const char *const other[] = {named, NULL};
    const struct library_spec spec = {"libcurl", named && *named ? other : usual, symbols,
                                      sizeof symbols / sizeof *symbols};
    if (!library_load(&spec, &table, reason)) return;
    usable = table.global_init(CURL_GLOBAL_DEFAULT) == 0;
    if (!usable) snprintf(reason, sizeof reason, "libcurl does not start");
}

enum sol_status curl_load(const struct curl_api **out)
{
    pthread_once(&once, load);
    *out = usable ? &table : NULL;
    if (usable) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s; requests over a network need it: install libcurl4",
                      reason);
}
