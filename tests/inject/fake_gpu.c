/* The fake driver as a libcuda.so.1, so that whole commands run on a GPU that is not there. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/fake_cuda.h"

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

/* FAKE_CUDA_FAIL=FIELD:N:ERROR[:DEVICE]: that call, and all that follow, fail; on that device. */
static void plan_failure(void)
{
    char text[80], *n, *error, *device;
    snprintf(text, sizeof text, "%s", getenv("FAKE_CUDA_FAIL") ? getenv("FAKE_CUDA_FAIL") : "");
    if (!(n = strchr(text, ':')) || !(error = strchr(n + 1, ':'))) return;
    *n = '\0';
    fake_cuda_fail_in(text, strtol(n + 1, NULL, 10), (cuda_result)strtol(error + 1, &device, 10),
                      true);
    fake_cuda_fail_on(*device == ':' ? (int)strtol(device + 1, NULL, 10) : -1);
}

/* Says what was not given back, and what was used wrongly, for tests that look. */
static void say_leaks(void)
{
    if (fake_cuda_misuses())
        fprintf(stderr, "fake driver: %ld calls in the wrong context\n", fake_cuda_misuses());
    if (fake_cuda_live())
        fprintf(stderr, "fake driver: %ld objects were not given back\n", fake_cuda_live());
}

/* Where this library has kernels: tests/emulate. */
__attribute__((weak)) cuda_result
emulate_kernel(const char *kernel, const struct cuda_launch *config, const void *args);
__attribute__((weak)) size_t emulate_args_bytes(const char *kernel);

/* FAKE_CUDA_MAJOR, _MINOR, _DRIVER (12000: CUDA 12.0), _MIB, _SM_KIB (of shared memory) and _SHARED
 * (with the host) make it another device, and with FAKE_CUDA_APART none reaches the memory of
 * another one; FAKE_CUDA_GRAPH_MOST loses kernels of larger graphs. */
static const struct cuda_api *driver(void)
{
    static const struct cuda_api *api;
    if (api) return api;
    const struct fake_cuda_params params = {
        .devices = (int)setting("FAKE_CUDA_DEVICES", 2),
        .major = (int)setting("FAKE_CUDA_MAJOR", 9),
        .minor = (int)setting("FAKE_CUDA_MINOR", 0),
        .memory = (size_t)setting("FAKE_CUDA_MIB", 1024) << 20,
        .shared = setting("FAKE_CUDA_SHARED", 0) != 0,
        .shared_per_sm = (int)setting("FAKE_CUDA_SM_KIB", 0) << 10,
        .apart = setting("FAKE_CUDA_APART", 0) != 0,
        .together = emulate_kernel != NULL,
        .driver = (int)setting("FAKE_CUDA_DRIVER", 0),
        .graph_most = (int)setting("FAKE_CUDA_GRAPH_MOST", 0),
        .run = emulate_kernel,
        .args_bytes = emulate_args_bytes,
    };
    api = fake_cuda_start(&params);
    plan_failure();
    atexit(say_leaks);
    return api;
}

/* Which function a name means is asked when it is looked up. (clang does not see that the attribute
 * uses the function.) */
#define CUDA_FUNCTION(field, symbol, parameters)                                                   \
    __attribute__((unused)) static cuda_result(*resolve_##field(void)) parameters                  \
    {                                                                                              \
        return driver()->field;                                                                    \
    }                                                                                              \
    cuda_result fake_##field parameters __asm__(symbol)                                            \
        __attribute__((ifunc("resolve_" #field), visibility("default")));
#include "driver/cuda_functions.list"

/* For who has loaded this as a library. */
__attribute__((visibility("default"))) void fake_gpu_busy(long queries);
void fake_gpu_busy(long queries)
{
    fake_cuda_busy(queries);
}
