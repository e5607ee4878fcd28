/* Where the ops run, by name: --backend, and the C API's. */
#ifndef CHECK_BACKEND_H
#define CHECK_BACKEND_H

#include "gpu/device.h"
#include "infer/fit.h"

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

/* With auto, a GPU without room for the model and an engine like `run` on it is given up: it is
 * closed, *gpu is NULL then, and stderr says why. Other names, and no GPU: nothing happens. */
void backend_fit(const char *name, const struct model *model, const struct engine_params *run,
                 struct gpu **gpu);

#endif
