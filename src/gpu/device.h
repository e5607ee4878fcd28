/* A GPU as sol uses it: a context, and streams of work in it. Copies, launches, graphs and waits
 * name their stream; everything is asynchronous on it until gpu_wait. Errors of the device are
 * sticky: after SOL_E_DEVICE from gpu_wait of any of its streams only giving back is of use.
 *
 * A stream belongs to one thread at a time, with its graphs. A GPU may be shared: any thread may
 * call all else, and a process may have several GPUs. Each call makes the GPU's context current for
 * its thread, unless it is the one that sol made current there last: who calls the driver beside
 * sol, in the same thread, leaves the context as it was. */
#ifndef GPU_DEVICE_H
#define GPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct gpu_info {
    int ordinal;
    char name[96], pci[16];
    int major, minor; /* compute capability; 9, 0 is sm_90 */
    int sm_count;
    size_t memory_bytes, l2_bytes;
    int shared_per_block, shared_per_sm; /* bytes, with the opt-in */
    int clock_khz;                       /* highest of the SMs */
    double memory_bytes_per_s;           /* clock x width; 0 where the driver does not say */
    bool integrated;                     /* shares the host's memory chips */
    bool pageable_access;                /* reads the host's own pages in place */
    int driver_version;                  /* 13000 is CUDA 13.0 */
};

/* Fills up to `capacity` and sets *count to how many there are. SOL_E_UNSUPPORTED where there is no
 * usable driver; *count is 0 then and where the driver has no device. */
enum sol_status gpu_list(struct gpu_info *infos, int capacity, int *count);

/* "90a": as compilers name it, with the letter where the architecture has features that later ones
 * lack. */
void gpu_architecture(const struct gpu_info *info, char out[16]);

/* Whether host and device have one memory and the device follows the host's own pointers (GB10):
 * what the host holds needs no copy. A GPU with memory of its own that can follow them too (GH200)
 * is better off with copies. */
bool gpu_shares_memory(const struct gpu_info *info);

struct gpu;

/* SOL_E_UNSUPPORTED where device or driver are too old, with what is needed. */
enum sol_status gpu_open(int ordinal, struct gpu **out);
/* One that is only talked about: for gpu_info, to see which kernels it would run. */
enum sol_status gpu_describe(const struct gpu_info *info, struct gpu **out);
bool gpu_is_described(const struct gpu *gpu); /* by that call */
/* Gives everything back, after the streams and events. Takes NULL. */
void gpu_close(struct gpu *gpu);
const struct gpu_info *gpu_info(const struct gpu *gpu);

/* Variants that nobody had run before they were verified on this GPU: their names, with a blank
 * between two (copied). From gpu_open on there are none. */
enum sol_status gpu_set_proven(struct gpu *gpu, const char *names);
bool gpu_is_proven(const struct gpu *gpu, const char *name);

/* ---- streams ---- */

/* Work in order, beside that of other streams. */
struct gpu_stream;
enum sol_status gpu_stream_create(struct gpu *gpu, struct gpu_stream **out);
void gpu_stream_destroy(struct gpu_stream *stream); /* waits; takes NULL; before gpu_close */
size_t gpu_stream_bytes(void);                      /* of device memory, that a stream takes */
const struct gpu_info *gpu_stream_info(const struct gpu_stream *stream); /* of its GPU */
/* Words of device memory that are 0 between kernels, for kernels whose blocks count each other
 * (kernels/counters_args.h says whose are which). Each stream has its own. */
uint32_t *gpu_stream_counters(const struct gpu_stream *stream);

/* Until the stream is empty. Reports what failed on it since the last wait. */
enum sol_status gpu_wait(struct gpu_stream *stream);

/* The same on the way out: nothing is reported, and the message of what failed before stays. */
void gpu_settle(struct gpu_stream *stream);

/* `beside`, another stream of the GPU, for some of a stream's work: what it gets from now on begins
 * behind what `stream` has by now, and is of the graph where `stream` makes one. Behind join all
 * that `stream` gets waits for it, and its failures and kernels count as `stream`'s; until then it
 * may be forked again. A graph ends behind join. */
enum sol_status gpu_stream_fork(struct gpu_stream *stream, struct gpu_stream *beside);
enum sol_status gpu_stream_join(struct gpu_stream *stream, struct gpu_stream *beside);

/* ---- memory ---- */

/* What an allocation takes of the device's memory: whole units of it, which are 2 MiB. */
size_t gpu_memory_size(size_t bytes);
/* Device memory, 256-byte aligned, contents undefined; gpu_close frees what is left. `name`
 * (copied) is for the report. SOL_E_MEMORY says how much was free. */
enum sol_status gpu_alloc(struct gpu *gpu, const char *name, size_t bytes, void **out);
void gpu_free(struct gpu *gpu, void *memory); /* takes NULL */
/* Host memory that the device reads and writes directly, for copies that do not stop the stream. */
enum sol_status gpu_alloc_pinned(struct gpu *gpu, size_t bytes, void **out);
void gpu_free_pinned(struct gpu *gpu, void *memory); /* takes NULL */

/* What the device has left. Where the host has the same memory, what the host could give: the
 * driver does not count cached files there, which make room when asked. */
enum sol_status gpu_memory_free(struct gpu *gpu, size_t *bytes);
size_t gpu_memory_used(struct gpu *gpu); /* by this handle's gpu_alloc */
size_t gpu_memory_peak(struct gpu *gpu);
void gpu_memory_peak_reset(struct gpu *gpu); /* the peak is what is used now */
/* Calls `each` for every allocation, largest first; it calls nothing here. */
void gpu_memory_report(struct gpu *gpu, void (*each)(void *arg, const char *name, size_t bytes),
                       void *arg);

/* Copies in stream order. From and to pageable memory they wait for the host's side of it. */
enum sol_status gpu_copy_in(struct gpu_stream *stream, void *to, const void *from, size_t bytes);
enum sol_status gpu_copy_out(struct gpu_stream *stream, void *to, const void *from, size_t bytes);
/* The same for a multiple of 4 bytes, which where they are few are a kernel's argument: there
 * sooner than a copy behind other work, later on a GPU that has nothing to do. load: so that the
 * first one need not. */
enum sol_status gpu_send_load(struct gpu *gpu);
enum sol_status gpu_send(struct gpu_stream *stream, void *to, const void *from, size_t bytes);
enum sol_status gpu_copy_on(struct gpu_stream *stream, void *to, const void *from, size_t bytes);
/* `depth` layers of `height` rows of `width` bytes. Where they lie, rows are `pitch` bytes apart
 * and layers `height` rows, which need not be those that are copied; on the device, in regions that
 * do not overlap. Pitches that are multiples of 512 are always possible. */
struct gpu_box {
    size_t width, height, depth;
};
struct gpu_box_end {
    void *at;
    size_t pitch, height;
};
enum sol_status gpu_copy_box(struct gpu_stream *stream, const struct gpu_box_end *to,
                             const struct gpu_box_end *from, const struct gpu_box *box);
enum sol_status gpu_zero(struct gpu_stream *stream, void *to, size_t bytes);

/* ---- time ---- */

struct gpu_event;
enum sol_status gpu_event_create(struct gpu *gpu, struct gpu_event **out);
void gpu_event_destroy(struct gpu_event *event); /* takes NULL; before gpu_close */
/* On a stream of the same GPU. */
enum sol_status gpu_event_record(struct gpu_event *event, struct gpu_stream *stream);
enum sol_status gpu_event_wait(const struct gpu_event *event); /* recorded before */
/* What comes next on the stream waits for the event, recorded before on any stream of any GPU; the
 * host does not. */
enum sol_status gpu_stream_wait_event(struct gpu_stream *stream, const struct gpu_event *event);
/* Waits for `end`; nanoseconds of device time since `start`, in steps of about 500. */
enum sol_status gpu_event_elapsed(const struct gpu_event *start, const struct gpu_event *end,
                                  double *ns);

#endif
