/* A GPU's measured limits, by the kernels in kernels/ceiling. */
#ifndef BENCH_GPU_CEILING_H
#define BENCH_GPU_CEILING_H

#include "bench/ceiling.h"
#include "bench/gpu_sensors.h"
#include "gpu/device.h"

struct gpu_ceiling {
    struct ceiling_rate access[CEILING_ACCESS_COUNT]; /* bytes/s of memory, beyond the L2 */
    size_t memory_bytes;                              /* of the buffer */
    struct ceiling_rate l2;                           /* bytes/s read from a buffer that fits it */
    size_t l2_bytes;
    struct ceiling_rate f32, bf16, fp8, i8; /* flops; fp8 is 0 where the device has none */
    double launch_ns;     /* of a launch on a stream that is never empty: empty kernels in a row */
    double node_ns;       /* of a node of a graph: the same as one graph */
    double overlapped_ns; /* of a node that may start before the one before it has ended */
    double answer_ns;     /* from the launch of a graph of one node until the host knows it ended */
    struct gpu_reading reading; /* while the tensor cores were measured */
    double seconds;
};

/* Each loop runs for about `seconds`. Takes up to 2 GiB of the device's memory meanwhile, less
 * where less is free. Interruptible. */
enum sol_status gpu_ceiling_measure(struct gpu *gpu, double seconds, struct gpu_ceiling *out);

/* What events add to the time of a kernel that is timed by them alone: that of an empty one between
 * two events, less what it costs as a node of a graph. 0 where it cannot be told. */
enum sol_status gpu_event_cost(struct gpu *gpu, double *ns);

/* As what bounds a model that reads `working_set` bytes over and over: weights that fit the L2 are
 * read from there. Float32 products are bound by the better of float32 arithmetic and of bf16 with
 * each activation as three parts, which is as exact. */
void gpu_ceiling_limits(const struct gpu_ceiling *measured, size_t working_set,
                        struct ceiling *out);

json_t *gpu_ceiling_json(const struct gpu_ceiling *measured);

#endif
