#include <stdlib.h>

#include "gpu/gpu_private.h"

struct gpu_event {
    struct gpu *gpu;
    cuda_event handle;
};

static enum sol_status start(struct gpu_event *event)
{
    GPU_TRY(event->gpu, event_create(&event->handle, 0), "making an event");
    return SOL_OK;
}

enum sol_status gpu_event_create(struct gpu *gpu, struct gpu_event **out)
{
    *out = NULL;
    struct gpu_event *event = calloc(1, sizeof *event);
    if (!event) return status_set(SOL_E_MEMORY, "no memory for an event");
    event->gpu = gpu;
    enum sol_status status = start(event);
    if (status == SOL_OK)
        *out = event;
    else
        free(event);
    return status;
}

void gpu_event_destroy(struct gpu_event *event)
{
    if (event) GPU_GIVE(event->gpu, event_destroy(event->handle));
    free(event);
}

enum sol_status gpu_event_record(struct gpu_event *event, struct gpu_stream *stream)
{
    GPU_TRY(stream->gpu, event_record(event->handle, stream->handle), "recording an event");
    return SOL_OK;
}

enum sol_status gpu_event_wait(const struct gpu_event *event)
{
    GPU_TRY(event->gpu, event_wait(event->handle), "the GPU's work failed");
    return SOL_OK;
}

enum sol_status gpu_stream_wait_event(struct gpu_stream *stream, const struct gpu_event *event)
{
    GPU_TRY(stream->gpu, stream_wait_event(stream->handle, event->handle, 0),
            "waiting for another stream");
    return SOL_OK;
}

enum sol_status gpu_event_elapsed(const struct gpu_event *start_event,
                                  const struct gpu_event *end_event, double *ns)
{
    float milliseconds = 0;
    SOL_TRY(gpu_event_wait(end_event));
    GPU_TRY(end_event->gpu, event_elapsed(&milliseconds, start_event->handle, end_event->handle),
            "reading an event");
    *ns = 1e6 * (double)milliseconds;
    return SOL_OK;
}
