/* sol as a guest of a program that uses the GPU itself: it leaves the contexts of threads as they
 * were, and puts kernels on streams that the program made. */
#ifndef GPU_GUEST_H
#define GPU_GUEST_H

#include "gpu/device.h"

/* ---- contexts ---- */

/* Between begin and end the thread may call everything of sol; then it has the context again that
 * it had before. begin fails where there is no driver; the thread has its context still. */
struct gpu_visit {
    void *context;
};
enum sol_status gpu_visit_begin(struct gpu_visit *visit);
enum sol_status gpu_visit_end(const struct gpu_visit *visit);

/* ---- streams ---- */

/* A stream that is not sol's: nobody waits for it or destroys it here. It is none before
 * gpu_guest_set. Given back with gpu_stream_destroy. */
enum sol_status gpu_guest_create(struct gpu *gpu, struct gpu_stream **out);

/* What is put on `guest` goes to `theirs`, a CUstream of the GPU's context, from now on; NULL is
 * the default stream. `counters`: gpu_counters_bytes that are 0, and the same ones for nothing that
 * runs at the same time. */
void gpu_guest_set(struct gpu_stream *guest, void *theirs, uint32_t *counters);
/* Kernels are found from now on, until gpu_guest_set, and not launched: what would have to be
 * loaded is loaded. */
void gpu_guest_rehearse(struct gpu_stream *guest);
/* The first failure of what was put there since gpu_guest_set; nobody waits. */
enum sol_status gpu_guest_status(const struct gpu_stream *guest);

/* Of a stream's counters (gpu_stream_counters). */
size_t gpu_counters_bytes(void);

#endif
