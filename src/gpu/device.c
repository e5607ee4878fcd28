#include "gpu/device.h"

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
    GPU_TRY(gpu, gpu->cuda->context_retain(&context, gpu->device), "starting the GPU");
    gpu->context = context;
    GPU_TRY(gpu, gpu->cuda->context_set(gpu->context), "starting the GPU");
    GPU_TRY(gpu, gpu->cuda->stream_create(&gpu->first_stream, CUDA_STREAM_NON_BLOCKING),
            "making a stream");
    gpu->stream = gpu->first_stream;
    return SOL_OK;
}

enum sol_status gpu_open(int ordinal, struct gpu **out)
{
    *out = NULL;
    struct gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu) return status_set(SOL_E_MEMORY, "no memory for a GPU's tables");
    enum sol_status status = start(gpu, ordinal);
    if (status == SOL_OK)
        *out = gpu;
    else
        gpu_close(gpu);
    return status;
}

enum sol_status gpu_describe(const struct gpu_info *info, struct gpu **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "no memory for a GPU's tables");
    (*out)->info = *info;
    return SOL_OK;
}

/* Errors here have nobody to go to: what was wrong was said by the call that met it. */
void gpu_close(struct gpu *gpu)
{
    if (!gpu) return;
    if (gpu->first_stream) {
        gpu->cuda->stream_wait(gpu->first_stream);
        gpu->cuda->stream_destroy(gpu->first_stream);
    }
    gpu_matmuls_destroy(gpu->matmuls);
    gpu_modules_unload(gpu);
    for (size_t i = 0; i < gpu->n_allocations; i++)
        gpu->cuda->memory_free(gpu_address(gpu->allocations[i].memory));
    if (gpu->context) gpu->cuda->context_release(gpu->device);
    free(gpu->allocations);
    free(gpu->sources);
    free(gpu);
}

const struct gpu_info *gpu_info(const struct gpu *gpu)
{
    return &gpu->info;
}

enum sol_status gpu_wait(struct gpu *gpu)
{
    enum sol_status put = gpu->put_status;
    gpu->put_status = SOL_OK;
    if (put != SOL_OK) {
        gpu->cuda->stream_wait(gpu->stream); /* the message of the first failure counts */
        return status_set(put, "%s", gpu->put_message);
    }
    return cuda_status(gpu->cuda, gpu->cuda->stream_wait(gpu->stream), "the GPU's work failed");
}

void gpu_settle(struct gpu *gpu)
{
    gpu->put_status = SOL_OK;
    gpu->cuda->stream_wait(gpu->stream);
}

/* ---- further streams ---- */

struct gpu_stream {
    struct gpu *gpu;
    cuda_stream handle;
};

enum sol_status gpu_stream_create(struct gpu *gpu, struct gpu_stream **out)
{
    *out = NULL;
    struct gpu_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return status_set(SOL_E_MEMORY, "no memory for a stream's tables");
    stream->gpu = gpu;
    enum sol_status status =
        cuda_status(gpu->cuda, gpu->cuda->stream_create(&stream->handle, CUDA_STREAM_NON_BLOCKING),
                    "making a stream");
    if (status == SOL_OK)
        *out = stream;
    else
        free(stream);
    return status;
}

void gpu_stream_destroy(struct gpu_stream *stream)
{
    if (!stream) return;
    struct gpu *gpu = stream->gpu;
    if (gpu->stream == stream->handle) gpu->stream = gpu->first_stream;
    gpu->cuda->stream_wait(stream->handle); /* what failed was said, or will be by the next call */
    gpu->cuda->stream_destroy(stream->handle);
    free(stream);
}

void gpu_stream_use(struct gpu *gpu, const struct gpu_stream *stream)
{
    gpu->stream = stream ? stream->handle : gpu->first_stream;
}

/* ---- time ---- */

struct gpu_event {
    struct gpu *gpu;
    cuda_event handle;
};

enum sol_status gpu_event_create(struct gpu *gpu, struct gpu_event **out)
{
    *out = NULL;
    struct gpu_event *event = calloc(1, sizeof *event);
    if (!event) return status_set(SOL_E_MEMORY, "no memory for an event");
    event->gpu = gpu;
    enum sol_status status =
        cuda_status(gpu->cuda, gpu->cuda->event_create(&event->handle, 0), "making an event");
    if (status == SOL_OK)
        *out = event;
    else
        free(event);
    return status;
}

void gpu_event_destroy(struct gpu_event *event)
{
    if (event) event->gpu->cuda->event_destroy(event->handle);
    free(event);
}

enum sol_status gpu_event_record(struct gpu_event *event)
{
    const struct gpu *gpu = event->gpu;
    return cuda_status(gpu->cuda, gpu->cuda->event_record(event->handle, gpu->stream),
                       "recording an event");
}

enum sol_status gpu_event_wait(const struct gpu_event *event)
{
    const struct gpu *gpu = event->gpu;
    return cuda_status(gpu->cuda, gpu->cuda->event_wait(event->handle), "the GPU's work failed");
}

enum sol_status gpu_event_elapsed(const struct gpu_event *start_event,
                                  const struct gpu_event *end_event, double *ns)
{
    const struct gpu *gpu = end_event->gpu;
    float milliseconds = 0;
    GPU_TRY(gpu, gpu->cuda->event_wait(end_event->handle), "the GPU's work failed");
    GPU_TRY(gpu, gpu->cuda->event_elapsed(&milliseconds, start_event->handle, end_event->handle),
            "reading an event");
    *ns = 1e6 * (double)milliseconds;
    return SOL_OK;
}
