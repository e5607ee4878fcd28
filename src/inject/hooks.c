#include "inject/hooks.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { FAILED = 3 /* CUDA_ERROR_NOT_INITIALIZED */, PER_THREAD_STREAM = 2 };
enum { ANY_VERSION = INT32_MAX };

typedef void *dlsym_fn(void *restrict handle, const char *restrict name);

/* The C library's. Under the version that it had before and after it moved into libc. */
static dlsym_fn *real_dlsym(void)
{
    static dlsym_fn *_Atomic found;
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    dlsym_fn *known = found;
    for (size_t i = 0; !known && i < sizeof versions / sizeof *versions; i++)
        *(void **)&known = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    found = known;
    return known;
}

static void *libcuda(void)
{
    static void *_Atomic handle;
    if (!handle) handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    return handle;
}

/* ---- the functions that are stood in for ---- */

/* X(name, version that has this signature first, and the last one, symbol, suffix of the variant
 * for the per-thread default stream, parameters, arguments, what follows the driver's own).
 * Within the last: `name` of the call, `start`, the arguments, `result`. */
#define LAUNCH_ARGS                                                                                \
    void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,         \
        unsigned shared, void *stream
#define HOOKS(X)                                                                                   \
    X(cuLaunchKernel, 4000, ANY_VERSION, cuLaunchKernel, _ptsz,                                    \
      (LAUNCH_ARGS, void **parameters, void **extra),                                              \
      (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra),                              \
      launches_kernel(name, start, f, per_thread(stream, thread)))                                 \
    X(cuLaunchCooperativeKernel, 9000, ANY_VERSION, cuLaunchCooperativeKernel, _ptsz,              \
      (LAUNCH_ARGS, void **parameters), (f, gx, gy, gz, bx, by, bz, shared, stream, parameters),   \
      launches_kernel(name, start, f, per_thread(stream, thread)))                                 \
    X(cuLaunchKernelEx, 11060, ANY_VERSION, cuLaunchKernelEx, _ptsz,                               \
      (const struct launch_config *config, void *f, void **parameters, void **extra),              \
      (config, f, parameters, extra),                                                              \
      launches_kernel(name, start, f, per_thread(config->stream, thread)))                         \
    X(cuMemcpyAsync, 4000, ANY_VERSION, cuMemcpyAsync, _ptsz,                                      \
      (uint64_t to, uint64_t from, size_t bytes, void *stream), (to, from, bytes, stream),         \
      launches_call(name, start))                                                                  \
    X(cuMemcpyHtoDAsync, 3020, ANY_VERSION, cuMemcpyHtoDAsync_v2, _ptsz,                           \
      (uint64_t to, const void *from, size_t bytes, void *stream), (to, from, bytes, stream),      \
      launches_call(name, start))                                                                  \
    X(cuMemcpyDtoHAsync, 3020, ANY_VERSION, cuMemcpyDtoHAsync_v2, _ptsz,                           \
      (void *to, uint64_t from, size_t bytes, void *stream), (to, from, bytes, stream),            \
      launches_call(name, start))                                                                  \
    X(cuMemcpyDtoDAsync, 3020, ANY_VERSION, cuMemcpyDtoDAsync_v2, _ptsz,                           \
      (uint64_t to, uint64_t from, size_t bytes, void *stream), (to, from, bytes, stream),         \
      launches_call(name, start))                                                                  \
    X(cuMemcpyHtoD, 3020, ANY_VERSION, cuMemcpyHtoD_v2, _ptds,                                     \
      (uint64_t to, const void *from, size_t bytes), (to, from, bytes),                            \
      launches_call(name, start))                                                                  \
    X(cuMemcpyDtoH, 3020, ANY_VERSION, cuMemcpyDtoH_v2, _ptds,                                     \
      (void *to, uint64_t from, size_t bytes), (to, from, bytes), launches_call(name, start))      \
    X(cuMemsetD8Async, 3020, ANY_VERSION, cuMemsetD8Async, _ptsz,                                  \
      (uint64_t to, unsigned char value, size_t bytes, void *stream), (to, value, bytes, stream),  \
      launches_call(name, start))                                                                  \
    X(cuMemAlloc, 3020, ANY_VERSION, cuMemAlloc_v2, _same, (uint64_t * address, size_t bytes),     \
      (address, bytes), launches_call(name, start))                                                \
    X(cuMemFree, 3020, ANY_VERSION, cuMemFree_v2, _same, (uint64_t address), (address),            \
      launches_call(name, start))                                                                  \
    X(cuStreamSynchronize, 2000, ANY_VERSION, cuStreamSynchronize, _ptsz, (void *stream),          \
      (stream), launches_call(name, start))                                                        \
    X(cuEventSynchronize, 2000, ANY_VERSION, cuEventSynchronize, _same, (void *event), (event),    \
      launches_call(name, start))                                                                  \
    X(cuCtxSynchronize, 2000, 12999, cuCtxSynchronize, _same, (void), (),                          \
      launches_call(name, start))                                                                  \
    X(cuStreamBeginCapture, 10010, ANY_VERSION, cuStreamBeginCapture_v2, _ptsz,                    \
      (void *stream, int mode), (stream, mode), result == 0 ? launches_capturing(+1) : (void)0)    \
    X(cuStreamBeginCaptureToGraph, 12030, ANY_VERSION, cuStreamBeginCaptureToGraph, _ptsz,         \
      (void *stream, void *graph, const void *before, const void *edges, size_t n, int mode),      \
      (stream, graph, before, edges, n, mode), result == 0 ? launches_capturing(+1) : (void)0)     \
    X(cuStreamEndCapture, 10000, ANY_VERSION, cuStreamEndCapture, _ptsz,                           \
      (void *stream, void **graph), (stream, graph), launches_capturing(-1))                       \
    X(cuGraphInstantiate, 12000, ANY_VERSION, cuGraphInstantiateWithFlags, _same,                  \
      (void **exec, void *graph, unsigned long long flags), (exec, graph, flags),                  \
      result == 0 ? launches_graph_made(*exec, graph) : (void)0)                                   \
    X(cuGraphInstantiateWithParams, 12000, ANY_VERSION, cuGraphInstantiateWithParams, _ptsz,       \
      (void **exec, void *graph, void *parameters), (exec, graph, parameters),                     \
      result == 0 ? launches_graph_made(*exec, graph) : (void)0)                                   \
    X(cuGraphExecDestroy, 10000, ANY_VERSION, cuGraphExecDestroy, _same, (void *exec), (exec),     \
      result == 0 ? launches_graph_gone(exec) : (void)0)

/* CUlaunchConfig, of which the stream is read. */
struct launch_config {
    unsigned grid[3], block[3], shared;
    void *stream;
};

static void *per_thread(void *stream, int thread)
{
    return thread && !stream ? (void *)(uintptr_t)2 /* CU_STREAM_PER_THREAD */ : stream;
}

/* The driver's own, [1] for the per-thread default stream. Functions of programs that are linked
 * with libcuda are found when they are called first. */
#define REAL(name, first, last, symbol, suffix, parameters, arguments, after)                      \
    static int(*_Atomic real_##name[2]) parameters;
HOOKS(REAL)
static int (*_Atomic real_cuGraphLaunch[2])(void *, void *);
#undef REAL

static void *find_real(const char *symbol)
{
    void *handle = libcuda();
    return handle ? real_dlsym()(handle, symbol) : NULL;
}

#define ONE(name_, symbol, thread_, parameters, arguments, after)                                  \
    EXPORT int symbol parameters;                                                                  \
    EXPORT int symbol parameters                                                                   \
    {                                                                                              \
        static const char name[] = #name_;                                                         \
        enum { thread = thread_ };                                                                 \
        int(*real) parameters = real_##name_[thread];                                              \
        if (!real) {                                                                               \
            *(void **)&real = find_real(#symbol);                                                  \
            if (!real) return FAILED;                                                              \
            real_##name_[thread] = real;                                                           \
        }                                                                                          \
        inject_start_launches();                                                                   \
        int64_t start = launches_now();                                                            \
        int result = real arguments;                                                               \
        (void)start, (void)name;                                                                   \
        after;                                                                                     \
        return result;                                                                             \
    }
#define BOTH(name, first, last, symbol, suffix, parameters, arguments, after)                      \
    ONE(name, symbol, 0, parameters, arguments, after)                                             \
    ONE(name, symbol##suffix, 1, parameters, arguments, after)
HOOKS(BOTH)
#undef BOTH
#undef ONE

static int graph_launch(int thread, const char *symbol, void *exec, void *stream)
{
    struct launches_run run;
    int (*real)(void *, void *) = real_cuGraphLaunch[thread];
    if (!real) {
        *(void **)&real = find_real(symbol);
        if (!real) return FAILED;
        real_cuGraphLaunch[thread] = real;
    }
    inject_start_launches();
    launches_graph_before(&run, exec, per_thread(stream, thread));
    int result = real(exec, stream);
    launches_graph_after("cuGraphLaunch", &run, exec, per_thread(stream, thread), result);
    return result;
}

EXPORT int cuGraphLaunch(void *exec, void *stream);
EXPORT int cuGraphLaunch(void *exec, void *stream)
{
    return graph_launch(0, "cuGraphLaunch", exec, stream);
}

EXPORT int cuGraphLaunch_ptsz(void *exec, void *stream);
EXPORT int cuGraphLaunch_ptsz(void *exec, void *stream)
{
    return graph_launch(1, "cuGraphLaunch_ptsz", exec, stream);
}

/* ---- handing them out ---- */

struct hook {
    const char *name; /* as cuGetProcAddress knows it */
    int first, last;  /* versions */
    const char *symbol[2];
    void *ours[2];
    void *_Atomic *real[2];
};

#define ROW(name, first, last, symbol, suffix, parameters, arguments, after)                       \
    {#name,                                                                                        \
     first,                                                                                        \
     last,                                                                                         \
     {#symbol, #symbol #suffix},                                                                   \
     {(void *)symbol, (void *)symbol##suffix},                                                     \
     {(void *_Atomic *)&real_##name[0], (void *_Atomic *)&real_##name[1]}},
static const struct hook hooks[] = {
    HOOKS(ROW){"cuGraphInstantiateWithFlags",
               11040,
               ANY_VERSION,
               {"", ""},
               {(void *)cuGraphInstantiateWithFlags, (void *)cuGraphInstantiateWithFlags_same},
               {(void *_Atomic *)&real_cuGraphInstantiate[0],
                (void *_Atomic *)&real_cuGraphInstantiate[1]}},
    {"cuGraphLaunch",
     10000,
     ANY_VERSION,
     {"cuGraphLaunch", "cuGraphLaunch_ptsz"},
     {(void *)cuGraphLaunch, (void *)cuGraphLaunch_ptsz},
     {(void *_Atomic *)&real_cuGraphLaunch[0], (void *_Atomic *)&real_cuGraphLaunch[1]}},
};
#undef ROW
enum { N_HOOKS = sizeof hooks / sizeof *hooks };

/* Ours instead of what the driver gave, which is kept. */
static void *stand_in(const struct hook *hook, int thread, void *real)
{
    *hook->real[thread] = real;
    return hook->ours[thread];
}

typedef int proc_v1_fn(const char *, void **, int, uint64_t);
typedef int proc_v2_fn(const char *, void **, int, uint64_t, int *);
static proc_v1_fn *_Atomic real_proc_v1;
static proc_v2_fn *_Atomic real_proc_v2;

static void *hand_out(const char *symbol, int version, uint64_t flags, void *found);

static int proc_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
    int result = real_proc_v2(symbol, function, version, flags, status);
    if (result == 0 && symbol && function && *function)
        *function = hand_out(symbol, version, flags, *function);
    return result;
}

static int proc_v1(const char *symbol, void **function, int version, uint64_t flags)
{
    int result = real_proc_v1(symbol, function, version, flags);
    if (result == 0 && symbol && function && *function)
        *function = hand_out(symbol, version, flags, *function);
    return result;
}

/* cuGetProcAddress gives itself too: the runtime asks for it, by that name or by none. Its second
 * version has one more argument. */
static void *hand_out_itself(const char *symbol, int version, void *found)
{
    if (strcmp(symbol, "cuGetProcAddress_v2") == 0 || version >= 12000) {
        real_proc_v2 = (proc_v2_fn *)found;
        return (void *)proc_v2;
    }
    real_proc_v1 = (proc_v1_fn *)found;
    return (void *)proc_v1;
}

static void *hand_out(const char *symbol, int version, uint64_t flags, void *found)
{
    int thread = (flags & PER_THREAD_STREAM) != 0;
    if (!inject_counts_launches()) return found;
    if (*symbol == '\0' || strncmp(symbol, "cuGetProcAddress", 16) == 0)
        return hand_out_itself(symbol, version, found);
    for (size_t i = 0; i < N_HOOKS; i++)
        if (strcmp(hooks[i].name, symbol) == 0 && version >= hooks[i].first &&
            version <= hooks[i].last)
            return stand_in(&hooks[i], thread, found);
    return found;
}

static void *symbol_found(const char *symbol, void *found)
{
    if (!inject_counts_launches()) return found;
    if (strcmp(symbol, "cuGetProcAddress") == 0) return hand_out_itself(symbol, 0, found);
    if (strcmp(symbol, "cuGetProcAddress_v2") == 0) return hand_out_itself(symbol, 12000, found);
    for (size_t i = 0; i < N_HOOKS; i++)
        for (int thread = 0; thread < 2; thread++)
            if (strcmp(hooks[i].symbol[thread], symbol) == 0)
                return found == hooks[i].ours[thread] ? found : stand_in(&hooks[i], thread, found);
    return found;
}

/* RTLD_NEXT depends on who calls, so it, like every name that is none of the driver's, goes on by a
 * jump that leaves the caller's address in place. */
EXPORT void *dlsym(void *restrict handle, const char *restrict name);
EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
    dlsym_fn *real = real_dlsym();
    if (handle == RTLD_NEXT || name[0] != 'c' || name[1] != 'u') return real(handle, name);
    void *found = real(handle, name);
    return found ? symbol_found(name, found) : NULL;
}

bool hooks_driver(struct driver *driver, char *why, size_t why_size)
{
    const char *missing = NULL;
    void *handle = libcuda();
    dlsym_fn *find = real_dlsym();
    if (!handle) {
        snprintf(why, why_size, "the CUDA driver (libcuda.so.1) is not loaded");
        return false;
    }
#define LOAD(field, symbol, parameters)                                                            \
    *(void **)&driver->field = find(handle, #symbol);                                              \
    if (!driver->field) missing = #symbol;
    DRIVER_FUNCTIONS(LOAD)
#undef LOAD
    if (missing) snprintf(why, why_size, "the CUDA driver lacks %s: 12.3 is needed", missing);
    return !missing;
}
