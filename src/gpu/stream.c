#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu_private.h"
#include "gpu/guest.h"

static enum sol_status start(struct gpu_stream *stream)
{
    struct gpu *gpu = stream->gpu;
    const size_t bytes = gpu_stream_bytes();
    void *memory;
    GPU_TRY(gpu, stream_create(&stream->handle, CUDA_STREAM_NON_BLOCKING), "making a stream");
    SOL_TRY(gpu_alloc(gpu, "counters of a stream", bytes, &memory));
    stream->counters = memory;
    return gpu_zero(stream, memory, bytes);
}

enum sol_status gpu_stream_create(struct gpu *gpu, struct gpu_stream **out)
{
    *out = NULL;
    struct gpu_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return status_set(SOL_E_MEMORY, "no memory for a stream's tables");
    stream->gpu = gpu;
    enum sol_status status = start(stream);
    if (status == SOL_OK)
        *out = stream;
    else
        gpu_stream_destroy(stream);
    return status;
}

void gpu_stream_destroy(struct gpu_stream *stream)
{
    if (!stream) return;
    if (stream->handle && !stream->guest) {
        gpu_settle(stream); /* what failed was said, or will be by the next call */
        GPU_GIVE(stream->gpu, stream_destroy(stream->handle));
    }
    if (stream->turn) GPU_GIVE(stream->gpu, event_destroy(stream->turn));
    if (!stream->guest) gpu_free(stream->gpu, stream->counters);
    free(stream);
}

const struct gpu_info *gpu_stream_info(const struct gpu_stream *stream)
{
    return &stream->gpu->info;
}

size_t gpu_stream_bytes(void)
{
    return gpu_memory_size(gpu_counters_bytes());
}

uint32_t *gpu_stream_counters(const struct gpu_stream *stream)
{
    return stream->counters;
}

enum sol_status gpu_wait(struct gpu_stream *stream)
{
    enum sol_status put = stream->put_status;
    if (put != SOL_OK) {
        gpu_settle(stream); /* the message of the first failure counts */
        return status_set(put, "%s", stream->put_message);
    }
    if (stream->gpu->ranks) return gpu_ranks_wait(stream->gpu->ranks, stream);
    GPU_TRY(stream->gpu, stream_wait(stream->handle), "the GPU's work failed");
    return SOL_OK;
}

static enum sol_status follow(struct gpu_stream *first, struct gpu_stream *then, cuda_event event)
{
    GPU_TRY(first->gpu, event_record(event, first->handle), "recording an event");
    GPU_TRY(then->gpu, stream_wait_event(then->handle, event, 0), "waiting for another stream");
    return SOL_OK;
}

enum sol_status gpu_stream_fork(struct gpu_stream *stream, struct gpu_stream *beside)
{
    if (!beside->turn) GPU_TRY(beside->gpu, event_create(&beside->turn, 0), "making an event");
    SOL_TRY(follow(stream, beside, beside->turn));
    beside->capturing = stream->capturing;
    return SOL_OK;
}

enum sol_status gpu_stream_join(struct gpu_stream *stream, struct gpu_stream *beside)
{
    const enum sol_status put = beside->put_status;
    beside->capturing = false;
    stream->kernels += beside->kernels;
    beside->kernels = 0;
    beside->put_status = SOL_OK;
    if (put != SOL_OK) gpu_keep(stream, status_set(put, "%s", beside->put_message));
    return follow(beside, stream, beside->turn);
}

void gpu_settle(struct gpu_stream *stream)
{
    stream->put_status = SOL_OK;
    GPU_GIVE(stream->gpu, stream_wait(stream->handle));
}

void gpu_keep(struct gpu_stream *stream, enum sol_status status)
{
    if (status == SOL_OK) return;
    stream->put_status = status;
    snprintf(stream->put_message, sizeof stream->put_message, "%s", sol_last_error());
}

enum sol_status gpu_put_status(const struct gpu_stream *stream)
{
    if (stream->put_status == SOL_OK) return SOL_OK;
    return status_set(stream->put_status, "%s", stream->put_message);
}
