/* What level `launch` records, without CUPTI, whose presence alone makes a launch-bound program
 * slower (LOG.md): every call into the driver that starts work or waits, with its time on the
 * host; how often each kernel and graph was launched, kernels within graphs too; and how long runs
 * of graphs took, between a pair of events: the first SAMPLE_RUNS, and more for as long as that
 * costs less than a hundredth of the time, so that all timed runs follow on each other. Called by
 * the functions of hooks.c around the driver's own.
 *
 * Everything here may be called from any thread, and does nothing in the child of a fork. */
#ifndef INJECT_LAUNCHES_H
#define INJECT_LAUNCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The driver's functions that the recording itself needs; never those of hooks.c. */
#define DRIVER_FUNCTIONS(X)                                                                        \
    X(event_create, cuEventCreate, (void **, unsigned))                                            \
    X(event_record, cuEventRecord, (void *, void *))                                               \
    X(event_query, cuEventQuery, (void *))                                                         \
    X(event_wait, cuEventSynchronize, (void *))                                                    \
    X(stream_create, cuStreamCreate, (void **, unsigned))                                          \
    X(stream_destroy, cuStreamDestroy_v2, (void *))                                                \
    X(event_elapsed, cuEventElapsedTime, (float *, void *, void *))                                \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, (int *))                                    \
    X(is_capturing, cuStreamIsCapturing, (void *, int *))                                          \
    X(context, cuCtxGetCurrent, (void **))                                                         \
    X(device, cuCtxGetDevice, (int *))                                                             \
    X(device_name, cuDeviceGetName, (char *, int, int))                                            \
    X(device_uuid, cuDeviceGetUuid, (unsigned char *, int))                                        \
    X(device_attribute, cuDeviceGetAttribute, (int *, int, int))                                   \
    X(graph_nodes, cuGraphGetNodes, (void *, void **, size_t *))                                   \
    X(node_type, cuGraphNodeGetType, (void *, int *))                                              \
    X(node_kernel, cuGraphKernelNodeGetParams_v2, (void *, void *))                                \
    X(node_graph, cuGraphChildGraphNodeGetGraph, (void *, void **))                                \
    X(function_name, cuFuncGetName, (const char **, void *))                                       \
    X(kernel_name, cuKernelGetName, (const char **, void *))

#define DRIVER_MEMBER(field, symbol, parameters) int(*field) parameters;
struct driver {
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
};
#undef DRIVER_MEMBER

/* Before any other call. False without memory; every function of `driver` must be there. */
bool launches_start(const struct driver *driver);
void launches_stop(void);    /* collects what has finished */
void launches_forked(void);  /* in the child */
void launches_collect(void); /* from time to time, from one thread; takes the writer's lock */

int64_t launches_now(void); /* ns of the trace's clock */

/* A call that began at `start` and has just returned. */
void launches_call(const char *name, int64_t start);
/* The same for a launch of a kernel (CUfunction or CUkernel); not counted while captured. */
void launches_kernel(const char *name, int64_t start, void *kernel, void *stream);
void launches_capturing(int change); /* +1: a capture began on some stream; -1: one ended */

/* An executable graph was made of `graph`: its kernels are counted now; or is gone. */
void launches_graph_made(void *exec, void *graph);
void launches_graph_gone(void *exec);

/* Around a launch of a graph. `run` is filled in by the first. */
struct launches_run {
    int64_t start;
    void *begin, *end; /* events; NULL: not timed */
    uint32_t place;
};
void launches_graph_before(struct launches_run *run, void *exec, void *stream);
void launches_graph_after(const char *name, struct launches_run *run, void *exec, void *stream,
                          int result);

#endif
