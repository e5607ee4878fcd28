#include "driver/cublas.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "driver/library.h"

static const struct library_symbol symbols[] = {
#define CUBLAS_FUNCTION(field, symbol, parameters)                                                 \
    {symbol, offsetof(struct cublas_api, field), false},
#include "driver/cublas_functions.list"
#undef CUBLAS_FUNCTION
};
static const char *const usual_names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so",
                                          "/usr/local/cuda/lib64/libcublas.so", NULL};

static struct cublas_api table;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const char *named = getenv("SOL_CUBLAS");
    const char *const names[] = {named, NULL};
    const struct library_spec spec = {"cuBLAS", named && *named ? names : usual_names, symbols,
                                      sizeof symbols / sizeof *symbols};
    usable = library_load(&spec, &table, reason);
}

const struct cublas_api *cublas_load(const char **why)
{
    pthread_once(&once, load);
    if (why) *why = usable ? NULL : reason;
    return usable ? &table : NULL;
}
