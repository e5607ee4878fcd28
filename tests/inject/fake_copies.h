/* Copies of the libcuda.so.1 that the process has, for fakes of libraries that compute in its
 * memory. */
#ifndef TESTS_INJECT_FAKE_COPIES_H
#define TESTS_INJECT_FAKE_COPIES_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

struct fake_copies {
    int (*out)(void *to, uint64_t from, size_t bytes, void *stream);
    int (*in)(uint64_t to, const void *from, size_t bytes, void *stream);
};

/* Looked up once into `copies`, which is zeroed before. 0: they are there. */
static inline int fake_copies_find(struct fake_copies *copies)
{
    void *driver = copies->in ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver) *(void **)&copies->out = dlsym(driver, "cuMemcpyDtoHAsync_v2");
    if (driver) *(void **)&copies->in = dlsym(driver, "cuMemcpyHtoDAsync_v2");
    return copies->in && copies->out ? 0 : 14;
}

#endif
