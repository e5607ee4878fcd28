#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "gpu/gpu_private.h"
#include "gpu/kernel.h"
#include "send/send_args.h"

static enum sol_status reserve(struct gpu *gpu)
{
    return array_grow(&gpu->allocations, gpu->n_allocations, &gpu->capacity,
                      sizeof *gpu->allocations, "a GPU's tables");
}

static enum sol_status out_of_memory(struct gpu *gpu, const char *name, size_t bytes)
{
    size_t left = 0;
    const double gib = 1 << 30;
    if (gpu_memory_free(gpu, &left) != SOL_OK) left = 0;
    return status_set(SOL_E_MEMORY, "%s needs %.2f GiB on %s, %.2f GiB are free there", name,
                      (double)bytes / gib, gpu->info.name, (double)left / gib);
}

size_t gpu_memory_size(size_t bytes)
{
    const size_t unit = (size_t)2 << 20;
    return bytes > SIZE_MAX - unit ? SIZE_MAX : (bytes + unit - 1) / unit * unit;
}

/* With the lock: the table has room for what was taken. */
static enum sol_status take(struct gpu *gpu, const char *name, size_t bytes, void **out)
{
    cuda_address address = 0;
    SOL_TRY(reserve(gpu));
    cuda_result result = gpu_enter(gpu);
    if (result == CUDA_OK) result = gpu->cuda->memory_alloc(&address, bytes ? bytes : 1);
    if (result == CUDA_E_MEMORY) return out_of_memory(gpu, name, bytes);
    SOL_TRY(cuda_status(gpu->cuda, result, "allocating GPU memory"));
    struct gpu_allocation *a = &gpu->allocations[gpu->n_allocations++];
    *a = (struct gpu_allocation){.memory = (void *)(uintptr_t)address, .bytes = bytes};
    snprintf(a->name, sizeof a->name, "%s", name);
    gpu->used += bytes;
    if (gpu->used > gpu->peak) gpu->peak = gpu->used;
    *out = a->memory;
    return SOL_OK;
}

enum sol_status gpu_alloc(struct gpu *gpu, const char *name, size_t bytes, void **out)
{
    *out = NULL;
    pthread_mutex_lock(&gpu->lock);
    enum sol_status status = take(gpu, name, bytes, out);
    pthread_mutex_unlock(&gpu->lock);
    return status;
}

void gpu_free(struct gpu *gpu, void *memory)
{
    if (!memory) return;
    pthread_mutex_lock(&gpu->lock);
    for (size_t i = gpu->n_allocations; i-- > 0;) {
        if (gpu->allocations[i].memory != memory) continue;
        gpu->used -= gpu->allocations[i].bytes;
        gpu->allocations[i] = gpu->allocations[--gpu->n_allocations];
        break;
    }
    pthread_mutex_unlock(&gpu->lock);
    GPU_GIVE(gpu, memory_free(gpu_address(memory)));
}

enum sol_status gpu_alloc_pinned(struct gpu *gpu, size_t bytes, void **out)
{
    *out = NULL;
    GPU_TRY(gpu, host_alloc(out, bytes ? bytes : 1, 0), "allocating pinned host memory");
    return SOL_OK;
}

void gpu_free_pinned(struct gpu *gpu, void *memory)
{
    if (memory) GPU_GIVE(gpu, host_free(memory));
}

enum sol_status gpu_memory_free(struct gpu *gpu, size_t *bytes)
{
    size_t total = 0, host = gpu_shares_memory(&gpu->info) ? memory_available() : 0;
    GPU_TRY(gpu, memory_info(bytes, &total), "asking for the GPU's free memory");
    if (host > total) host = total;
    if (host > *bytes) *bytes = host;
    return SOL_OK;
}

size_t gpu_memory_used(struct gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
    size_t used = gpu->used;
    pthread_mutex_unlock(&gpu->lock);
    return used;
}

size_t gpu_memory_peak(struct gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
    size_t peak = gpu->peak;
    pthread_mutex_unlock(&gpu->lock);
    return peak;
}

void gpu_memory_peak_reset(struct gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
    gpu->peak = gpu->used;
    pthread_mutex_unlock(&gpu->lock);
}

static int larger_first(const void *a, const void *b)
{
    size_t x = ((const struct gpu_allocation *)a)->bytes,
           y = ((const struct gpu_allocation *)b)->bytes;
    return (x < y) - (x > y);
}

void gpu_memory_report(struct gpu *gpu, void (*each)(void *arg, const char *name, size_t bytes),
                       void *arg)
{
    pthread_mutex_lock(&gpu->lock);
    if (gpu->n_allocations) /* order within the table means nothing */
        qsort(gpu->allocations, gpu->n_allocations, sizeof *gpu->allocations, larger_first);
    for (size_t i = 0; i < gpu->n_allocations; i++)
        each(arg, gpu->allocations[i].name, gpu->allocations[i].bytes);
    pthread_mutex_unlock(&gpu->lock);
}

enum sol_status gpu_copy_in(struct gpu_stream *stream, void *to, const void *from, size_t bytes)
{
    SOL_TRY(gpu_watch_before(stream));
    GPU_TRY(stream->gpu, copy_in(gpu_address(to), from, bytes, stream->handle),
            "copying to the GPU");
    return gpu_watch_behind(stream, "copy");
}

enum sol_status gpu_copy_out(struct gpu_stream *stream, void *to, const void *from, size_t bytes)
{
    SOL_TRY(gpu_watch_before(stream));
    GPU_TRY(stream->gpu, copy_out(to, gpu_address(from), bytes, stream->handle),
            "copying from the GPU");
    return gpu_watch_behind(stream, "copy");
}

enum sol_status gpu_copy_on(struct gpu_stream *stream, void *to, const void *from, size_t bytes)
{
    SOL_TRY(gpu_watch_before(stream));
    GPU_TRY(stream->gpu, copy_on(gpu_address(to), gpu_address(from), bytes, stream->handle),
            "copying on the GPU");
    return gpu_watch_behind(stream, "copy");
}

_Static_assert(sizeof(struct cuda_copy_box) == 200, "CUDA_MEMCPY3D");

enum sol_status gpu_copy_box(struct gpu_stream *stream, const struct gpu_box_end *to,
                             const struct gpu_box_end *from, const struct gpu_box *box)
{
    const struct cuda_copy_box copy = {.from = {.kind = CUDA_MEMORY_DEVICE,
                                                .device = gpu_address(from->at),
                                                .pitch = from->pitch,
                                                .height = from->height},
                                       .to = {.kind = CUDA_MEMORY_DEVICE,
                                              .device = gpu_address(to->at),
                                              .pitch = to->pitch,
                                              .height = to->height},
                                       .width = box->width,
                                       .height = box->height,
                                       .depth = box->depth};
    SOL_TRY(gpu_watch_before(stream));
    GPU_TRY(stream->gpu, copy_box(&copy, stream->handle), "copying rows on the GPU");
    return gpu_watch_behind(stream, "copy");
}

enum sol_status gpu_zero(struct gpu_stream *stream, void *to, size_t bytes)
{
    SOL_TRY(gpu_watch_before(stream));
    GPU_TRY(stream->gpu, fill_bytes(gpu_address(to), 0, bytes, stream->handle),
            "clearing GPU memory");
    return gpu_watch_behind(stream, "clear");
}

static const char send_image[] = "send/send.cu";

enum sol_status gpu_send_load(struct gpu *gpu)
{
    const struct gpu_kernel *kernel;
    SOL_TRY(gpu_kernel_find(gpu, send_image, "send_few", &kernel));
    return gpu_kernel_find(gpu, send_image, "send_many", &kernel);
}

/* Arguments of few words are the beginning of those of many. */
enum sol_status gpu_send(struct gpu_stream *stream, void *to, const void *from, size_t bytes)
{
    struct send_many_args args = {.to = to, .n = (int64_t)(bytes / sizeof *args.words)};
    if (bytes > sizeof args.words) return gpu_copy_in(stream, to, from, bytes);
    memcpy(args.words, from, bytes);
    gpu_put(stream, send_image, args.n <= SEND_FEW ? "send_few" : "send_many",
            &(struct gpu_launch){.block = {SEND_THREADS}}, &args);
    return gpu_put_status(stream);
}
