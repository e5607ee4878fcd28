/* One allocation holds all weights. Copies go from where the model has them, also straight from a
 * mapped file: the driver reads it in pieces on its way. */
#include "model/upload.h"

#include <stdlib.h>

#include "base/interrupt.h"
#include "base/progress.h"
#include "base/status.h"
#include "model/weights.h"
#include "ops/cuda/pack_cuda.h"

enum { ALIGN = 256 };

struct upload {
    struct model model; /* first: callers hold its address */
    void *memory;
    struct layer_weights layers[];
};

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static const char *field_of(const struct model *model, const struct weight *w)
{
    const char *base = w->layer < 0 ? (const char *)model : (const char *)&model->layers[w->layer];
    return base + w->offset;
}

static size_t uploaded_bytes(const struct model *model, const struct weight *w)
{
    return w->vector ? (size_t)weight_elements(w) * sizeof(float)
                     : tensor_packed_bytes((const struct tensor *)field_of(model, w));
}

static size_t total_bytes(const struct model *model)
{
    size_t total = 0;
    for (int64_t i = 0; i < weight_count(&model->config); i++) {
        struct weight w = weight_at(&model->config, i);
        total += padded(uploaded_bytes(model, &w));
    }
    return total;
}

static enum sol_status check_room(const struct model *model, struct gpu *gpu, size_t weights,
                                  size_t reserve)
{
    const double gib = 1 << 30;
    size_t available;
    SOL_TRY(gpu_memory_free(gpu, &available));
    if (weights <= available && reserve <= available - weights) return SOL_OK;
    return status_set(
        SOL_E_MEMORY,
        "%s needs %.2f GiB (weights %.2f, cache and buffers %.2f) and %s has %.2f GiB "
        "free; lower the context or the batch, or run on the CPU",
        model->name, (double)(weights + reserve) / gib, (double)weights / gib,
        (double)reserve / gib, gpu_info(gpu)->name, (double)available / gib);
}

static enum sol_status copy_one(const struct model *model, const struct weight *w, struct gpu *gpu,
                                void *to, void *staging, struct model *copy)
{
    const char *from = field_of(model, w);
    if (w->vector) {
        weight_bind(copy, w, DTYPE_F32, to);
        return gpu_copy_in(gpu, to, *(const float *const *)from, uploaded_bytes(model, w));
    }
    return tensor_pack(gpu, (const struct tensor *)from, to, staging,
                       (struct tensor *)(uintptr_t)field_of(copy, w));
}

static enum sol_status copy_all(const struct model *model, struct gpu *gpu, char *at, size_t total,
                                struct model *copy)
{
    struct progress progress;
    size_t done = 0;
    void *staging;
    SOL_TRY(gpu_alloc(gpu, "staging of weights", PACK_STAGING, &staging));
    progress_start(&progress, "copying weights", "MiB", total >> 20);
    enum sol_status status = SOL_OK;
    for (int64_t i = 0; status == SOL_OK && i < weight_count(&model->config); i++) {
        struct weight w = weight_at(&model->config, i);
        size_t bytes = padded(uploaded_bytes(model, &w));
        status = copy_one(model, &w, gpu, at + done, staging, copy);
        if (status == SOL_OK) status = interrupt_check();
        done += bytes;
        progress_update(&progress, done >> 20);
    }
    progress_end(&progress);
    enum sol_status waited = gpu_wait(gpu);
    gpu_free(gpu, staging);
    return status == SOL_OK ? waited : status;
}

enum sol_status model_upload(const struct model *model, struct gpu *gpu, size_t reserve,
                             struct model **out)
{
    *out = NULL;
    size_t total = total_bytes(model);
    SOL_TRY(check_room(model, gpu, total, reserve));
    struct upload *up = calloc(1, sizeof *up + (size_t)model->config.n_layers * sizeof *up->layers);
    if (!up) return status_set(SOL_E_MEMORY, "no memory for a model's tables");
    up->model = *model;
    up->model.layers = up->layers;
    up->model.source = NULL; /* the original's */
    enum sol_status status = gpu_alloc(gpu, "weights", total, &up->memory);
    if (status == SOL_OK) status = copy_all(model, gpu, up->memory, total, &up->model);
    if (status == SOL_OK)
        *out = &up->model;
    else
        model_upload_destroy(&up->model, gpu);
    return status;
}

void model_upload_destroy(struct model *uploaded, struct gpu *gpu)
{
    if (!uploaded) return;
    struct upload *up = (struct upload *)uploaded;
    gpu_free(gpu, up->memory);
    free(up);
}
