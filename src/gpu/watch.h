/* What calls put on a stream, and how long each of it takes: to see which kernels an op launches.
 * An event on either side of each adds a microsecond or two. */
#ifndef GPU_WATCH_H
#define GPU_WATCH_H

#include "gpu/device.h"

enum { GPU_WATCHED_NAME = 64 };

struct gpu_watched {
    char name[GPU_WATCHED_NAME]; /* of the kernel; "copy", "clear", "cuBLASLt" for what is none */
    double ns;
};

/* From now on, until gpu_watch_end, up to `capacity` of what is put on the stream is noted; no
 * graph may be made meanwhile. */
struct gpu_watch;
enum sol_status gpu_watch_begin(struct gpu_stream *stream, int capacity, struct gpu_watch **out);
/* Waits. *count is how much was put there, which may be more than the capacity; `out` has room for
 * that. The watch is given back; NULL is none. */
enum sol_status gpu_watch_end(struct gpu_watch *watch, struct gpu_watched *out, int *count);

#endif
