/* One allocation holds all weights. Copies go from where the model has them, also straight from a
 * mapped file: the driver reads it in pieces on its way. */
#include "model/upload.h"

#include <stdlib.h>

#include "base/interrupt.h"
#include "base/progress.h"
#include "base/status.h"
#include "model/weights.h"

enum { ALIGN = 256 };

struct upload {
    struct model model; /* first: callers hold its address */
    void *memory;
    struct layer_weights layers[];
};

static const size_t piece = (size_t)64 << 20; /* between two looks at Ctrl-C */

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Where the original has a weight, and as what. */
static const void *source_of(const struct model *model, const struct weight *w, enum dtype *dtype,
                             size_t *bytes)
{
    const char *base = w->layer < 0 ? (const char *)model : (const char *)&model->layers[w->layer];
    if (w->vector) {
        *dtype = DTYPE_F32;
        *bytes = (size_t)weight_elements(w) * sizeof(float);
        return *(const float *const *)(base + w->offset);
    }
    const struct tensor *t = (const struct tensor *)(base + w->offset);
    *dtype = t->dtype;
    *bytes = tensor_bytes(t);
    return t->data;
}

static size_t total_bytes(const struct model *model)
{
    size_t total = 0;
    for (int64_t i = 0; i < weight_count(&model->config); i++) {
        enum dtype dtype;
        size_t bytes;
        struct weight w = weight_at(&model->config, i);
        source_of(model, &w, &dtype, &bytes);
        total += padded(bytes);
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

static enum sol_status copy_all(const struct model *model, struct gpu *gpu, char *at, size_t total,
                                struct model *copy)
{
    struct progress progress;
    size_t done = 0;
    enum sol_status status = SOL_OK;
    progress_start(&progress, "copying weights", "MiB", total >> 20);
    for (int64_t i = 0; status == SOL_OK && i < weight_count(&model->config); i++) {
        enum dtype dtype;
        size_t bytes;
        struct weight w = weight_at(&model->config, i);
        const char *from = source_of(model, &w, &dtype, &bytes);
        for (size_t b = 0; status == SOL_OK && b < bytes; b += piece) {
            status = gpu_copy_in(gpu, at + b, from + b, bytes - b < piece ? bytes - b : piece);
            if (status == SOL_OK) status = interrupt_check();
        }
        weight_bind(copy, &w, dtype, at);
        at += padded(bytes);
        done += padded(bytes);
        progress_update(&progress, done >> 20);
    }
    progress_end(&progress);
    return status == SOL_OK ? gpu_wait(gpu) : status;
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
