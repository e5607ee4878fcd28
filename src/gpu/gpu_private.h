/* What the files of src/gpu share. */
#ifndef GPU_GPU_PRIVATE_H
#define GPU_GPU_PRIVATE_H

#include <pthread.h>

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
    uint64_t number; /* no other handle of the process has or had it; not 0 */
    cuda_device device;
    cuda_context context; /* NULL until retained */
    char *sources;        /* folder, or NULL */
    char *proven;         /* of gpu_set_proven, or NULL */
    pthread_mutex_t lock; /* guards what follows */
    struct gpu_allocation *allocations;
    size_t n_allocations, capacity, used, peak;
    struct gpu_module *modules;
    struct gpu_kernel *kernels;
    struct gpu_matmuls *matmuls;       /* of matmul.c; NULL until used */
    void *cublas;                      /* the library's handle, of grouped_matmul.c; likewise */
    struct gpu_attentions *attentions; /* of attention.c; likewise */
    struct gpu_ranks *ranks;           /* that it is one's of; NULL: alone. Of collective.c */
};

struct gpu_stream {
    struct gpu *gpu;
    cuda_stream handle;
    uint32_t *counters; /* device memory */
    cuda_event turn;    /* of one that runs beside another: who waits for whom */
    bool capturing;
    int64_t kernels;            /* launched; not those of a graph that is being made */
    bool guest;                 /* handle and counters are somebody else's (guest.h) */
    bool rehearsing;            /* kernels are found, not launched */
    struct gpu_watch *watch;    /* NULL: nobody looks */
    enum sol_status put_status; /* of the first gpu_put that failed; its message beside it */
    char put_message[512];
};

/* Makes the context of `gpu` this thread's where it is not. */
cuda_result gpu_enter(const struct gpu *gpu);
/* The thread gets another context than gpu_enter made current. */
void gpu_forget_entered(void);

/* A call of the driver in the context of `gpu`, whose error is passed on with the call's purpose:
 * GPU_TRY(gpu, memory_info(&bytes, &total), "what"). */
#define GPU_TRY(gpu, call, what)                                                                   \
    do {                                                                                           \
        cuda_result result_ = gpu_enter(gpu);                                                      \
        if (result_ == CUDA_OK) result_ = (gpu)->cuda->call;                                       \
        SOL_TRY(cuda_status((gpu)->cuda, result_, (what)));                                        \
    } while (0)
/* One that gives something back: it is made whatever fails, and nobody hears of it. */
#define GPU_GIVE(gpu, call) ((void)gpu_enter(gpu), (void)(gpu)->cuda->call)

static inline cuda_address gpu_address(const void *memory)
{
    return (cuda_address)(uintptr_t)memory;
}

/* Keeps a failure of what was put on the stream, for gpu_wait. */
void gpu_keep(struct gpu_stream *stream, enum sol_status status);
/* On either side of what is put on the stream, for who looks (watch.h). */
enum sol_status gpu_watch_before(struct gpu_stream *stream);
enum sol_status gpu_watch_behind(struct gpu_stream *stream, const char *name);
/* gpu_wait of a GPU of several ranks. */
enum sol_status gpu_ranks_wait(struct gpu_ranks *ranks, struct gpu_stream *stream);
/* Of gpu_close, in the context of `gpu`. */
void gpu_modules_unload(struct gpu *gpu);
void gpu_matmuls_destroy(struct gpu_matmuls *all); /* takes NULL */
void gpu_grouped_matmul_close(const struct gpu *gpu);
void gpu_attentions_destroy(struct gpu_attentions *all); /* takes NULL */

#endif
