/* One allocation holds all weights but those used in place. They arrive in pieces
 * (model/upload_pipe.h), each copied into its place or, where kernels want another layout, behind a
 * staging buffer and packed from there.
 */
#include "model/upload.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/progress.h"
#include "base/status.h"
#include "model/upload_pipe.h"
#include "ops/cuda/pack_cuda.h"

enum {
    ALIGN = 256,
    PIECE_BYTES = 4 << 20, /* a copy of this size runs at the bus's speed */
};
static const double gib = 1 << 30;
/* From this size on loading takes long enough to be told what it is about. */
static const size_t worth_a_note = (size_t)4 << 30;

struct upload {
    struct model model; /* first: callers hold its address */
    void *memory;
    struct layer_weights layers[];
};

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static const void *field_of(const struct model *model, const struct weight *w)
{
    const char *base = w->layer < 0 ? (const char *)model : (const char *)&model->layers[w->layer];
    return base + w->offset;
}

static size_t uploaded_bytes(const struct model *model, const struct weight *w)
{
    return w->vector ? (size_t)weight_elements(w) * sizeof(float)
                     : tensor_packed_bytes(field_of(model, w));
}

/* Held by the host, for the device to read there. Kernels load 16 bytes at a time. */
static bool used_in_place(const struct model *model, const struct weight *w, struct gpu *gpu)
{
    const struct tensor *t = field_of(model, w);
    const void *data = w->vector ? *(const float *const *)field_of(model, w) : t->data;
    return gpu_shares_memory(gpu_info(gpu)) && data && (uintptr_t)data % 16 == 0 &&
           (w->vector || !tensor_is_repacked(t));
}

static void bind_in_place(const struct model *model, const struct weight *w, struct model *to)
{
    const struct tensor *t = field_of(model, w);
    if (w->vector)
        weight_bind(to, w, DTYPE_F32, *(const float *const *)field_of(model, w));
    else
        weight_bind(to, w, t->dtype, t->data);
}

/* ---- room ---- */

static bool fits(const struct model *model, const struct fit_params *run, size_t room,
                 struct fit *fit)
{
    fit_compute(&model->config, 0, run, fit);
    return fit->total + fit->scratch <= room; /* plans with and without output, each its scratch */
}

/* What would fit, one thing changed at a time. `room` is what weights leave. */
static void suggest(const struct model *model, const struct fit_params *run, size_t room,
                    char *text, size_t size)
{
    struct fit_params fewer = *run, narrower = *run, shorter = *run;
    struct fit fit;
    size_t at = 0;
    text[0] = '\0';
    while (fewer.sequences > 0 && !fits(model, &fewer, room, &fit)) fewer.sequences--;
    while (narrower.batch > 0 && !fits(model, &narrower, room, &fit)) narrower.batch /= 2;
    while (shorter.context > 0 && !fits(model, &shorter, room, &fit))
        shorter.context -= shorter.context > 4096 ? 1024 : 64;
    const struct {
        int64_t value;
        const char *before, *after;
    } ways[] = {{narrower.batch, "steps of", " tokens"},
                {shorter.context, "a context of", ""},
                {fewer.sequences, "", " sequences at a time"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].value <= 0) continue;
        at += (size_t)snprintf(text + at, size - at, "%s%s%s%lld%s",
                               at ? ", or " : "it would with ", ways[i].before,
                               *ways[i].before ? " " : "", (long long)ways[i].value, ways[i].after);
    }
}

/* `told`: says the figures where it takes long. */
static enum sol_status check_room(const struct model *model, struct gpu *gpu, size_t weights,
                                  const struct fit_params *run, bool told)
{
    struct fit fit = {0};
    char advice[160];
    size_t available;
    const char *device = gpu_info(gpu)->name;
    SOL_TRY(gpu_memory_free(gpu, &available));
    size_t room = available > weights ? available - weights : 0;
    bool good = weights <= available && (!run || fits(model, run, room, &fit));
    size_t buffers = fit.buffers + 2 * fit.scratch, needed = weights + fit.cache + buffers;
    if (good) {
        if (told && weights >= worth_a_note)
            progress_note("%s: weights %.2f GiB, cache %.2f, buffers %.2f; %s has %.2f GiB free",
                          model->name, (double)weights / gib, (double)fit.cache / gib,
                          (double)buffers / gib, device, (double)available / gib);
        return SOL_OK;
    }
    if (weights > available || !run)
        return status_set(SOL_E_MEMORY,
                          "%s needs %.2f GiB for its weights and %s has %.2f GiB free; run it on "
                          "the CPU (--backend cpu)",
                          model->name, (double)weights / gib, device, (double)available / gib);
    suggest(model, run, room, advice, sizeof advice);
    return status_set(
        SOL_E_MEMORY,
        "%s does not fit: %.2f GiB (weights %.2f, cache %.2f, buffers %.2f), and %s has "
        "%.2f GiB free; %s%sthe CPU may have room (--backend cpu)",
        model->name, (double)needed / gib, (double)weights / gib, (double)fit.cache / gib,
        (double)buffers / gib, device, (double)available / gib, advice, *advice ? "; " : "");
}

/* ---- loading ---- */

struct loading {
    const struct model *from;
    struct model *to;
    struct gpu *gpu;
    size_t *place; /* [weights] of each in `memory` */
    bool *skip;    /* [weights] it is used where it is */
    char *memory, *staging;
    size_t staging_bytes; /* of one lane */
};

static enum sol_status submit(void *arg, const struct weight_piece *piece, const void *data,
                              int lane)
{
    struct loading *l = arg;
    for (int k = 0; k < 2 && piece->weights[k] >= 0; k++) {
        struct weight w = weight_at(&l->from->config, piece->weights[k]);
        char *to = l->memory + l->place[piece->weights[k]];
        const char *rows = (const char *)data + (size_t)k * piece->bytes;
        if (w.vector) {
            weight_bind(l->to, &w, DTYPE_F32, to);
            SOL_TRY(gpu_copy_in(l->gpu, to, rows, piece->bytes));
        } else {
            SOL_TRY(tensor_pack_piece(l->gpu, field_of(l->from, &w), piece->group, piece->row,
                                      piece->n, rows, to,
                                      l->staging + (size_t)lane * l->staging_bytes,
                                      (struct tensor *)(uintptr_t)field_of(l->to, &w)));
        }
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

static enum sol_status load_pieces(struct loading *l)
{
    struct weight_source *source;
    const struct weight_piece *pieces;
    int64_t count;
    size_t buffer;
    void *staging;
    int threads = upload_pipe_threads((int64_t)(l->from->weight_bytes / PIECE_BYTES));
    SOL_TRY(weight_source_open(l->from, threads, &source));
    enum sol_status status =
        weight_source_pieces(source, PIECE_BYTES, PACK_ROWS, l->skip, &pieces, &count);
    if (status == SOL_OK) {
        l->staging_bytes = largest_piece(pieces, count, &buffer);
        status = gpu_alloc(l->gpu, "staging of weights", UPLOAD_LANES * l->staging_bytes, &staging);
    }
    if (status == SOL_OK) {
        l->staging = staging;
        status = upload_pipe_run(l->gpu, source, threads, pieces, count, padded(buffer), submit, l);
        gpu_free(l->gpu, staging);
    }
    weight_source_close(source);
    return status;
}

/* Bytes that must be given; where each weight will be among them, with `l`. */
static size_t lay_out(const struct model *model, struct gpu *gpu, struct loading *l)
{
    size_t total = 0;
    for (int64_t i = 0; i < weight_count(&model->config); i++) {
        struct weight w = weight_at(&model->config, i);
        bool skip = used_in_place(model, &w, gpu);
        if (l) l->skip[i] = skip;
        if (l) l->place[i] = total;
        if (l && skip) bind_in_place(model, &w, l->to);
        if (!skip) total += padded(uploaded_bytes(model, &w));
    }
    return total;
}

enum sol_status model_upload_check(const struct model *model, struct gpu *gpu,
                                   const struct fit_params *run)
{
    return check_room(model, gpu, lay_out(model, gpu, NULL), run, false);
}

static enum sol_status load(const struct model *model, struct gpu *gpu,
                            const struct fit_params *run, struct upload *up)
{
    size_t count = (size_t)weight_count(&model->config);
    struct loading l = {.from = model, .to = &up->model, .gpu = gpu};
    l.place = calloc(count, sizeof *l.place);
    l.skip = calloc(count, sizeof *l.skip);
    enum sol_status status = SOL_OK;
    if (!l.place || !l.skip) status = status_set(SOL_E_MEMORY, "no memory for a model's tables");
    size_t total = status == SOL_OK ? lay_out(model, gpu, &l) : 0;
    if (status == SOL_OK) status = check_room(model, gpu, total, run, true);
    if (status == SOL_OK) status = gpu_alloc(gpu, "weights", total, &up->memory);
    l.memory = up->memory;
    if (status == SOL_OK) status = load_pieces(&l);
    free(l.place);
    free(l.skip);
    return status;
}

static enum sol_status make_tables(const struct model *model, struct upload **out)
{
    struct upload *up = calloc(1, sizeof *up + (size_t)model->config.n_layers * sizeof *up->layers);
    *out = up;
    if (!up) return status_set(SOL_E_MEMORY, "no memory for a model's tables");
    up->model = *model;
    up->model.layers = up->layers;
    up->model.source = NULL; /* the original's */
    return SOL_OK;
}

enum sol_status model_upload_outline(const struct model *model, struct gpu *gpu, struct model **out)
{
    struct upload *up;
    char *at = (char *)(uintptr_t)ALIGN;
    *out = NULL;
    SOL_TRY(make_tables(model, &up));
    for (int64_t i = 0; i < weight_count(&model->config); i++) {
        struct weight w = weight_at(&model->config, i);
        if (used_in_place(model, &w, gpu))
            bind_in_place(model, &w, &up->model);
        else if (w.vector)
            weight_bind(&up->model, &w, DTYPE_F32, at);
        else
            *(struct tensor *)(uintptr_t)field_of(&up->model, &w) =
                tensor_packed(field_of(model, &w), at);
        at += padded(uploaded_bytes(model, &w));
    }
    *out = &up->model;
    return SOL_OK;
}

enum sol_status model_upload(const struct model *model, struct gpu *gpu,
                             const struct fit_params *run, struct model **out)
{
    struct upload *up;
    *out = NULL;
    SOL_TRY(make_tables(model, &up));
    enum sol_status status = load(model, gpu, run, up);
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
