/* One allocation holds all weights but those used in place. They arrive in pieces
 * (model/upload_pipe.h), each copied into its place or, where kernels want another layout, behind a
 * staging buffer and packed from there.
 */
#include "model/upload.h"

#include <stdlib.h>

#include "base/status.h"
#include "model/upload_pipe.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/plan.h"

enum {
    ALIGN = 256,
    PIECE_BYTES = 4 << 20, /* a copy of this size runs at the bus's speed */
};

struct upload {
    struct model model; /* first: callers hold its address */
    const struct model *from;
    void *memory;  /* NULL: an outline */
    size_t bytes;  /* of it */
    size_t *place; /* [weights] of each in `memory` */
    bool *skip;    /* [weights] it is used where it is */
    char *staging;
    size_t staging_bytes; /* of one lane */
    struct layer_weights layers[];
};

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t uploaded_bytes(const struct model *model, const struct weight *w)
{
    return w->vector ? (size_t)weight_elements(w) * sizeof(float)
                     : tensor_packed_bytes(weight_field(model, w));
}

/* Held by the host, for the device to read there. Kernels load 16 bytes at a time. */
static bool used_in_place(const struct model *model, const struct weight *w, struct gpu *gpu)
{
    const struct tensor *t = weight_field(model, w);
    const void *data = w->vector ? *(const float *const *)weight_field(model, w) : t->data;
    return gpu_shares_memory(gpu_info(gpu)) && data && (uintptr_t)data % 16 == 0 &&
           (w->vector || !tensor_is_repacked(t));
}

static struct tensor *tensor_of(struct upload *up, const struct weight *w)
{
    return (struct tensor *)(uintptr_t)weight_field(&up->model, w);
}

/* Where every weight will be, `memory` being where all begins. */
static void bind(struct upload *up, char *memory)
{
    up->bytes = 0;
    for (int64_t i = 0; i < weight_count(&up->from->config); i++) {
        struct weight w = weight_at(&up->from->config, i);
        const struct tensor *t = weight_field(up->from, &w);
        if (up->skip[i]) {
            if (!w.vector)
                *tensor_of(up, &w) = *t;
            else
                weight_bind(&up->model, &w, DTYPE_F32,
                            *(const float *const *)weight_field(up->from, &w));
            continue;
        }
        up->place[i] = up->bytes;
        if (w.vector)
            weight_bind(&up->model, &w, DTYPE_F32, memory + up->bytes);
        else
            *tensor_of(up, &w) = tensor_packed(t, memory + up->bytes);
        up->bytes += padded(uploaded_bytes(up->from, &w));
    }
}

/* ---- outline ---- */

enum sol_status model_upload_outline(const struct model *model, struct gpu *gpu, struct model **out)
{
    *out = NULL;
    size_t count = (size_t)weight_count(&model->config);
    struct upload *up = calloc(1, sizeof *up + (size_t)model->config.n_layers * sizeof *up->layers);
    if (up) up->place = calloc(count, sizeof *up->place);
    if (up) up->skip = calloc(count, sizeof *up->skip);
    if (!up || !up->place || !up->skip) {
        model_upload_destroy(&up->model, gpu);
        return status_set(SOL_E_MEMORY, "no memory for a model's tables");
    }
    up->model = *model;
    up->model.layers = up->layers;
    up->model.source = NULL; /* the original's */
    up->from = model;
    for (size_t i = 0; i < count; i++) {
        struct weight w = weight_at(&model->config, (int64_t)i);
        up->skip[i] = used_in_place(model, &w, gpu);
    }
    bind(up, plan_nowhere);
    *out = &up->model;
    return SOL_OK;
}

size_t model_upload_bytes(const struct model *outline)
{
    return gpu_memory_size(((const struct upload *)outline)->bytes);
}

enum sol_status model_upload_check(const struct model *outline, struct gpu *gpu, size_t *available)
{
    const double gib = 1 << 30;
    size_t weights = model_upload_bytes(outline);
    SOL_TRY(gpu_memory_free(gpu, available));
    if (weights <= *available) return SOL_OK;
    return status_set(SOL_E_MEMORY,
                      "%s needs %.2f GiB for its weights and %s has %.2f GiB free; run it on "
                      "the CPU (--backend cpu)",
                      outline->name, (double)weights / gib, gpu_info(gpu)->name,
                      (double)*available / gib);
}

/* ---- loading ---- */

static enum sol_status submit(void *arg, const struct weight_piece *piece, const void *data,
                              struct gpu_stream *stream, int lane)
{
    const struct upload *up = arg;
    for (int k = 0; k < 2 && piece->weights[k] >= 0; k++) {
        struct weight w = weight_at(&up->from->config, piece->weights[k]);
        char *to = (char *)up->memory + up->place[piece->weights[k]];
        const char *rows = (const char *)data + (size_t)k * piece->bytes;
        if (w.vector)
            SOL_TRY(gpu_copy_in(stream, to, rows, piece->bytes));
        else
            SOL_TRY(tensor_pack_piece(stream, weight_field(up->from, &w), piece->group, piece->row,
                                      piece->n, rows, to,
                                      up->staging + (size_t)lane * up->staging_bytes));
    }
    return SOL_OK;
}

/* Both weights of a piece lie in one buffer, and are packed one after the other. */
static size_t largest_piece(const struct weight_piece *pieces, int64_t count, size_t *buffer)
{
    size_t largest = 0;
    *buffer = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t both = pieces[i].bytes * (pieces[i].weights[1] < 0 ? 1 : 2);
        if (pieces[i].bytes > largest) largest = pieces[i].bytes;
        if (both > *buffer) *buffer = both;
    }
    return padded(largest);
}

static enum sol_status load_pieces(struct upload *up, struct gpu *gpu)
{
    struct weight_source *source;
    const struct weight_piece *pieces;
    int64_t count;
    size_t buffer;
    void *staging;
    int threads = upload_pipe_threads((int64_t)(up->from->weight_bytes / PIECE_BYTES));
    SOL_TRY(weight_source_open(up->from, threads, &source));
    enum sol_status status =
        weight_source_pieces(source, PIECE_BYTES, PACK_ROWS, up->skip, &pieces, &count);
    if (status == SOL_OK) {
        up->staging_bytes = largest_piece(pieces, count, &buffer);
        status = gpu_alloc(gpu, "staging of weights", UPLOAD_LANES * up->staging_bytes, &staging);
    }
    if (status == SOL_OK) {
        up->staging = staging;
        status = upload_pipe_run(gpu, source, threads, pieces, count, padded(buffer), submit, up);
        gpu_free(gpu, staging);
    }
    weight_source_close(source);
    return status;
}

enum sol_status model_upload_load(struct model *outline, struct gpu *gpu)
{
    struct upload *up = (struct upload *)outline;
    size_t available;
    SOL_TRY(model_upload_check(outline, gpu, &available));
    SOL_TRY(gpu_alloc(gpu, "weights", up->bytes, &up->memory));
    bind(up, up->memory);
    return load_pieces(up, gpu);
}

enum sol_status model_upload(const struct model *model, struct gpu *gpu, struct model **out)
{
    SOL_TRY(model_upload_outline(model, gpu, out));
    enum sol_status status = model_upload_load(*out, gpu);
    if (status == SOL_OK) return SOL_OK;
    model_upload_destroy(*out, gpu);
    *out = NULL;
    return status;
}

void model_upload_destroy(struct model *uploaded, struct gpu *gpu)
{
    if (!uploaded) return;
    struct upload *up = (struct upload *)uploaded;
    gpu_free(gpu, up->memory);
    free(up->place);
    free(up->skip);
    free(up);
}
