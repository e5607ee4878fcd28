/* The fake driver as a libcuda.so.1, so that whole commands run on a GPU that is not there. */
#include <stddef.h>

#include "driver/fake_cuda.h"

static const struct cuda_api *driver(void)
{
    static const struct fake_cuda_params two = {
        .devices = 2, .major = 9, .minor = 0, .memory = (size_t)1 << 30};
    static const struct cuda_api *api;
    if (!api) api = fake_cuda_start(&two);
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
