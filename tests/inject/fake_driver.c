/* A CUDA driver without a GPU (libcuda.so.1), for level `launch`: what hooks.c stands in for and
 * what launches.c asks. Its device's clock moves by DEVICE_MS with each run of a graph. A graph is
 * three kernels `first`, one `second` and a graph within it with two more `first`. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define FAKE(name, parameters, ...)                                                                \
    EXPORT int name parameters;                                                                    \
    EXPORT int name parameters                                                                     \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
        return 0;                                                                                  \
    }

enum { NODE_KERNEL = 0, NODE_EMPTY = 5, NODE_GRAPH = 4, DEVICE_MS = 2 };

struct node {
    int type;
    const char *kernel;
};

static float device_ms;
static void *capturing;
static int graph, inner_graph, context;
static struct node first = {NODE_KERNEL, "_Z5firstPf"}, second = {NODE_KERNEL, "second"},
                   empty = {NODE_EMPTY, ""}, child = {NODE_GRAPH, ""};

FAKE(cuInit, (unsigned flags), (void)flags)
FAKE(cuLaunchKernel,
     (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned shared, void *stream, void **parameters, void **extra),
     (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared,
     (void)stream, (void)parameters, (void)extra)
FAKE(cuLaunchKernel_ptsz,
     (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned shared, void *stream, void **parameters, void **extra),
     return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
FAKE(cuStreamSynchronize, (void *stream), (void)stream)
FAKE(cuStreamBeginCapture_v2, (void *stream, int mode), (void)mode; capturing = stream)
FAKE(cuStreamEndCapture, (void *stream, void **out), (void)stream; capturing = NULL; *out = &graph)
FAKE(cuStreamIsCapturing, (void *stream, int *status), *status = capturing && stream == capturing)
FAKE(cuGraphInstantiateWithFlags, (void **exec, void *of, unsigned long long flags), (void)flags;
     *exec = (char *)of + 1)
FAKE(cuGraphExecDestroy, (void *exec), (void)exec)
FAKE(cuGraphLaunch, (void *exec, void *stream), (void)exec, (void)stream; device_ms += DEVICE_MS)
FAKE(cuGraphGetNodes, (void *of, void **nodes, size_t *n), {
    static void *const outer[] = {&first, &second, &first, &empty, &child, &first};
    static void *const inner[] = {&first, &first};
    size_t have = of == &graph ? sizeof outer / sizeof *outer : sizeof inner / sizeof *inner;
    if (nodes) memcpy(nodes, of == &graph ? outer : inner, have * sizeof *nodes);
    *n = have;
})
FAKE(cuGraphNodeGetType, (void *node, int *type), *type = ((struct node *)node)->type)
FAKE(cuGraphKernelNodeGetParams_v2, (void *node, void **parameters), parameters[0] = node)
FAKE(cuGraphChildGraphNodeGetGraph, (void *node, void **out), (void)node; *out = &inner_graph)
FAKE(cuFuncGetName, (const char **name, void *f), *name = ((struct node *)f)->kernel)
FAKE(cuKernelGetName, (const char **name, void *f), *name = ((struct node *)f)->kernel)
/* An event's time, and the stream of its last record. */
struct event {
    float ms;
    void *stream;
};
static int apart;
FAKE(cuStreamCreate, (void **stream, unsigned flags), *stream = flags == 1 ? &apart : NULL)
FAKE(cuStreamDestroy_v2, (void *stream), (void)stream)
FAKE(cuEventCreate, (void **event, unsigned flags), (void)flags;
     *event = calloc(1, sizeof(struct event)))
FAKE(cuEventRecord, (struct event * event, void *stream),
     *event = (struct event){device_ms, stream})
FAKE(cuEventQuery, (void *event), (void)event)
/* The program's stream may wait for what the host does next: who waits for it waits for ever. */
FAKE(cuEventSynchronize, (struct event * event), if (event->stream != &apart) abort())
FAKE(cuEventElapsedTime, (float *ms, const struct event *from, const struct event *to),
     *ms = to->ms - from->ms)
FAKE(cuThreadExchangeStreamCaptureMode, (int *mode), (void)mode)
FAKE(cuCtxGetCurrent, (void **out), *out = &context)
FAKE(cuCtxGetDevice, (int *device), *device = 0)
FAKE(cuDeviceGetName, (char *name, int size, int device), (void)device;
     strncpy(name, "Fake H100", (size_t)size))
FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, void *f, int block, size_t shared),
     (void)f, (void)block, (void)shared;
     *blocks = 4)
FAKE(cuDeviceGetAttribute, (int *value, int attribute, int device), (void)device;
     *value = attribute)
FAKE(cuDeviceGetUuid, (unsigned char *uuid, int device), (void)device; memset(uuid, 0, 16);
     memcpy(uuid, "\1\2\3", 3))

/* The kernels, for the program. */
EXPORT void *fake_kernel(int number);
EXPORT void *fake_kernel(int number)
{
    return number == 0 ? &first : &second;
}

/* Names as programs ask for them, and the symbols that they get. */
FAKE(cuGetProcAddress_v2, (const char *name, void **out, int version, uint64_t flags, int *status),
     {
         static const char *const symbols[][2] = {
             {"cuStreamBeginCapture", "cuStreamBeginCapture_v2"},
             {"cuGraphInstantiate", "cuGraphInstantiateWithFlags"},
             {"", "cuGetProcAddress_v2"},
             {"cuGetProcAddress", "cuGetProcAddress_v2"}};
         const char *symbol = name;
         Dl_info here;
         (void)version, (void)status;
         for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
             if (strcmp(symbols[i][0], name) == 0) symbol = symbols[i][1];
         if (flags & 2 && strcmp(name, "cuLaunchKernel") == 0) symbol = "cuLaunchKernel_ptsz";
         /* The driver's tables are its own: no dlsym, which somebody may have overridden. */
         if (!dladdr((void *)cuInit, &here)) return 1;
         void *self = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
         *out = self ? dlvsym(self, symbol, "FAKE_CUDA") : NULL;
         return *out ? 0 : 500;
     })
