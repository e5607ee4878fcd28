#include "driver/cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "driver/library.h"

static const struct library_symbol symbols[] = {
#define CUDA_FUNCTION(field, symbol, parameters) {symbol, offsetof(struct cuda_api, field), false},
#include "driver/cuda_functions.list"
#undef CUDA_FUNCTION
};
static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
static const struct library_spec spec = {"the CUDA driver", names, symbols,
                                         sizeof symbols / sizeof *symbols};

static struct cuda_api real;
static const struct cuda_api *replaced;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    if (!library_load(&spec, &real, reason)) return;
    cuda_result result = real.init(0);
    usable = result == CUDA_OK;
    if (usable) return;
    cuda_status(&real, result, "the CUDA driver does not start");
    snprintf(reason, sizeof reason, "%s", sol_last_error());
}

enum sol_status cuda_load(const struct cuda_api **out)
{
    *out = replaced;
    if (replaced) return SOL_OK;
    pthread_once(&once, load);
    if (!usable) return status_set(SOL_E_UNSUPPORTED, "%s", reason);
    *out = &real;
    return SOL_OK;
}

void cuda_replace(const struct cuda_api *api)
{
    replaced = api;
}

/* What a user can do about it; "" where nobody knows. */
static const char *remedy(cuda_result result)
{
    switch (result) {
    case CUDA_E_ECC:
        return "; the GPU's memory lost bits: see nvidia-smi -q -d ECC, it may need a reset";
    case CUDA_E_ADDRESS:
    case CUDA_E_LAUNCH:
        return "; this process can use the GPU no longer. Run it again; if it fails again, sol "
               "verify "
               "--backend cuda finds the kernel";
    case CUDA_E_DRIVER_MISMATCH:
        return "; the driver was updated while the old one is loaded: restart the machine";
    default:
        return "";
    }
}

enum sol_status cuda_status(const struct cuda_api *api, cuda_result result, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (result == CUDA_OK) return SOL_OK;
    if (api->error_name(result, &name) != CUDA_OK) name = "unknown error";
    if (api->error_string(result, &text) != CUDA_OK) text = "";
    enum sol_status status = result == CUDA_E_MEMORY ? SOL_E_MEMORY : SOL_E_DEVICE;
    return status_set(status, "%s: %s (%d, %s)%s", what, name, result, text, remedy(result));
}
