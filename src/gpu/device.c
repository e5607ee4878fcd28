#include "gpu/device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu_private.h"

/* ---- finding ---- */

static int attribute(const struct cuda_api *cuda, int which, cuda_device device)
{
    int value = 0;
    return cuda->device_attribute(&value, which, device) == CUDA_OK ? value : 0;
}

static enum sol_status describe(const struct cuda_api *cuda, int ordinal, cuda_device *device,
                                struct gpu_info *info)
{
    *info = (struct gpu_info){.ordinal = ordinal};
    SOL_TRY(cuda_status(cuda, cuda->device_get(device, ordinal), "opening the GPU"));
    SOL_TRY(cuda_status(cuda, cuda->device_name(info->name, sizeof info->name, *device),
                        "reading the GPU's name"));
    SOL_TRY(cuda_status(cuda, cuda->device_memory(&info->memory_bytes, *device),
                        "reading the GPU's memory size"));
    if (cuda->device_pci(info->pci, sizeof info->pci, *device) != CUDA_OK) info->pci[0] = '\0';
    if (cuda->driver_version(&info->driver_version) != CUDA_OK) info->driver_version = 0;
    info->major = attribute(cuda, CUDA_ATTRIBUTE_MAJOR, *device);
    info->minor = attribute(cuda, CUDA_ATTRIBUTE_MINOR, *device);
    info->sm_count = attribute(cuda, CUDA_ATTRIBUTE_SM_COUNT, *device);
    info->l2_bytes = (size_t)attribute(cuda, CUDA_ATTRIBUTE_L2_BYTES, *device);
    info->shared_per_block = attribute(cuda, CUDA_ATTRIBUTE_SHARED_PER_BLOCK, *device);
    info->shared_per_sm = attribute(cuda, CUDA_ATTRIBUTE_SHARED_PER_SM, *device);
    info->clock_khz = attribute(cuda, CUDA_ATTRIBUTE_CLOCK_KHZ, *device);
    info->integrated = attribute(cuda, CUDA_ATTRIBUTE_INTEGRATED, *device) != 0;
    info->pageable_access = attribute(cuda, CUDA_ATTRIBUTE_PAGEABLE_HOST_ACCESS, *device) != 0;
    /* Both edges of the clock carry data. */
    info->memory_bytes_per_s = 2e3 * attribute(cuda, CUDA_ATTRIBUTE_MEMORY_CLOCK_KHZ, *device) *
                               attribute(cuda, CUDA_ATTRIBUTE_MEMORY_BUS_BITS, *device) / 8;
    if (info->major && info->sm_count) return SOL_OK;
    return status_set(SOL_E_DEVICE, "GPU %d does not say what it is", ordinal);
}

static enum sol_status count_devices(const struct cuda_api *cuda, int *count)
{
    cuda_result result = cuda->device_count(count);
    if (result == CUDA_E_NO_DEVICE) *count = 0;
    return result == CUDA_E_NO_DEVICE ? SOL_OK : cuda_status(cuda, result, "counting GPUs");
}

enum sol_status gpu_list(struct gpu_info *infos, int capacity, int *count)
{
    const struct cuda_api *cuda;
    cuda_device device;
    *count = 0;
    SOL_TRY(cuda_load(&cuda));
    int n = 0;
    SOL_TRY(count_devices(cuda, &n));
    for (int i = 0; i < n && i < capacity; i++) SOL_TRY(describe(cuda, i, &device, &infos[i]));
    *count = n;
    return SOL_OK;
}

bool gpu_shares_memory(const struct gpu_info *info)
{
    return info->integrated && info->pageable_access;
}

/* ---- contexts ---- */

static _Thread_local uint64_t entered; /* the handle whose context this thread has */

void gpu_forget_entered(void)
{
    entered = 0;
}

cuda_result gpu_enter(const struct gpu *gpu)
{
    if (entered == gpu->number) return CUDA_OK;
    cuda_result result = gpu->cuda->context_set(gpu->context);
    if (result == CUDA_OK) entered = gpu->number;
    return result;
}

/* ---- opening ---- */

/* What kernels and driver calls need at least. */
enum { CAPABILITY_LEAST = 80, DRIVER_LEAST = 12000 };

static enum sol_status check_age(const struct gpu_info *info)
{
    int driver = info->driver_version;
    if (10 * info->major + info->minor < CAPABILITY_LEAST)
        return status_set(
            SOL_E_UNSUPPORTED,
            "GPU %d (%s) has compute capability %d.%d; sol's kernels need 8.0 (Ampere) "
            "or later",
            info->ordinal, info->name, info->major, info->minor);
    if (driver && driver < DRIVER_LEAST)
        return status_set(SOL_E_UNSUPPORTED,
                          "the driver is made for CUDA %d.%d; sol needs 12.0 or later: update "
                          "NVIDIA's driver",
                          driver / 1000, driver % 1000 / 10);
    return SOL_OK;
}

static enum sol_status start(struct gpu *gpu, int ordinal)
{
    int count;
    SOL_TRY(cuda_load(&gpu->cuda));
    SOL_TRY(count_devices(gpu->cuda, &count));
    if (ordinal < 0 || ordinal >= count)
        return status_set(SOL_E_UNSUPPORTED, "there is no GPU %d: the driver sees %d", ordinal,
                          count);
    SOL_TRY(describe(gpu->cuda, ordinal, &gpu->device, &gpu->info));
    SOL_TRY(check_age(&gpu->info));
    cuda_context context;
    SOL_TRY(cuda_status(gpu->cuda, gpu->cuda->context_retain(&context, gpu->device),
                        "starting the GPU"));
    gpu->context = context;
    return cuda_status(gpu->cuda, gpu_enter(gpu), "starting the GPU");
}

static enum sol_status make(struct gpu **out)
{
    static atomic_uint_fast64_t made; /* an address may come again, a number does not */
    *out = calloc(1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "no memory for a GPU's tables");
    (*out)->number = ++made;
    pthread_mutex_init(&(*out)->lock, NULL);
    return SOL_OK;
}

enum sol_status gpu_open(int ordinal, struct gpu **out)
{
    struct gpu *gpu;
    *out = NULL;
    SOL_TRY(make(&gpu));
    enum sol_status status = start(gpu, ordinal);
    if (status == SOL_OK)
        *out = gpu;
    else
        gpu_close(gpu);
    return status;
}

enum sol_status gpu_describe(const struct gpu_info *info, struct gpu **out)
{
    SOL_TRY(make(out));
    (*out)->info = *info;
    return SOL_OK;
}

bool gpu_is_described(const struct gpu *gpu)
{
    return !gpu->context;
}

/* Errors here have nobody to go to: what was wrong was said by the call that met it. */
void gpu_close(struct gpu *gpu)
{
    if (!gpu) return;
    if (gpu->context) {
        gpu_enter(gpu);
        gpu_matmuls_destroy(gpu->matmuls);
        gpu_grouped_matmul_close(gpu);
        gpu_attentions_destroy(gpu->attentions);
        gpu_modules_unload(gpu);
        for (size_t i = 0; i < gpu->n_allocations; i++)
            gpu->cuda->memory_free(gpu_address(gpu->allocations[i].memory));
        gpu->cuda->context_release(gpu->device);
    }
    pthread_mutex_destroy(&gpu->lock);
    free(gpu->allocations);
    free(gpu->sources);
    free(gpu->proven);
    free(gpu);
}

const struct gpu_info *gpu_info(const struct gpu *gpu)
{
    return &gpu->info;
}

enum sol_status gpu_set_proven(struct gpu *gpu, const char *names)
{
    char *copy = strdup(names);
    if (!copy) return status_set(SOL_E_MEMORY, "no memory for names of kernels");
    free(gpu->proven);
    gpu->proven = copy;
    return SOL_OK;
}

bool gpu_is_proven(const struct gpu *gpu, const char *name)
{
    const size_t length = strlen(name);
    const char *at = gpu->proven;
    while (at && *at) {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, name, length) == 0) return true;
        at += word + strspn(at + word, " ");
    }
    return false;
}
