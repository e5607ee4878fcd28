/* The C++ runtime is loaded when the first mangled name comes: sol itself is C and does not need
 * it. */
#include "trace/demangle.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef char *demangle_fn(const char *mangled, char *buffer, size_t *length, int *status);

static demangle_fn *runtime;

static void load_runtime(void)
{
    static const char *const names[] = {"libstdc++.so.6", "libc++abi.so.1"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !runtime; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        if (library) *(void **)&runtime = dlsym(library, "__cxa_demangle");
    }
}

char *demangle(const char *name, size_t length)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (length < 3 || memcmp(name, "_Z", 2) != 0) return NULL;
    pthread_once(&once, load_runtime);
    char *copy = runtime ? strndup(name, length) : NULL;
    int status = -1;
    char *plain = copy ? runtime(copy, NULL, NULL, &status) : NULL;
    free(copy);
    return plain;
}
