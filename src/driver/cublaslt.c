#include "driver/cublaslt.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "driver/library.h"

static const struct library_symbol symbols[] = {
#define CUBLASLT_FUNCTION(field, symbol, parameters)                                               \
    {symbol, offsetof(struct cublaslt_api, field), false},
#include "driver/cublaslt_functions.list"
#undef CUBLASLT_FUNCTION
};
static const char *const usual_names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                          "libcublasLt.so", "/usr/local/cuda/lib64/libcublasLt.so",
                                          NULL};

static struct cublaslt_api table;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const char *named = getenv("SOL_CUBLASLT");
    const char *const names[] = {named, NULL};
    const struct library_spec spec = {"cuBLASLt", named && *named ? names : usual_names, symbols,
                                      sizeof symbols / sizeof *symbols};
    usable = library_load(&spec, &table, reason);
}

const struct cublaslt_api *cublaslt_load(const char **why)
{
    pthread_once(&once, load);
    if (why) *why = usable ? NULL : reason;
    return usable ? &table : NULL;
}

enum sol_status cublas_status(const char *library, int result, const char *what)
{
    if (result == CUBLAS_OK) return SOL_OK;
    enum sol_status status = result == CUBLAS_E_MEMORY        ? SOL_E_MEMORY
                             : result == CUBLAS_E_UNSUPPORTED ? SOL_E_UNSUPPORTED
                                                              : SOL_E_DEVICE;
    return status_set(status, "%s: %s (error %d)", library, what, result);
}
