/* The part of CUPTI's binary interface that the library uses: activity records as they lie in its
 * buffers, numbers of kinds and flags, and the functions that are looked up at run time. Declared
 * here so that the library builds without CUDA; where CUDA's headers are present, the build
 * compares every number and offset with them (cupti_abi_check.c).
 *
 * Records have grown at their end between CUPTI 12 and 13; the fields below lie at the same place
 * in all of those, and CUPTI itself steps from one record to the next. */
#ifndef INJECT_CUPTI_ABI_H
#define INJECT_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { CUPTI_OK = 0, CUPTI_END = 12, CUPTI_RIVAL = 39 }; /* results */
enum { CUPTI_DRIVER_DOMAIN = 1, CUPTI_RUNTIME_DOMAIN = 2 };
enum { CUPTI_FLUSH_FORCED = 1 };

enum cupti_kind {
    CUPTI_MEMCPY = 1,
    CUPTI_MEMSET = 2,
    CUPTI_DRIVER = 4,
    CUPTI_RUNTIME = 5,
    CUPTI_DEVICE = 8,
    CUPTI_CONCURRENT_KERNEL = 10,
    CUPTI_MARKER = 12,
    CUPTI_OVERHEAD = 17,
    CUPTI_ENVIRONMENT = 20,
    CUPTI_MEMCPY_PEER = 22,
    CUPTI_SYNCHRONIZATION = 38,
    CUPTI_MEMORY = 49,
    CUPTI_GRAPH_TRACE = 51,
};

/* Records start at multiples of 8 and hold no implicit padding but what is spelled out. */
#define CUPTI_RECORD __attribute__((packed, aligned(8)))

struct CUPTI_RECORD cupti_kernel {
    uint32_t kind;
    uint8_t cache_config, shared_config;
    uint16_t registers;
    uint32_t partitioned_requested, partitioned_executed;
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t shared_static, shared_dynamic;
    uint32_t local, local_total;
    uint32_t correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch_type, carveout_requested, carveout, padding;
    uint32_t shared_executed;
    uint64_t graph_node;
    uint32_t shared_limit;
    uint32_t graph;
    void *access_policy;
    uint32_t channel, channel_type;
    uint32_t cluster[3];
};

struct CUPTI_RECORD cupti_memcpy {
    uint32_t kind;
    uint8_t copy_kind, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, padding;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
};

struct CUPTI_RECORD cupti_memcpy_peer {
    uint32_t kind;
    uint8_t copy_kind, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream;
    uint32_t from_device, from_context, to_device, to_context;
    uint32_t correlation;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
};

struct CUPTI_RECORD cupti_memset {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint16_t flags, to;
    uint32_t padding;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
};

struct CUPTI_RECORD cupti_api { /* driver and runtime */
    uint32_t kind, callback;
    uint64_t start, end;
    uint32_t process, thread, correlation, result;
};

struct CUPTI_RECORD cupti_synchronization {
    uint32_t kind, type;
    uint64_t start, end;
    uint32_t correlation, context, stream;
};

struct CUPTI_RECORD cupti_overhead {
    uint32_t kind, overhead, object;
    uint32_t id[3]; /* object CUPTI_OBJECT_THREAD: process, thread */
    uint64_t start, end;
};

struct CUPTI_RECORD cupti_marker {
    uint32_t kind, flags;
    uint64_t time;
    uint32_t marker, object;
    uint32_t id[3];
    uint32_t padding;
    const char *name, *domain; /* of the end of a range: NULL */
};

struct CUPTI_RECORD cupti_environment {
    uint32_t kind, device;
    uint64_t time;
    uint32_t what;    /* enum cupti_environment_what */
    uint32_t data[5]; /* SPEED: SM MHz, memory MHz, link generation, width, throttle reasons;
                         TEMPERATURE: degrees C; POWER: mW, limit mW */
};

struct CUPTI_RECORD cupti_memory {
    uint32_t kind, operation, to, correlation;
    uint64_t address, bytes, time, pc;
    uint32_t process, device, context, stream;
    const char *name;
    uint32_t async;
};

struct cupti_graph_trace {
    uint32_t kind, correlation;
    uint64_t start, end;
    uint32_t device, graph, context, stream;
};

struct CUPTI_RECORD cupti_device {
    uint32_t kind, flags;
    uint64_t memory_kbytes_per_s, memory_bytes;
    uint32_t constant_memory, l2_bytes, warp_size, clock_khz, copy_engines, sm_count, max_ipc;
    uint32_t warps_per_sm, blocks_per_sm, shared_per_sm, registers_per_sm, registers_per_block;
    uint32_t shared_per_block, threads_per_block, max_block[3], max_grid[3];
    uint32_t compute_major, compute_minor, id, ecc;
    uint8_t uuid[16];
    const char *name;
};

enum { CUPTI_MARKER_MARK = 1, CUPTI_MARKER_START = 2, CUPTI_MARKER_END = 4 };
enum { CUPTI_MEMCPY_ASYNC = 1, CUPTI_OPERATION_RELEASE = 2, CUPTI_OBJECT_THREAD = 2 };
enum { CUPTI_TO_DEVICE_STATIC = 6, CUPTI_TO_MANAGED_STATIC = 7 }; /* below: as enum memory_kind */
enum cupti_sync_type {
    CUPTI_SYNC_EVENT = 1,
    CUPTI_SYNC_STREAM_WAIT,
    CUPTI_SYNC_STREAM,
    CUPTI_SYNC_CONTEXT
};
enum cupti_environment_what { CUPTI_SPEED = 1, CUPTI_TEMPERATURE, CUPTI_POWER };
enum cupti_overhead_kind {
    CUPTI_OVERHEAD_COMPILER = 1,
    CUPTI_OVERHEAD_FLUSH = 1 << 16,
    CUPTI_OVERHEAD_INSTRUMENTATION = 2 << 16,
    CUPTI_OVERHEAD_RESOURCE = 3 << 16,
    CUPTI_OVERHEAD_MODULE = 4 << 16,
    CUPTI_OVERHEAD_FUNCTION = 5 << 16,
    CUPTI_OVERHEAD_COMMAND_BUFFER = 6 << 16,
    CUPTI_OVERHEAD_BUFFER_REQUEST = 7 << 16,
    CUPTI_OVERHEAD_MANAGED_MEMORY = 8 << 16,
};

struct cupti_subscriber_params {
    size_t size;
    const char *name;
    char *rival; /* who is subscribed already, where that is refused */
    size_t rival_size;
};

typedef void (*cupti_request_fn)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*cupti_complete_fn)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                  size_t valid);
typedef void (*cupti_callback_fn)(void *user, uint32_t domain, uint32_t callback, const void *data);

/* X(field, symbol, result, parameters): the functions used. All return a result. */
#define CUPTI_FUNCTIONS(X)                                                                         \
    X(version, cuptiGetVersion, (uint32_t *))                                                      \
    X(subscribe, cuptiSubscribe, (void **, cupti_callback_fn, void *))                             \
    X(register_callbacks, cuptiActivityRegisterCallbacks, (cupti_request_fn, cupti_complete_fn))   \
    X(enable, cuptiActivityEnable, (uint32_t))                                                     \
    X(enable_runtime, cuptiActivityEnableRuntimeApi, (uint32_t, uint8_t))                          \
    X(enable_driver, cuptiActivityEnableDriverApi, (uint32_t, uint8_t))                            \
    X(next_record, cuptiActivityGetNextRecord, (uint8_t *, size_t, void **))                       \
    X(dropped, cuptiActivityGetNumDroppedRecords, (void *, uint32_t, size_t *))                    \
    X(flush_all, cuptiActivityFlushAll, (uint32_t))                                                \
    X(callback_name, cuptiGetCallbackName, (uint32_t, uint32_t, const char **))                    \
    X(result_string, cuptiGetResultString, (int, const char **))                                   \
    X(timestamp, cuptiGetTimestamp, (uint64_t *))

/* As above, absent in older versions: NULL then. */
#define CUPTI_OPTIONAL_FUNCTIONS(X)                                                                \
    X(subscribe_named, cuptiSubscribe_v2,                                                          \
      (void **, cupti_callback_fn, void *, struct cupti_subscriber_params *))                      \
    X(nvtx, cuptiNvtxInitialize2, (void *))

#endif
