/* A CUDA driver that has no device: memory is the host's, but out of its reach between copies,
 * which are copies; launches are written down and do nothing, unless a test says what they do. It
 * can fail any call, so that every path of the host code is tested without a GPU, and it counts
 * what was made and not given back. A call whose thread has not the context of what it names fails,
 * and is counted. Any thread may call, one at a time. */
#ifndef DRIVER_FAKE_CUDA_H
#define DRIVER_FAKE_CUDA_H

#include <stdbool.h>

#include "driver/cuda.h"

/* What a launch does, for tests that emulate kernels: meanwhile all memory is in reach. */
typedef cuda_result (*fake_kernel_fn)(const char *kernel, const struct cuda_launch *config,
                                      const void *args);

struct fake_cuda_params {
    int devices;        /* 0: the driver has none */
    int major, minor;   /* compute capability */
    size_t memory;      /* bytes of each device */
    bool shared;        /* with the host, whose pointers it follows */
    int driver;         /* 0: 13000 */
    int shared_per_sm;  /* bytes, a KiB more than a block has; 0: 100 KiB */
    int sms;            /* 0: 4 */
    bool apart;         /* no device reaches another's memory */
    bool together;      /* `run` is called for launches of several threads at once */
    int graph_most;     /* kernels that a graph keeps, the rest is lost; 0: all */
    fake_kernel_fn run; /* NULL: launches do nothing, and are written down */
    /* With `run`: bytes of a kernel's arguments, so that graphs can do its launches again. They do
     * nothing else again: no copies, no library's work. NULL: not even these. */
    size_t (*args_bytes)(const char *kernel);
};

/* Forgets everything and gives the table; hand it to cuda_replace. */
const struct cuda_api *fake_cuda_start(const struct fake_cuda_params *params);

/* The n-th call from now (1: the next) fails with `result`; `sticky`: and every one after it, as a
 * device behaves after a fault in a kernel. 0: none. Calls that name errors never fail. */
void fake_cuda_fail(long n, cuda_result result, bool sticky);
/* The same for the n-th call from now of one function of the table, by its field. */
void fake_cuda_fail_in(const char *field, long n, cuda_result result, bool sticky);
/* What is to fail does on this device alone, and its calls alone count for it. -1: on any. */
void fake_cuda_fail_on(int device);
long fake_cuda_calls(void); /* since fake_cuda_start */
/* Of one function of the table, by its field: "copy_in". */
long fake_cuda_count(const char *field);
/* So many queries of streams from now on say that there is work left. */
void fake_cuda_busy(long queries);
size_t fake_cuda_copied(void); /* bytes between host and device, either way */
long fake_cuda_live(void); /* contexts, memory, streams, events, modules, graphs not given back */
size_t fake_cuda_bytes(void); /* of all devices' memory taken now */
long fake_cuda_misuses(void); /* calls in the wrong context, or on things of several */

/* What the fake writes into a tensor map: its arguments. */
struct fake_tensor_map {
    const void *data;
    uint32_t rank, element_bytes, swizzle, pad, box[5], pad2;
    uint64_t sizes[5], strides[4];
};

struct fake_launch {
    const char *kernel;
    struct cuda_launch config; /* attributes: not kept */
    bool programmatic;
    int shared; /* CUDA_LAUNCH_SHARED; 0: not wished */
};
long fake_cuda_launches(void);
const struct fake_launch *fake_cuda_launch(long index);
void fake_cuda_stop(void); /* frees what the fake itself holds */

#endif
