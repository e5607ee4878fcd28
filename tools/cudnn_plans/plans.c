/* Whether the real cuDNN has kernels for the graphs of src/gpu/attention_graph.c on a card that is
 * not here. The properties by which a card is described are not documented; these are those that
 * the library asks for, of an H100. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/attention_graph.h"

const char *sol_last_error(void);

static const char card[] =
    "{\"version\": 1, \"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"deviceVer\": %d, "
    "\"multiProcessorCount\": 132, \"driverVer\": 13000, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"totalGlobalMem\": 85029158912, \"maxGridSize\": [2147483647, 65535, 65535], "
    "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, \"smCountOrigin\": 0, "
    "\"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, \"oversizedSharedMemoryPerBlock\": 0, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, "
    "\"memClockRateKHz\": 2619000, \"l2CacheSize\": 52428800}";

static const struct gpu_attention shapes[] = {
    {.sequences = 32, .length = 2048, .n_heads = 10, .n_kv_heads = 10, .head_dim = 128},
    {.sequences = 8,
     .length = 2048,
     .n_heads = 10,
     .n_kv_heads = 10,
     .head_dim = 128,
     .window = 513},
    {.sequences = 8, .length = 1024, .n_heads = 8, .n_kv_heads = 2, .head_dim = 128},
    {.sequences = 8, .length = 1024, .n_heads = 8, .n_kv_heads = 2, .head_dim = 128, .window = 256},
    {.sequences = 4, .length = 2048, .n_heads = 16, .n_kv_heads = 16, .head_dim = 64},
    {.sequences = 4, .length = 1000, .n_heads = 8, .n_kv_heads = 2, .head_dim = 64},
    {.sequences = 4, .length = 1000, .n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .window = 128},
    {.sequences = 2, .length = 70, .n_heads = 3, .n_kv_heads = 3, .head_dim = 128},
    {.sequences = 1, .length = 60, .n_heads = 2, .n_kv_heads = 2, .head_dim = 128, .window = 7},
    {.sequences = 1, .length = 2, .n_heads = 2, .n_kv_heads = 2, .head_dim = 128},
    {.sequences = 1, .length = 65, .n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .window = 1},
    {.sequences = 1, .length = 65, .n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .window = 65},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* A finished CUDNN_DEVICE. */
static void *describe(const struct cudnn_api *api, int capability)
{
    char text[sizeof card + 64];
    void *device = NULL;
    snprintf(text, sizeof text, card, capability == 900 ? "NVIDIA H100 80GB HBM3" : "another",
             capability);
    int result = api->make(CUDNN_DEVICE, &device);
    if (!result)
        result = api->set(device, CUDNN_DEVICE_JSON, CUDNN_IS_CHAR, (int64_t)strlen(text), text);
    if (!result) result = api->finish(device);
    if (cudnn_status(api, result, "describing a card") == SOL_OK) return device;
    fprintf(stderr, "%s\n", sol_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    const char *why;
    const struct cudnn_api *api = cudnn_load(&why);
    const int capability = argc > 1 ? atoi(argv[1]) : 900;
    int failures = 0;
    if (!api) return fprintf(stderr, "%s\n", why), 1;
    void *device = describe(api, capability);
    printf("cuDNN %zu, compute capability %d.%d\n", api->version(), capability / 100,
           capability / 10 % 10);
    for (int i = 0; i < 2 * SHAPES; i++) {
        struct gpu_attention a = shapes[i % SHAPES];
        struct attention_plan plan;
        a.backward = i >= SHAPES;
        const enum sol_status status =
            attention_plan_make(api, NULL, device, &a, (size_t)1 << 40, &plan);
        printf("%-8s %3lld x %4lld, %2lld heads of %3lld, %2lld of keys, window %3lld: ",
               a.backward ? "backward" : "forward", (long long)a.sequences, (long long)a.length,
               (long long)a.n_heads, (long long)a.head_dim, (long long)a.n_kv_heads,
               (long long)a.window);
        if (status == SOL_OK)
            printf("%zu bytes of workspace\n", plan.workspace);
        else
            printf("%s\n", sol_last_error());
        failures += status != SOL_OK;
        if (plan.plan) api->give_back(plan.plan);
    }
    api->give_back(device);
    return failures != 0;
}
