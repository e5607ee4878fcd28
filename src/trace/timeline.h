/* A trace in memory: one type for GPU traces, imported traces of other tools and the timers of
 * sol's own plans. Events are small and fixed in size; names and whatever many events share (a
 * kernel's shape, a copy's size) are interned once and named by their index, so that millions of
 * kernels fit: 40 bytes an event.
 *
 * Filled with timeline_add and friends in any order, then timeline_finish puts the events in order
 * of their start and moves the origin to the first one. All analysis reads a finished timeline. */
#ifndef TRACE_TIMELINE_H
#define TRACE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

#define TRACE_NONE UINT32_MAX /* no name, no detail, no parent */

enum event_kind {
    EVENT_KERNEL,   /* detail: kernel shape. On the device, or a plan's step on the CPU */
    EVENT_COPY,     /* detail: transfer */
    EVENT_SET,      /* memset; detail: transfer */
    EVENT_GRAPH,    /* one run of a whole CUDA graph, where its nodes are not traced; detail: kernel
                       shape with only graph set. Counts as device work */
    EVENT_API,      /* a call of the program into the runtime or the driver, on the host */
    EVENT_SYNC,     /* the host waited for the device */
    EVENT_MARKER,   /* NVTX range; start == end is a mark */
    EVENT_OVERHEAD, /* the tracer's own work: to be subtracted */
    EVENT_LOAD,     /* the driver loaded a module or compiled one, within a call */
    EVENT_ALLOC,    /* memory taken or given back; detail: transfer. start == end */
    EVENT_KIND_COUNT
};
const char *event_kind_name(enum event_kind kind); /* "kernel"; "?" out of range */

/* Kinds that occupy a device. */
static inline bool event_on_device(uint16_t kind)
{
    return kind <= EVENT_GRAPH;
}

struct trace_event {
    int64_t start, end;   /* ns since the timeline's origin; start <= end */
    uint32_t name;        /* string */
    uint32_t correlation; /* joins a call with the device work that it started, within one process;
                             0: none */
    uint32_t detail;      /* index into `shapes` or `transfers`, by kind; else TRACE_NONE */
    uint32_t track;       /* device work, EVENT_SYNC: stream; the rest: thread */
    uint16_t kind;        /* enum event_kind */
    uint16_t device;      /* index into `devices`; TRACE_NO_DEVICE for host events */
    uint16_t process;     /* index into `processes` */
    uint16_t context;     /* CUDA context within the process; stream numbers are unique in one */
};
_Static_assert(sizeof(struct trace_event) == 40, "millions of them");
#define TRACE_NO_DEVICE UINT16_MAX

struct kernel_shape {
    uint32_t grid[3], block[3];
    uint32_t cluster[3];     /* thread blocks a cluster; 0: none */
    uint32_t registers;      /* per thread */
    uint32_t shared_static;  /* bytes per block */
    uint32_t shared_dynamic; /* bytes per block */
    uint32_t local;          /* bytes per thread: spilled registers, stack */
    uint32_t graph;          /* executable graph it ran in; 0: none */
    uint64_t node;           /* node in that graph; 0: none */
};

enum memory_kind {
    MEMORY_UNKNOWN,
    MEMORY_PAGEABLE,
    MEMORY_PINNED,
    MEMORY_DEVICE,
    MEMORY_ARRAY,
    MEMORY_MANAGED,
    MEMORY_KIND_COUNT
};
const char *memory_kind_name(enum memory_kind kind); /* "pinned"; "?" out of range */

enum transfer_flag {
    TRANSFER_ASYNC = 1, /* the call that started it does not wait for it */
    TRANSFER_FREE = 2,  /* EVENT_ALLOC: memory was given back */
    TRANSFER_PEER = 4,  /* between two devices */
};
struct transfer {
    uint64_t bytes;
    uint8_t from, to; /* enum memory_kind; sets and allocations have only `to` */
    uint16_t flags;   /* enum transfer_flag */
    uint32_t graph;   /* executable graph it ran in; 0: none */
    uint64_t node;
};

/* State of a device at one moment. Unknown fields are 0 (temperature: INT32_MIN). */
struct trace_sample {
    int64_t time; /* ns since the origin */
    uint32_t sm_mhz, memory_mhz;
    uint32_t power_mw, power_limit_mw;
    int32_t temperature_c;
    uint32_t throttle; /* bits as NVML numbers them; bit 0, idle, is no fault */
    uint32_t device;
};

/* In the order in which they were made: files hold the numbers. LAUNCH shows less than GRAPH. */
enum trace_level { TRACE_OFF, TRACE_GRAPH, TRACE_NODE, TRACE_LAUNCH, TRACE_LEVEL_COUNT };
const char *trace_level_name(enum trace_level level); /* "graph"; "?" out of range */

/* How often a kernel was launched where that was counted and not timed (TRACE_LAUNCH). */
struct trace_count {
    uint32_t name;      /* string */
    uint64_t launched;  /* by calls */
    uint64_t in_graphs; /* as nodes of graphs that ran */
};

/* What a program says of its ranges of one name (EVENT_MARKER): how many kernels each launches. */
struct trace_expected {
    uint32_t name; /* string */
    uint16_t process;
    uint64_t kernels;
};

struct trace_process {
    int64_t pid, parent; /* parent 0: unknown */
    int64_t start, end;  /* first and last sign of life, ns since the origin */
    uint32_t command;    /* string: the command line */
    uint16_t level;      /* enum trace_level */
    bool complete;       /* the trace was closed in order; else it ended early (killed, crashed) */
};

struct trace_device {
    uint32_t name;    /* string: "NVIDIA H100 80GB HBM3" */
    uint8_t uuid[16]; /* zero: unknown. Tells devices of different processes together */
    uint32_t sm_count, compute_major, compute_minor;
    uint64_t memory_bytes;
    double memory_bandwidth; /* bytes/s of the data sheet; 0: unknown, also below */
    double clock_hz;         /* highest SM clock */
    uint32_t threads_per_sm, blocks_per_sm, warp_size, registers_per_sm, registers_per_block;
    uint32_t shared_per_sm, shared_per_block; /* bytes */
    bool cpu;                                 /* sol's own plan timers: the processor */
};

/* What is missing from the trace. All zero: nothing is known to be. */
struct trace_loss {
    uint64_t records;    /* dropped by the tracer for want of room */
    uint64_t timestamps; /* device work without times (start = end = 0); not among the events */
    uint64_t unknown;    /* records of kinds or sizes that could not be decoded */
    uint64_t unpaired;   /* NVTX ranges without their other end */
    uint64_t bytes;      /* of trace files that could not be read: cut off or damaged */
    uint64_t files;      /* files with such bytes */
};

struct timeline {
    struct trace_event *events; /* in order of start once finished */
    size_t count;
    struct kernel_shape *shapes;
    size_t n_shapes;
    struct transfer *transfers;
    size_t n_transfers;
    struct trace_sample *samples; /* in order of time once finished */
    size_t n_samples;
    struct trace_process *processes;
    size_t n_processes;
    struct trace_device *devices;
    size_t n_devices;
    struct trace_count *counts; /* one a kernel; most launches first once finished */
    size_t n_counts;
    struct trace_expected *expected; /* one a name and process */
    size_t n_expected;
    uint32_t *notes; /* strings: what the tracer had to say, such as another profiler in the way */
    size_t n_notes;
    struct trace_loss lost;
    enum trace_level level;         /* the least detailed of all processes */
    int64_t origin;                 /* what the producer's clock showed at time 0, ns */
    int64_t end;                    /* the latest end of an event, ns since the origin */
    struct timeline_tables *tables; /* private: interning and capacities */
};

enum sol_status timeline_create(struct timeline **out);
void timeline_destroy(struct timeline *t); /* takes NULL */

/* Strings: the same text always gives the same index. Valid until the timeline is destroyed. */
enum sol_status timeline_string(struct timeline *t, const char *text, size_t length, uint32_t *out);
const char *timeline_text(const struct timeline *t, uint32_t string); /* "" for TRACE_NONE */
size_t timeline_string_count(const struct timeline *t);

/* Interned like strings. Set the whole struct to zero before filling it in: it is compared by
 * bytes. */
enum sol_status timeline_shape(struct timeline *t, const struct kernel_shape *shape, uint32_t *out);
enum sol_status timeline_transfer(struct timeline *t, const struct transfer *transfer,
                                  uint32_t *out);

/* An event whose times are absolute (the producer's clock); timeline_finish makes them relative.
 * SOL_E_FORMAT for times that run backwards or an index that is out of range. */
enum sol_status timeline_add(struct timeline *t, const struct trace_event *event);
enum sol_status timeline_add_sample(struct timeline *t, const struct trace_sample *sample);
enum sol_status timeline_add_process(struct timeline *t, const struct trace_process *process,
                                     uint16_t *out);
/* A device with a known uuid is entered once. */
enum sol_status timeline_add_device(struct timeline *t, const struct trace_device *device,
                                    uint16_t *out);
/* Adds to the kernel's. */
enum sol_status timeline_add_count(struct timeline *t, const struct trace_count *count);
/* Again for the same name and process: this one counts. */
enum sol_status timeline_add_expected(struct timeline *t, const struct trace_expected *expected);
enum sol_status timeline_add_note(struct timeline *t, const char *text);

/* Sorts, rebases and sets origin, end and level. Once, at the end: nothing can be added after it.
 */
enum sol_status timeline_finish(struct timeline *t);

/* The shape of a kernel or graph event and the transfer of a copy, set or allocation; NULL where
 * the event has none. */
const struct kernel_shape *timeline_event_shape(const struct timeline *t,
                                                const struct trace_event *event);
const struct transfer *timeline_event_transfer(const struct timeline *t,
                                               const struct trace_event *event);

/* The first event that starts at or after `time` (ns since the origin); `count` when none does. */
size_t timeline_lower_bound(const struct timeline *t, int64_t time);

#endif
