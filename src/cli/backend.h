/* --backend: where the ops run. */
#ifndef CLI_BACKEND_H
#define CLI_BACKEND_H

#include "gpu/device.h"

#define BACKEND_HELP                                                                               \
    "cpu (default), cuda, cuda:N for the N-th GPU, or auto: a GPU where there is one"

#define KERNEL_SOURCE_HELP                                                                         \
    "on a GPU: compile kernels with NVRTC from this folder, laid out as sol's kernels/, where it " \
    "has the file"

/* `name` and `kernel_source` may be NULL. *out is NULL for the CPU, else to be given to gpu_close.
 */
enum sol_status backend_open(const char *name, const char *kernel_source, struct gpu **out);

#endif
