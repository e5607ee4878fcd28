#include "gpu/watch.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu_private.h"

struct gpu_watch {
    struct gpu_stream *stream;
    struct gpu_event **events; /* two of each */
    struct gpu_watched *seen;
    int capacity, count;
};

static void destroy(struct gpu_watch *w)
{
    w->stream->watch = NULL;
    for (int i = 0; w->events && i < 2 * w->capacity; i++) gpu_event_destroy(w->events[i]);
    free(w->events);
    free(w->seen);
    free(w);
}

static enum sol_status make(struct gpu_watch *w)
{
    w->events = calloc((size_t)w->capacity * 2 + 1, sizeof *w->events);
    w->seen = calloc((size_t)w->capacity + 1, sizeof *w->seen);
    if (!w->events || !w->seen) return status_set(SOL_E_MEMORY, "no memory for events");
    for (int i = 0; i < 2 * w->capacity; i++)
        SOL_TRY(gpu_event_create(w->stream->gpu, &w->events[i]));
    return SOL_OK;
}

enum sol_status gpu_watch_begin(struct gpu_stream *stream, int capacity, struct gpu_watch **out)
{
    *out = NULL;
    struct gpu_watch *w = calloc(1, sizeof *w);
    if (!w) return status_set(SOL_E_MEMORY, "no memory for events");
    *w = (struct gpu_watch){.stream = stream, .capacity = capacity};
    enum sol_status status = make(w);
    if (status != SOL_OK) {
        destroy(w);
        return status;
    }
    *out = stream->watch = w;
    return SOL_OK;
}

enum sol_status gpu_watch_before(struct gpu_stream *stream)
{
    struct gpu_watch *w = stream->watch;
    if (!w || w->count >= w->capacity) return SOL_OK;
    return gpu_event_record(w->events[2 * w->count], stream);
}

enum sol_status gpu_watch_behind(struct gpu_stream *stream, const char *name)
{
    struct gpu_watch *w = stream->watch;
    if (!w) return SOL_OK;
    int i = w->count++;
    if (i >= w->capacity) return SOL_OK;
    snprintf(w->seen[i].name, sizeof w->seen[i].name, "%s", name);
    return gpu_event_record(w->events[2 * i + 1], stream);
}

static enum sol_status read_times(struct gpu_watch *w, struct gpu_watched *out)
{
    SOL_TRY(gpu_wait(w->stream));
    for (int i = 0; i < w->count && i < w->capacity; i++) {
        out[i] = w->seen[i];
        SOL_TRY(gpu_event_elapsed(w->events[2 * i], w->events[2 * i + 1], &out[i].ns));
    }
    return SOL_OK;
}

enum sol_status gpu_watch_end(struct gpu_watch *watch, struct gpu_watched *out, int *count)
{
    *count = 0;
    if (!watch) return SOL_OK;
    enum sol_status status = read_times(watch, out);
    if (status == SOL_OK) *count = watch->count;
    destroy(watch);
    return status;
}
