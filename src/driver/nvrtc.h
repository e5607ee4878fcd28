/* NVIDIA's run-time compiler: CUDA C++ source to machine code for one architecture. */
#ifndef DRIVER_NVRTC_H
#define DRIVER_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct nvrtc_header {
    const char *name, *text; /* as #include "name" finds it */
};

/* Compiles `text`, called `name` in messages, for sm_<arch> ("90a"). *cubin is malloc'ed, *size its
 * bytes. SOL_E_UNSUPPORTED without the library; SOL_E_FORMAT with the compiler's messages when the
 * source is wrong. */
enum sol_status nvrtc_compile(const char *name, const char *text, const char *arch,
                              const struct nvrtc_header *headers, int n_headers, void **cubin,
                              size_t *size);
/* From now on with little optimisation, where the library knows such: for tests that ask whether
 * sources compile. */
void nvrtc_be_quick(bool quick);

#endif
