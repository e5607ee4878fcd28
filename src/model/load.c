/* Three ways, chosen by what the files are:
 *   mapped     GGUF whose tensors need no conversion and are in the page cache: used where they are
 *   image      the same from disk: the file's data, byte for byte, into huge pages. Each piece
 *              keeps its offset modulo the page, so that direct reads go straight into place
 *   converted  everything else: rows are read in pieces and written in their final layout
 * Reading past the page cache matters: a mapping is filled by page faults of one thread, at a third
 * of the disk's speed or less, and leaves the cache full of what is never used again. */
#include "model/load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/threads.h"
#include "model/rows.h"

enum {
    READ_BYTES = 8 << 20, /* one read, or the source of one conversion */
    READERS_MIN = 4,      /* reads in flight, also where there are fewer cores */
    READERS_MAX = 16,
    TENSOR_ALIGN = 64,
    SAMPLES = 512, /* pages asked for whether they are in the cache */
};
static const double mostly_cached = 0.9;

/* ---- work shared by the threads of one load ---- */

struct load {
    const struct model_files *files;
    struct model *model;
    struct row_reader *readers[READERS_MAX]; /* converted */
    struct unit *units;
    int64_t n_units;
    unsigned char **to; /* [weights]: final place of each */
    const char **where; /* [files]: image + offset gives the tensor (image) */
    int *fds;           /* [files] (image) */
    struct progress progress;
    atomic_size_t done;
    atomic_int status;    /* of the first thread that failed */
    pthread_mutex_t lock; /* progress and message */
    char message[1024];
};

/* Rows of one weight, and of the one that alternates with it (gate and up), or bytes of a file. */
struct unit {
    int64_t weights[2]; /* second -1: none; image: first is the file */
    int64_t group, row, n;
    size_t offset, bytes; /* image: in the file; bytes also for progress */
};

static void fail(struct load *l, enum sol_status status)
{
    pthread_mutex_lock(&l->lock);
    if (atomic_load(&l->status) == SOL_OK) {
        snprintf(l->message, sizeof l->message, "%s", sol_last_error());
        atomic_store(&l->status, (int)status);
    }
    pthread_mutex_unlock(&l->lock);
}

static void advance(struct load *l, size_t bytes)
{
    size_t done = atomic_fetch_add(&l->done, bytes) + bytes;
    if (pthread_mutex_trylock(&l->lock) != 0) return;
    progress_update(&l->progress, done >> 20);
    pthread_mutex_unlock(&l->lock);
}

static bool stopped(const struct load *l)
{
    return atomic_load(&l->status) != SOL_OK || interrupt_requested();
}

/* Runs fn over the units with enough threads to keep a disk busy. */
static enum sol_status run_units(struct load *l, size_t total, pool_fn fn)
{
    struct pool *pool;
    int threads = cpu_info()->cores;
    threads = threads < READERS_MIN ? READERS_MIN : threads > READERS_MAX ? READERS_MAX : threads;
    SOL_TRY(pool_create(threads, &pool));
    pthread_mutex_init(&l->lock, NULL);
    progress_start(&l->progress, "loading weights", "MiB", total >> 20);
    pool_for(pool, l->n_units, 1, fn, l);
    progress_end(&l->progress);
    pthread_mutex_destroy(&l->lock);
    pool_destroy(pool);
    enum sol_status status = (enum sol_status)atomic_load(&l->status);
    if (status != SOL_OK) return status_set(status, "%s", l->message);
    return interrupt_check();
}

/* What is needed is said before anything is read, and refused when it is not there. */
static enum sol_status check_room(const struct model_files *files,
                                  const struct model_params *params, size_t weights)
{
    const double gib = 1 << 30;
    size_t available = memory_available(), needed;
    if (!size_add(weights, params->reserve, &needed)) needed = SIZE_MAX;
    LOG_INFO("%s: %.2f GiB of weights, %.2f GiB for cache and buffers, %.2f GiB free", files->name,
             (double)weights / gib, (double)params->reserve / gib, (double)available / gib);
    if (!available || needed <= available) return SOL_OK;
    return status_set(SOL_E_MEMORY,
                      "%s needs %.2f GiB (weights %.2f, cache and buffers %.2f) and %.2f GiB are "
                      "free; lower the context or the batch%s",
                      files->name, (double)needed / gib, (double)weights / gib,
                      (double)params->reserve / gib, (double)available / gib,
                      files->gguf ? ", or run from disk with --load map" : "");
}

/* ---- in place: mapped, or as an image ---- */

static bool all_final(const struct model_files *files)
{
    if (!files->gguf) return false;
    for (int64_t i = 0; i < weight_count(&files->config); i++) {
        struct weight w = weight_at(&files->config, i);
        if (!w.vector && !place_is_final(&w, &files->places[i])) return false;
    }
    return true;
}

/* Binds every weight to where[file] + its offset; vectors of another type than float32 are
 * converted from the mapping. */
static enum sol_status bind_in_place(const struct model_files *files, const char *const *where,
                                     struct arena *arena, struct model *model)
{
    struct row_reader *reader;
    enum sol_status status = row_reader_create(files, true, &reader);
    for (int64_t i = 0; status == SOL_OK && i < weight_count(&files->config); i++) {
        struct weight w = weight_at(&files->config, i);
        const struct place *p = &files->places[i];
        const void *data =
            where[p->data.file] + p->data.offset + (size_t)p->first * place_row_bytes(&w, p);
        if (!place_is_final(&w, p)) {
            float *copy = ARENA_NEW(arena, float, weight_elements(&w));
            struct weight_shape shape = weight_shape(&w);
            if (!copy) status = SOL_E_MEMORY;
            for (int64_t g = 0; g < shape.groups && status == SOL_OK; g++)
                status = rows_read(reader, &w, p, g, 0, shape.rows, copy + g * shape.rows);
            data = copy;
        }
        weight_bind(model, &w, place_model_dtype(&w, p), data);
        model->weight_bytes += place_model_bytes(&w, p);
        model->parameters += weight_elements(&w);
    }
    row_reader_destroy(reader);
    return status;
}

static enum sol_status load_mapped(const struct model_files *files, struct arena *arena,
                                   struct model *model)
{
    int n_files = model_files_count(files);
    const char **where = ARENA_NEW(arena, const char *, n_files);
    size_t total = 0, available = memory_available();
    if (!where) return SOL_E_MEMORY;
    for (int f = 0; f < n_files; f++) {
        where[f] = model_files_data(files, f);
        total += model_files_size(files, f);
    }
    if (available && total > available) {
        LOG_WARN("%s: %.1f GiB, but only %.1f GiB of memory are free: weights will be read from "
                 "disk again and again",
                 files->name, (double)total / (1 << 30), (double)available / (1 << 30));
    }
    return bind_in_place(files, where, arena, model);
}

static void read_image_units(void *arg, int64_t begin, int64_t end, int worker)
{
    struct load *l = arg;
    (void)worker;
    for (int64_t i = begin; i < end && !stopped(l); i++) {
        const struct unit *u = &l->units[i];
        int file = (int)u->weights[0];
        size_t left = model_files_size(l->files, file) - u->offset;
        enum sol_status status = direct_read(l->fds[file], model_files_name(l->files, file),
                                             u->offset, u->bytes, u->bytes < left ? u->bytes : left,
                                             (char *)(uintptr_t)l->where[file] + u->offset);
        if (status != SOL_OK) fail(l, status);
        advance(l, u->bytes);
    }
}

/* From the first byte of a tensor to the last one's end, in whole DIRECT_ALIGNs. */
static void file_extent(const struct model_files *files, int file, size_t *begin, size_t *end)
{
    *begin = SIZE_MAX;
    *end = 0;
    for (int64_t i = 0; i < weight_count(&files->config); i++) {
        const struct span *s = &files->places[i].data;
        if (s->file != file) continue;
        if (s->offset < *begin) *begin = s->offset;
        if (s->offset + s->size > *end) *end = s->offset + s->size;
    }
    if (*end == 0) *begin = 0;
    *begin &= ~(size_t)(DIRECT_ALIGN - 1);
    *end = (*end + DIRECT_ALIGN - 1) & ~(size_t)(DIRECT_ALIGN - 1);
}

static enum sol_status plan_image(struct load *l, struct arena *arena, size_t total,
                                  unsigned char *pages)
{
    int n_files = model_files_count(l->files);
    l->units = ARENA_NEW(arena, struct unit, total / READ_BYTES + (size_t)n_files);
    if (!l->units) return SOL_E_MEMORY;
    for (int f = 0; f < n_files; f++) {
        size_t begin, end;
        file_extent(l->files, f, &begin, &end);
        l->where[f] = (const char *)((uintptr_t)pages - begin);
        pages += end - begin;
        for (size_t at = begin; at < end; at += READ_BYTES)
            l->units[l->n_units++] =
                (struct unit){.weights = {f, -1},
                              .offset = at,
                              .bytes = end - at < READ_BYTES ? end - at : READ_BYTES};
    }
    return SOL_OK;
}

static enum sol_status load_image(const struct model_files *files,
                                  const struct model_params *params, struct arena *arena,
                                  struct model *model, void **pages, size_t *size)
{
    struct load l = {.files = files, .model = model};
    int n_files = model_files_count(files), opened = 0;
    for (int f = 0; f < n_files; f++) {
        size_t begin, end;
        file_extent(files, f, &begin, &end);
        *size += end - begin;
    }
    l.where = ARENA_NEW(arena, const char *, n_files);
    l.fds = ARENA_NEW(arena, int, n_files);
    if (!l.where || !l.fds) return SOL_E_MEMORY;
    SOL_TRY(check_room(files, params, *size));
    SOL_TRY(pages_alloc(*size, pages));
    SOL_TRY(plan_image(&l, arena, *size, *pages));
    enum sol_status status = SOL_OK;
    while (status == SOL_OK && opened < n_files) {
        status = direct_open(model_files_name(files, opened), &l.fds[opened]);
        if (status == SOL_OK) opened++;
    }
    if (status == SOL_OK) status = run_units(&l, *size, read_image_units);
    while (opened > 0) close(l.fds[--opened]);
    if (status == SOL_OK) status = bind_in_place(files, l.where, arena, model);
    return status;
}

/* ---- converted ---- */

static void convert_units(void *arg, int64_t begin, int64_t end, int worker)
{
    struct load *l = arg;
    const struct model_files *files = l->files;
    for (int64_t i = begin; i < end && !stopped(l); i++) {
        const struct unit *u = &l->units[i];
        for (int k = 0; k < 2 && u->weights[k] >= 0; k++) {
            struct weight w = weight_at(&files->config, u->weights[k]);
            const struct place *p = &files->places[u->weights[k]];
            struct weight_shape shape = weight_shape(&w);
            size_t row = dtype_row_bytes(place_model_dtype(&w, p), shape.cols);
            unsigned char *to =
                l->to[u->weights[k]] + (size_t)(u->group * shape.rows + u->row) * row;
            enum sol_status status =
                rows_read(l->readers[worker], &w, p, u->group, u->row, u->n, to);
            if (status != SOL_OK) fail(l, status);
        }
        advance(l, u->bytes);
    }
}

/* Counts, or with l->units writes, the units of all weights. */
static void plan_units(struct load *l)
{
    const struct model_files *files = l->files;
    l->n_units = 0;
    for (int64_t i = 0; i < weight_count(&files->config); i++) {
        struct weight w = weight_at(&files->config, i);
        const struct place *p = &files->places[i];
        struct weight_shape shape = weight_shape(&w);
        int64_t other = rows_partner(files, i), chunk = rows_per_chunk(&w, p, READ_BYTES);
        if (p->step == 2 && p->first == 1) continue; /* comes with its partner */
        for (int64_t g = 0; g < shape.groups; g++) {
            for (int64_t row = 0; row < shape.rows; row += chunk) {
                int64_t n = shape.rows - row < chunk ? shape.rows - row : chunk;
                size_t bytes = (size_t)n * dtype_row_bytes(place_model_dtype(&w, p), shape.cols);
                if (l->units)
                    l->units[l->n_units] = (struct unit){.weights = {i, other},
                                                         .group = g,
                                                         .row = row,
                                                         .n = n,
                                                         .bytes = other < 0 ? bytes : 2 * bytes};
                l->n_units++;
            }
        }
    }
}

static enum sol_status place_converted(struct load *l, struct arena *arena, size_t *size)
{
    int64_t count = weight_count(&l->files->config);
    size_t *offsets = ARENA_NEW(arena, size_t, count);
    l->to = ARENA_NEW(arena, unsigned char *, count);
    if (!offsets || !l->to) return SOL_E_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        struct weight w = weight_at(&l->files->config, i);
        size_t bytes = place_model_bytes(&w, &l->files->places[i]);
        *size += (bytes + TENSOR_ALIGN - 1) & ~(size_t)(TENSOR_ALIGN - 1);
        l->model->weight_bytes += bytes;
        l->model->parameters += weight_elements(&w);
    }
    plan_units(l);
    l->units = ARENA_NEW(arena, struct unit, l->n_units);
    if (!l->units) return SOL_E_MEMORY;
    plan_units(l);
    return SOL_OK;
}

static enum sol_status load_converted(const struct model_files *files,
                                      const struct model_params *params, bool mapped,
                                      struct arena *arena, struct model *model, void **pages,
                                      size_t *size)
{
    struct load l = {.files = files, .model = model};
    SOL_TRY(place_converted(&l, arena, size));
    SOL_TRY(check_room(files, params, *size));
    SOL_TRY(pages_alloc(*size, pages));
    unsigned char *at = *pages;
    for (int64_t i = 0; i < weight_count(&files->config); i++) {
        struct weight w = weight_at(&files->config, i);
        const struct place *p = &files->places[i];
        l.to[i] = at;
        at += (place_model_bytes(&w, p) + TENSOR_ALIGN - 1) & ~(size_t)(TENSOR_ALIGN - 1);
        weight_bind(model, &w, place_model_dtype(&w, p), l.to[i]);
    }
    enum sol_status status = SOL_OK;
    for (int r = 0; r < READERS_MAX && status == SOL_OK; r++)
        status = row_reader_create(files, mapped, &l.readers[r]);
    if (status == SOL_OK) status = run_units(&l, *size, convert_units);
    for (int r = 0; r < READERS_MAX; r++) row_reader_destroy(l.readers[r]);
    return status;
}

/* ---- choice ---- */

double load_cached_share(const struct model_files *files)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), cached = 0, asked = 0;
    for (int f = 0; f < model_files_count(files); f++) {
        size_t pages = model_files_size(files, f) / page;
        size_t step = pages / SAMPLES + 1;
        char *data = (char *)(uintptr_t)model_files_data(files, f);
        for (size_t i = step / 2; i < pages; i += step) {
            unsigned char resident;
            if (mincore(data + i * page, page, &resident) != 0) break;
            asked += step; /* samples of a large part count for more pages */
            cached += resident & 1 ? step : 0;
        }
    }
    return asked ? (double)cached / (double)asked : 1.0;
}

bool load_is_mapped(const struct model_files *files, const struct model_params *params)
{
    bool memory = files->gguf && strcmp(files->name, "builtin") == 0; /* part of the program */
    return memory || params->load == MODEL_LOAD_MAP ||
           (params->load == MODEL_LOAD_AUTO && load_cached_share(files) >= mostly_cached);
}

enum sol_status load_weights(const struct model_files *files, const struct model_params *params,
                             struct arena *arena, struct model *model, void **pages, size_t *size)
{
    bool mapped = load_is_mapped(files, params);
    *pages = NULL;
    *size = 0;
    if (!all_final(files)) return load_converted(files, params, mapped, arena, model, pages, size);
    if (mapped) return load_mapped(files, arena, model);
    return load_image(files, params, arena, model, pages, size);
}
