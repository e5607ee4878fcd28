/* Deciding whether a number is finite needs no decoding: it is a matter of exponent bits, and for
 * blocks of their scale. So this runs at the speed of memory, but for formats that it does not
 * know. */
#include "model/check.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/threads.h"
#include "model/load.h"
#include "model/rows.h"

enum { READ_BYTES = 8 << 20, WORKERS_MAX = 64 };

struct unit {
    int64_t weight, group, row, n;
};

struct findings {
    atomic_llong not_finite; /* numbers, or blocks */
    atomic_bool nonzero;
};

struct worker {
    struct row_reader *reader;
    void *buffer;
    size_t capacity;
};

struct check {
    const struct model_files *files;
    struct unit *units;
    int64_t n_units;
    struct findings *findings; /* [weights] */
    struct worker workers[WORKERS_MAX];
    atomic_size_t done;
    atomic_int status;
    pthread_mutex_t lock;
    char message[1024];
    struct progress progress;
};

/* ---- numbers ---- */

static bool any_nonzero(const unsigned char *data, size_t size)
{
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        if (word) return true;
    }
    for (; i < size; i++)
        if (data[i]) return true;
    return false;
}

static int64_t count_16(const uint16_t *values, int64_t n, uint16_t exponent)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += (values[i] & exponent) == exponent;
    return bad;
}

static int64_t count_32(const uint32_t *values, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += (values[i] & 0x7f800000u) == 0x7f800000u;
    return bad;
}

/* Blocks or elements of any other format, by what they decode to. */
static int64_t count_decoded(const struct dtype_info *info, const char *data, int64_t n)
{
    int64_t bad = 0;
    assert(info->block <= 256);
    for (int64_t b = 0; b < n; b++) {
        float values[256];
        bool finite = true;
        info->decode(data + (size_t)b * info->block_bytes, values, info->block);
        for (int64_t i = 0; i < info->block; i++) finite &= isfinite(values[i]) != 0;
        bad += !finite;
    }
    return bad;
}

/* From scale 253 on a value of 4 or 6 leaves float32; 255 is NaN. */
static int64_t count_mxfp4(const struct block_mxfp4 *blocks, int64_t n)
{
    int64_t bad = 0;
    for (int64_t b = 0; b < n; b++)
        if (blocks[b].scale >= 253)
            bad += count_decoded(dtype_info(DTYPE_MXFP4), (const char *)&blocks[b], 1);
    return bad;
}

static int64_t count_q8_0(const struct block_q8_0 *blocks, int64_t n)
{
    int64_t bad = 0;
    for (int64_t b = 0; b < n; b++) bad += (blocks[b].scale & 0x7c00) == 0x7c00;
    return bad;
}

static int64_t not_finite(enum dtype dtype, const void *data, int64_t elements)
{
    switch (dtype) {
    case DTYPE_F16:
        return count_16(data, elements, 0x7c00);
    case DTYPE_BF16:
        return count_16(data, elements, 0x7f80);
    case DTYPE_F32:
        return count_32(data, elements);
    case DTYPE_MXFP4:
        return count_mxfp4(data, elements / 32);
    case DTYPE_Q8_0:
        return count_q8_0(data, elements / 32);
    default:
        return count_decoded(dtype_info(dtype), data, elements / dtype_info(dtype)->block);
    }
}

/* ---- work ---- */

static enum sol_status check_unit(struct check *c, struct worker *worker, const struct unit *u)
{
    struct weight w = weight_at(&c->files->config, u->weight);
    const struct place *p = &c->files->places[u->weight];
    struct weight_shape shape = weight_shape(&w);
    enum dtype dtype = place_model_dtype(&w, p);
    size_t bytes = (size_t)u->n * dtype_row_bytes(dtype, shape.cols);
    if (worker->capacity < bytes) {
        pages_free(worker->buffer, worker->capacity);
        worker->capacity = 0;
        SOL_TRY(pages_alloc(bytes, &worker->buffer));
        worker->capacity = bytes;
    }
    SOL_TRY(rows_read(worker->reader, &w, p, u->group, u->row, u->n, worker->buffer));
    struct findings *f = &c->findings[u->weight];
    int64_t bad = not_finite(dtype, worker->buffer, u->n * shape.cols);
    if (bad) atomic_fetch_add(&f->not_finite, bad);
    if (!atomic_load(&f->nonzero) && any_nonzero(worker->buffer, bytes))
        atomic_store(&f->nonzero, true);
    size_t done = atomic_fetch_add(&c->done, bytes) + bytes;
    if (pthread_mutex_trylock(&c->lock) == 0) {
        progress_update(&c->progress, done >> 20);
        pthread_mutex_unlock(&c->lock);
    }
    return SOL_OK;
}

static void check_units(void *arg, int64_t begin, int64_t end, int worker)
{
    struct check *c = arg;
    for (int64_t i = begin; i < end; i++) {
        if (atomic_load(&c->status) != SOL_OK || interrupt_requested()) return;
        enum sol_status status = check_unit(c, &c->workers[worker], &c->units[i]);
        if (status == SOL_OK) continue;
        pthread_mutex_lock(&c->lock);
        snprintf(c->message, sizeof c->message, "%s", sol_last_error());
        atomic_store(&c->status, (int)status);
        pthread_mutex_unlock(&c->lock);
    }
}

static void plan_units(struct check *c)
{
    c->n_units = 0;
    for (int64_t i = 0; i < weight_count(&c->files->config); i++) {
        struct weight w = weight_at(&c->files->config, i);
        struct weight_shape shape = weight_shape(&w);
        int64_t chunk = rows_per_chunk(&w, &c->files->places[i], READ_BYTES);
        for (int64_t g = 0; g < shape.groups; g++) {
            for (int64_t r = 0; r < shape.rows; r += chunk) {
                int64_t n = shape.rows - r < chunk ? shape.rows - r : chunk;
                if (c->units) c->units[c->n_units] = (struct unit){i, g, r, n};
                c->n_units++;
            }
        }
    }
}

static enum sol_status run(struct check *c, size_t bytes)
{
    struct pool *pool;
    int threads = cpu_info()->cores < WORKERS_MAX ? cpu_info()->cores : WORKERS_MAX;
    bool mapped = strcmp(c->files->name, "builtin") == 0 || load_cached_share(c->files) > 0.9;
    enum sol_status status = SOL_OK;
    plan_units(c);
    if (c->n_units == 0) return SOL_OK;
    c->units = calloc((size_t)c->n_units, sizeof *c->units);
    c->findings = calloc((size_t)weight_count(&c->files->config), sizeof *c->findings);
    if (!c->units || !c->findings) return status_set(SOL_E_MEMORY, "no memory to check a model");
    plan_units(c);
    for (int i = 0; i < threads && status == SOL_OK; i++)
        status = row_reader_create(c->files, mapped, &c->workers[i].reader);
    SOL_TRY(status);
    SOL_TRY(pool_create(threads, &pool));
    pthread_mutex_init(&c->lock, NULL);
    progress_start(&c->progress, "checking", "MiB", bytes >> 20);
    pool_for(pool, c->n_units, 1, check_units, c);
    progress_end(&c->progress);
    pthread_mutex_destroy(&c->lock);
    pool_destroy(pool);
    status = (enum sol_status)atomic_load(&c->status);
    return status == SOL_OK ? interrupt_check() : status_set(status, "%s", c->message);
}

static void report_all(const struct check *c, check_fn report, void *arg, struct check_summary *out)
{
    for (int64_t i = 0; i < weight_count(&c->files->config); i++) {
        struct weight w = weight_at(&c->files->config, i);
        const struct findings *f = &c->findings[i];
        long long bad = atomic_load(&f->not_finite);
        char what[96];
        out->tensors++;
        if (bad) {
            bool blocks = dtype_info(place_model_dtype(&w, &c->files->places[i]))->block > 1;
            snprintf(what, sizeof what, "%lld %s not finite", bad,
                     blocks ? "blocks have a scale that is" : "numbers are");
            report(arg, w.name, true, what);
            out->faulty++;
        } else if (!w.vector && !atomic_load(&f->nonzero)) {
            report(arg, w.name, false, "all zero; is the download complete?");
            out->suspicious++;
        }
    }
}

enum sol_status model_check(const struct model_files *files, check_fn report, void *arg,
                            struct check_summary *out)
{
    *out = (struct check_summary){0};
    struct check *c = calloc(1, sizeof *c);
    if (!c) return status_set(SOL_E_MEMORY, "no memory to check a model");
    c->files = files;
    for (int64_t i = 0; i < weight_count(&files->config); i++) {
        struct weight w = weight_at(&files->config, i);
        out->bytes += place_model_bytes(&w, &files->places[i]);
    }
    enum sol_status status = run(c, out->bytes);
    if (status == SOL_OK) report_all(c, report, arg, out);
    for (int i = 0; i < WORKERS_MAX; i++) {
        row_reader_destroy(c->workers[i].reader);
        pages_free(c->workers[i].buffer, c->workers[i].capacity);
    }
    free(c->units);
    free(c->findings);
    free(c);
    return status;
}
