/* The CUDA driver as a table of functions, loaded at run time or faked (driver/fake_cuda.h). The
 * types and constants are the driver's own, named here so that sol builds without its headers;
 * where the headers are there, tests/unit_driver.c checks every one against them. */
#ifndef DRIVER_CUDA_H
#define DRIVER_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef int cuda_result;
typedef int cuda_device;
typedef unsigned long long cuda_address; /* in device memory; 0: none */
typedef struct CUctx_st *cuda_context;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef struct CUgraph_st *cuda_graph;
typedef struct CUgraphExec_st *cuda_graph_exec;
typedef struct CUgraphNode_st *cuda_graph_node;

enum {
    CUDA_OK = 0,
    CUDA_E_VALUE = 1,
    CUDA_E_MEMORY = 2,
    CUDA_E_NO_DEVICE = 100,
    CUDA_E_BAD_IMAGE = 200,
    CUDA_E_CONTEXT = 201,
    CUDA_E_NO_BINARY = 209, /* the image has no code for this device */
    CUDA_E_ECC = 214,       /* memory lost bits */
    CUDA_E_BAD_PTX = 218,
    CUDA_E_PTX_TOO_NEW = 222,
    CUDA_E_HANDLE = 400,
    CUDA_E_NOT_FOUND = 500,
    CUDA_E_NOT_READY = 600, /* no error: what was asked for is not done yet */
    CUDA_E_ADDRESS = 700,   /* a kernel read or wrote where there is nothing */
    CUDA_E_LAUNCH = 719,
    CUDA_E_DRIVER_MISMATCH = 803, /* the library is not that of the kernel's driver */
};

enum { /* device_attribute */
       CUDA_ATTRIBUTE_CLOCK_KHZ = 13,
       CUDA_ATTRIBUTE_SM_COUNT = 16,
       CUDA_ATTRIBUTE_INTEGRATED = 18,
       CUDA_ATTRIBUTE_MEMORY_CLOCK_KHZ = 36,
       CUDA_ATTRIBUTE_MEMORY_BUS_BITS = 37,
       CUDA_ATTRIBUTE_L2_BYTES = 38,
       CUDA_ATTRIBUTE_MAJOR = 75,
       CUDA_ATTRIBUTE_MINOR = 76,
       CUDA_ATTRIBUTE_SHARED_PER_SM = 81,
       CUDA_ATTRIBUTE_REGISTERS_PER_SM = 82,
       CUDA_ATTRIBUTE_SHARED_PER_BLOCK = 97,      /* with the opt-in */
       CUDA_ATTRIBUTE_PAGEABLE_HOST_ACCESS = 100, /* by the host's page tables: memory is shared */
};
enum { /* function_attribute, function_set */
       CUDA_FUNCTION_THREADS_MAX = 0,
       CUDA_FUNCTION_SHARED_STATIC = 1,
       CUDA_FUNCTION_LOCAL = 3,
       CUDA_FUNCTION_REGISTERS = 4,
       CUDA_FUNCTION_SHARED_DYNAMIC_MAX = 8,
};
enum { /* cuda_stream, as a number: those that nobody makes; 0 is the legacy one too */
       CUDA_STREAM_LEGACY = 1,
       CUDA_STREAM_PER_THREAD = 2,
};
enum { /* flags */
       CUDA_STREAM_NON_BLOCKING = 1,
       CUDA_EVENT_NO_TIMING = 2,
       CUDA_CAPTURE_THREAD_LOCAL = 1,
};
enum { CUDA_NODE_KERNEL = 0 }; /* graph_node_type */
enum {                         /* of physical memory, and of who may touch it */
       CUDA_PHYSICAL_PINNED = 1,
       CUDA_PLACE_DEVICE = 1,
       CUDA_ACCESS_READ_WRITE = 3,
};

enum {                               /* cuda_launch_attribute.id */
       CUDA_LAUNCH_COOPERATIVE = 2,  /* value.flag 1: all blocks run at the same time, or none */
       CUDA_LAUNCH_CLUSTER = 4,      /* value.cluster: blocks a cluster */
       CUDA_LAUNCH_PROGRAMMATIC = 6, /* value.flag 1: may begin while the kernel before it ends */
       CUDA_LAUNCH_SHARED = 14, /* value.flag: percent of an SM's memory that is shared, a wish */
};
struct cuda_launch_attribute {
    int id;
    char padding[4];
    union {
        char bytes[64];
        int flag;
        unsigned cluster[3];
    } value;
};
struct cuda_launch {
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    cuda_stream stream;
    struct cuda_launch_attribute *attributes;
    unsigned n_attributes;
};
/* CUDA_MEMCPY3D. */
struct cuda_box_end {
    size_t x_bytes, y, z, level;
    int kind;
    char padding[4];
    const void *host;
    cuda_address device;
    void *array, *reserved;
    size_t pitch, height; /* bytes from row to row; rows from layer to layer */
};
enum { CUDA_MEMORY_DEVICE = 2 };
struct cuda_copy_box {
    struct cuda_box_end from, to;
    size_t width, height, depth; /* bytes of a row; rows; layers */
};
/* CUmemLocation, CUmemAllocationProp, CUmemAccessDesc. */
struct cuda_place {
    int kind, device;
};
struct cuda_physical {
    int kind, handles;
    struct cuda_place place;
    void *windows;
    unsigned char flags[8];
};
struct cuda_access {
    struct cuda_place place;
    int flags;
};
struct cuda_tensor_map {
    _Alignas(128) uint64_t opaque[16];
};

struct cuda_api {
#define CUDA_FUNCTION(field, symbol, parameters) cuda_result(*field) parameters;
#include "driver/cuda_functions.list"
#undef CUDA_FUNCTION
};

/* The driver, loaded and initialised once a process; SOL_E_UNSUPPORTED with what is missing and
 * what to do where there is none. */
enum sol_status cuda_load(const struct cuda_api **out);
/* For tests: what cuda_load gives from now on; NULL for the real one again. */
void cuda_replace(const struct cuda_api *api);

/* Raises the driver's error, with its name and text: "<what>: CUDA_ERROR_... (...)". Out of memory
 * becomes SOL_E_MEMORY, everything else SOL_E_DEVICE, with what to do where that is known. SOL_OK
 * for CUDA_OK. */
enum sol_status cuda_status(const struct cuda_api *api, cuda_result result, const char *what);

#endif
