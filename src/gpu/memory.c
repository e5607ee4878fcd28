#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "gpu/gpu_private.h"

static enum sol_status reserve(struct gpu *gpu)
{
    if (gpu->n_allocations < gpu->capacity) return SOL_OK;
    size_t capacity = gpu->capacity ? 2 * gpu->capacity : 64;
    struct gpu_allocation *grown = realloc(gpu->allocations, capacity * sizeof *grown);
    if (!grown) return status_set(SOL_E_MEMORY, "no memory for a GPU's tables");
    gpu->allocations = grown;
    gpu->capacity = capacity;
    return SOL_OK;
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

enum sol_status gpu_alloc(struct gpu *gpu, const char *name, size_t bytes, void **out)
{
    cuda_address address = 0;
    *out = NULL;
    SOL_TRY(reserve(gpu));
    cuda_result result = gpu->cuda->memory_alloc(&address, bytes ? bytes : 1);
    if (result == CUDA_E_MEMORY) return out_of_memory(gpu, name, bytes);
    GPU_TRY(gpu, result, "allocating GPU memory");
    struct gpu_allocation *a = &gpu->allocations[gpu->n_allocations++];
    *a = (struct gpu_allocation){.memory = (void *)(uintptr_t)address, .bytes = bytes};
    snprintf(a->name, sizeof a->name, "%s", name);
    gpu->used += bytes;
    if (gpu->used > gpu->peak) gpu->peak = gpu->used;
    *out = a->memory;
    return SOL_OK;
}

void gpu_free(struct gpu *gpu, void *memory)
{
    if (!memory) return;
    for (size_t i = gpu->n_allocations; i-- > 0;) {
        if (gpu->allocations[i].memory != memory) continue;
        gpu->used -= gpu->allocations[i].bytes;
        gpu->allocations[i] = gpu->allocations[--gpu->n_allocations];
        break;
    }
    gpu->cuda->memory_free(gpu_address(memory));
}

enum sol_status gpu_alloc_pinned(struct gpu *gpu, size_t bytes, void **out)
{
    *out = NULL;
    return cuda_status(gpu->cuda, gpu->cuda->host_alloc(out, bytes ? bytes : 1, 0),
                       "allocating pinned host memory");
}

void gpu_free_pinned(struct gpu *gpu, void *memory)
{
    if (memory) gpu->cuda->host_free(memory);
}

enum sol_status gpu_memory_free(struct gpu *gpu, size_t *bytes)
{
    size_t total, host = gpu_shares_memory(&gpu->info) ? memory_available() : 0;
    GPU_TRY(gpu, gpu->cuda->memory_info(bytes, &total), "asking for the GPU's free memory");
    if (host > total) host = total;
    if (host > *bytes) *bytes = host;
    return SOL_OK;
}

size_t gpu_memory_used(const struct gpu *gpu)
{
    return gpu->used;
}

size_t gpu_memory_peak(const struct gpu *gpu)
{
    return gpu->peak;
}

void gpu_memory_peak_reset(struct gpu *gpu)
{
    gpu->peak = gpu->used;
}

static int larger_first(const void *a, const void *b)
{
    size_t x = ((const struct gpu_allocation *)a)->bytes,
           y = ((const struct gpu_allocation *)b)->bytes;
    return (x < y) - (x > y);
}

void gpu_memory_report(const struct gpu *gpu,
                       void (*each)(void *arg, const char *name, size_t bytes), void *arg)
{
    if (gpu->n_allocations) /* order within the table means nothing */
        qsort(gpu->allocations, gpu->n_allocations, sizeof *gpu->allocations, larger_first);
    for (size_t i = 0; i < gpu->n_allocations; i++)
        each(arg, gpu->allocations[i].name, gpu->allocations[i].bytes);
}

enum sol_status gpu_copy_in(struct gpu *gpu, void *to, const void *from, size_t bytes)
{
    return cuda_status(gpu->cuda, gpu->cuda->copy_in(gpu_address(to), from, bytes, gpu->stream),
                       "copying to the GPU");
}

enum sol_status gpu_copy_out(struct gpu *gpu, void *to, const void *from, size_t bytes)
{
    return cuda_status(gpu->cuda, gpu->cuda->copy_out(to, gpu_address(from), bytes, gpu->stream),
                       "copying from the GPU");
}

enum sol_status gpu_copy_on(struct gpu *gpu, void *to, const void *from, size_t bytes)
{
    return cuda_status(gpu->cuda,
                       gpu->cuda->copy_on(gpu_address(to), gpu_address(from), bytes, gpu->stream),
                       "copying on the GPU");
}

enum sol_status gpu_zero(struct gpu *gpu, void *to, size_t bytes)
{
    return cuda_status(gpu->cuda, gpu->cuda->fill_bytes(gpu_address(to), 0, bytes, gpu->stream),
                       "clearing GPU memory");
}
