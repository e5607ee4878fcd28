#include "gpu/grouped_matmul.h"

#include "driver/cublas.h"
#include "gpu/gpu_private.h"

bool gpu_grouped_matmul_usable(const char **why)
{
    return cublas_load(why) != NULL;
}

static enum sol_status check(int result, const char *what)
{
    return cublas_status("cuBLAS", result, what);
}

void gpu_grouped_matmul_close(const struct gpu *gpu)
{
    if (gpu->cublas) cublas_load(NULL)->destroy(gpu->cublas);
}

/* The workspace behind the stream, which takes it away. */
static enum sol_status start(struct gpu_stream *stream, void *workspace)
{
    const char *why;
    struct gpu *gpu = stream->gpu;
    const struct cublas_api *api = cublas_load(&why);
    if (!api) return status_set(SOL_E_UNSUPPORTED, "%s", why);
    if (!gpu->cublas) {
        void *handle;
        SOL_TRY(check(api->create(&handle), "starting"));
        gpu->cublas = handle;
    }
    SOL_TRY(check(api->set_stream(gpu->cublas, stream->handle), "naming the stream"));
    return check(api->set_workspace(gpu->cublas, workspace, GPU_MATMUL_WORKSPACE),
                 "naming the workspace");
}

/* The library sees columns first, as in matmul.c: its A is W, read transposed, its B is X, and what
 * it calls m is our n. A group of the library has one product. */
static enum sol_status multiply(struct gpu_stream *stream, const struct gpu_grouped_matmul *p)
{
    int w_transposed[GPU_MATMULS_MAX], x_plain[GPU_MATMULS_MAX], sizes[GPU_MATMULS_MAX];
    float one[GPU_MATMULS_MAX], zero[GPU_MATMULS_MAX];
    const struct gpu *gpu = stream->gpu;
    SOL_TRY(cuda_status(gpu->cuda, gpu_enter(gpu), "multiplying groups"));
    SOL_TRY(start(stream, p->workspace));
    for (int i = 0; i < p->count; i++) {
        w_transposed[i] = CUBLAS_TRANSPOSE, x_plain[i] = CUBLAS_PLAIN;
        sizes[i] = 1, one[i] = 1, zero[i] = 0;
    }
    return check(cublas_load(NULL)->multiply_groups(
                     gpu->cublas, w_transposed, x_plain, p->n, p->m, p->k, one, p->w,
                     CUBLAS_TYPE_F16, p->k, p->x, CUBLAS_TYPE_F16, p->k, zero, p->c,
                     CUBLAS_TYPE_F16, p->n, p->count, sizes, CUBLAS_COMPUTE_F32),
                 "multiplying groups");
}

void gpu_put_grouped_matmul(struct gpu_stream *stream, const struct gpu_grouped_matmul *products)
{
    if (stream->put_status != SOL_OK) return;
    pthread_mutex_lock(&stream->gpu->lock);
    enum sol_status status = gpu_watch_before(stream);
    if (status == SOL_OK) status = multiply(stream, products);
    if (status == SOL_OK) status = gpu_watch_behind(stream, "cuBLAS");
    stream->kernels += status == SOL_OK && !stream->capturing;
    gpu_keep(stream, status);
    pthread_mutex_unlock(&stream->gpu->lock);
}
