/* A program that uses libcuda.so.1 as the CUDA runtime does: opens it and asks for its functions
 * one by one.
 *
 * usage: fake_launcher RUNS
 *   7 kernels `first`, 2 `second` (3 of the first on the per-thread stream), 4 launches that are
 *   captured and do not run, RUNS runs of the graph, a wait each. Prints what a name that is not
 * the driver's gives with RTLD_NEXT. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int launch_fn(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void *, void **, void **);

static int (*get)(const char *, void **, int, uint64_t, int *);

static void *need(const char *name, uint64_t flags)
{
    void *found = NULL;
    if (get(name, &found, 13000, flags, NULL) != 0 || !found) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return found;
}

static void launch(launch_fn *with, void *kernel, int times, void *stream)
{
    for (int i = 0; i < times; i++)
        if (with(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL) != 0) exit(2);
}

int main(int argc, char **argv)
{
    int runs = argc > 1 ? atoi(argv[1]) : 1, stream;
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *first_get = NULL, *graph, *exec;
    void *(*kernel)(int);
    launch_fn *plain, *per_thread, *direct;
    int (*begin)(void *, int), (*end)(void *, void **), (*wait)(void *);
    int (*make)(void **, void *, uint64_t), (*run)(void *, void *);
    if (!library) return 3;
    *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
    if (!get || get("", &first_get, 13000, 0, NULL) != 0) return 4;
    *(void **)&get = first_get;
    *(void **)&kernel = dlsym(library, "fake_kernel");
    *(void **)&direct = dlsym(library, "cuLaunchKernel");
    *(void **)&plain = need("cuLaunchKernel", 0);
    *(void **)&per_thread = need("cuLaunchKernel", 2);
    *(void **)&begin = need("cuStreamBeginCapture", 0);
    *(void **)&end = need("cuStreamEndCapture", 0);
    *(void **)&make = need("cuGraphInstantiate", 0);
    *(void **)&run = need("cuGraphLaunch", 0);
    *(void **)&wait = need("cuStreamSynchronize", 0);
    launch(plain, kernel(0), 3, NULL);
    launch(direct, kernel(0), 1, NULL);
    launch(per_thread, kernel(0), 3, NULL);
    launch(plain, kernel(1), 2, NULL);
    if (begin(&stream, 0) != 0) return 5;
    launch(plain, kernel(0), 4, &stream);
    if (end(&stream, &graph) != 0 || make(&exec, graph, 0) != 0) return 6;
    for (int i = 0; i < runs; i++)
        if (run(exec, &stream) != 0 || wait(&stream) != 0) return 7;
    /* Of the libraries behind the program; seen from the tracer there is none behind. */
    printf("next %s\n", dlsym(RTLD_NEXT, "InitializeInjection") ? "found" : "not found");
    printf("output\n");
    return 7;
}
