/* NVIDIA's run-time compiler: CUDA C++ source to machine code for one architecture. */
#ifndef DRIVER_NVRTC_H
#define DRIVER_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct nvrtc_header {
    const char *name, *text; /* as #include "name" finds it */
};

/* Compiles `text`, called `name` in messages, for sm_<arch> ("90a"). `quick`: with little
 * optimisation, where the library knows such; for who wants to know whether it compiles. *cubin is
 * malloc'ed, *size its bytes. SOL_E_UNSUPPORTED without the library; SOL_E_FORMAT with the
 * compiler's messages when the source is wrong. */
enum sol_status nvrtc_compile(const char *name, const char *text, const char *arch,
                              const struct nvrtc_header *headers, int n_headers, bool quick,
                              void **cubin, size_t *size);

#endif
