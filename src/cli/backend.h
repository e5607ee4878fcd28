/* --backend: where the ops run. */
#ifndef CLI_BACKEND_H
#define CLI_BACKEND_H

#include "gpu/device.h"

#define BACKEND_HELP                                                                               \
    "cpu (default), cuda, cuda:N for the N-th GPU, or auto: a GPU where there is one that can"

#define KERNEL_SOURCE_HELP                                                                         \
    "on a GPU: compile kernels with NVRTC from this folder, laid out as sol's kernels/, where it " \
    "has the file"

/* `name` and `kernel_source` may be NULL. *out is NULL for the CPU, else to be given to gpu_close.
 * `trusted`: only a GPU whose kernels are known to compute rightly (check/verdict.h). With auto, a
 * GPU that cannot be used is said on stderr, and the CPU computes. */
enum sol_status backend_open(const char *name, const char *kernel_source, bool trusted,
                             struct gpu **out);

bool backend_is_auto(const char *name); /* may be NULL */

#endif
