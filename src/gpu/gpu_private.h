/* What the files of src/gpu share. */
#ifndef GPU_GPU_PRIVATE_H
#define GPU_GPU_PRIVATE_H

#include "driver/cuda.h"
#include "gpu/device.h"
#include "gpu/kernel.h"

struct gpu_allocation {
    void *memory;
    size_t bytes;
    char name[48];
};

struct gpu_module {
    const struct gpu_image *image;
    cuda_module handle;
    bool compiled_here;
    char source_hash[17];
    struct gpu_module *next;
};

struct gpu_kernel {
    struct gpu *gpu;
    const struct gpu_module *module;
    const char *name;
    cuda_function handle;
    struct gpu_kernel_info info;
    struct gpu_kernel *next;
};

struct gpu {
    const struct cuda_api *cuda;
    struct gpu_info info;
    cuda_device device;
    cuda_context context;             /* NULL until retained */
    cuda_stream first_stream, stream; /* stream: what is used now, the first or a further one */
    bool capturing;
    enum sol_status put_status; /* of the first gpu_put that failed; its message beside it */
    char put_message[512];
    struct gpu_allocation *allocations;
    size_t n_allocations, capacity, used, peak;
    struct gpu_module *modules;
    struct gpu_kernel *kernels;
    char *sources;               /* folder, or NULL */
    struct gpu_matmuls *matmuls; /* of matmul.c; NULL until used */
};

/* Passes an error of the driver on, with the call's purpose: GPU_TRY(gpu, gpu->cuda->..., "what").
 */
#define GPU_TRY(gpu, call, what) SOL_TRY(cuda_status((gpu)->cuda, (call), (what)))

static inline cuda_address gpu_address(const void *memory)
{
    return (cuda_address)(uintptr_t)memory;
}

void gpu_modules_unload(struct gpu *gpu);
void gpu_matmuls_destroy(struct gpu_matmuls *all); /* takes NULL */

#endif
