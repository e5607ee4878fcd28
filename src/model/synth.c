/* Synthetic weights. Drawing 13 or 63 GiB of numbers one by one would take minutes, so each (type,
 * deviation) gets a small pool of random blocks, and large tensors are filled by copying stretches
 * of it that start at random blocks: the speed of memory, on all cores. What a stretch holds
 * depends on seed, tensor and stretch only, so the same source is the same model on every machine.
 * Routers and small tensors are drawn for real.
 *
 * Deviations keep a forward pass sane: rows have a norm near 1, so that projections of a normed
 * vector have a deviation near 1, and the residual stream grows to about 10 over 36 layers. A
 * SwiGLU has a mean above zero; if the down projection's rows had a sum, that mean would become the
 * same vector for all tokens of an expert, pile up over the layers and pull all tokens to the same
 * few experts. So every MXFP4 block sums to zero. */
#include "model/synth.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/threads.h"
#include "model/architecture.h"

enum {
    POOL_BYTES = 4 << 20,     /* stays in a shared cache; long enough that rows rarely repeat */
    STRETCH_BYTES = 64 << 10, /* copied from one random start */
    POOLS_MAX = 16,
    FRESH_BYTES = 256 << 10, /* drawing less than this is quicker than making a pool for it */
    TENSOR_ALIGN = 64,
};

/* ---- source text ---- */

enum { NAMES_MAX = 16 };

/* Of all architectures; returns how many. */
static int list_names(const char *names[NAMES_MAX], void (*set[NAMES_MAX])(struct model_config *))
{
    int n = 0;
    for (int i = 0; i < architecture_count; i++)
        for (int k = 0; k < SYNTHETIC_MAX && architectures[i]->synthetic[k].name; k++, n++) {
            assert(n < NAMES_MAX);
            names[n] = architectures[i]->synthetic[k].name;
            set[n] = architectures[i]->synthetic[k].set;
        }
    return n;
}

static enum sol_status unknown_name(const char *name, const char *const *names, int n)
{
    char known[256] = "";
    const char *near = suggest_name(name, names, n);
    for (int i = 0; i < n; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s",
                 i == 0      ? ""
                 : i < n - 1 ? ", "
                             : " and ",
                 names[i]);
    }
    return status_set(SOL_E_ARGUMENT, "synth: unknown model '%s'%s%s%s (%s are known)", name,
                      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", known);
}

static enum sol_status parse_number(const char *option, const char *text, int64_t min, int64_t max,
                                    int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < min || value > max) {
        return status_set(SOL_E_ARGUMENT, "synth: %s=%s is not a number from %lld to %lld", option,
                          text, (long long)min, (long long)max);
    }
    *out = value;
    return SOL_OK;
}

static enum sol_status parse_option(const char *text, struct synth *out)
{
    int64_t seed;
    if (strncmp(text, "dense=", 6) == 0) {
        bool known = dtype_from_name(text + 6, &out->dense);
        if (known &&
            (out->dense == DTYPE_BF16 || out->dense == DTYPE_Q8_0 || out->dense == DTYPE_F32))
            return SOL_OK;
        return status_set(SOL_E_ARGUMENT, "synth: dense=%s is not one of bf16, q8_0, f32",
                          text + 6);
    }
    if (strncmp(text, "layers=", 7) == 0)
        return parse_number("layers", text + 7, 1, 1024, &out->config.n_layers);
    if (strncmp(text, "seed=", 5) == 0) {
        SOL_TRY(parse_number("seed", text + 5, 0, INT64_MAX, &seed));
        out->seed = (uint64_t)seed;
        return SOL_OK;
    }
    return status_set(SOL_E_ARGUMENT,
                      "synth: unknown option '%s' (dense, seed and layers are known)", text);
}

enum sol_status synth_parse(const char *text, struct synth *out)
{
    char copy[256], *rest = NULL;
    if (strlen(text) >= sizeof copy)
        return status_set(SOL_E_ARGUMENT, "synth: description of %zu bytes", strlen(text));
    strcpy(copy, text);
    const char *name = strtok_r(copy, ",", &rest);
    if (!name) name = "";
    *out = (struct synth){.dense = DTYPE_BF16, .seed = 1};
    const char *names[NAMES_MAX];
    void (*set[NAMES_MAX])(struct model_config *);
    int i = 0, n = list_names(names, set);
    while (i < n && strcmp(names[i], name) != 0) i++;
    if (i == n) return unknown_name(name, names, n);
    set[i](&out->config);
    for (char *option; (option = strtok_r(NULL, ",", &rest));) SOL_TRY(parse_option(option, out));
    return SOL_OK;
}

/* ---- sizes ---- */

enum dtype synth_dtype(const struct synth *synth, const struct weight *weight)
{
    if (weight->vector) return DTYPE_F32;
    if (weight->role == ROLE_EXPERT) return DTYPE_MXFP4;
    /* The published GGUF keeps the router in float32. */
    if (weight->role == ROLE_ROUTER && synth->dense == DTYPE_Q8_0) return DTYPE_F32;
    return synth->dense;
}

static size_t weight_bytes(const struct synth *synth, const struct weight *w)
{
    return (size_t)(w->groups * w->rows) * dtype_row_bytes(synth_dtype(synth, w), w->cols);
}

static size_t padded(size_t bytes)
{
    return (bytes + TENSOR_ALIGN - 1) & ~(size_t)(TENSOR_ALIGN - 1);
}

size_t synth_bytes(const struct synth *synth)
{
    size_t total = 0;
    for (int64_t i = 0; i < weight_count(&synth->config); i++) {
        struct weight w = weight_at(&synth->config, i);
        total += padded(weight_bytes(synth, &w));
    }
    return total;
}

/* ---- random blocks ---- */

struct noise {
    enum dtype dtype;
    float mean, deviation; /* of the values */
    int exponent;          /* MXFP4: middle of the scales */
};

static struct noise weight_noise(const struct synth *synth, const struct weight *w)
{
    struct noise n = {.dtype = synth_dtype(synth, w)};
    float unit = 1.0f / sqrtf((float)w->cols);
    switch (w->role) {
    case ROLE_NORM:
        n.mean = 1.0f;
        n.deviation = 0.05f;
        break;
    case ROLE_BIAS:
        n.deviation = 0.02f;
        break;
    case ROLE_SINKS:
    case ROLE_EMBED:
        n.deviation = 1.0f;
        break;
    case ROLE_HEAD:
        n.deviation = 2.0f * unit;
        break; /* logits with a deviation of 2 */
    case ROLE_DENSE:
        n.deviation = unit;
        break;
    case ROLE_ROUTER:
        n.deviation = 1.5f * unit;
        break;
    case ROLE_EXPERT: /* 2.926: deviation of the 16 e2m1 values */
        n.exponent = 127 + (int)lrintf(log2f(unit / 2.926f));
        break;
    }
    return n;
}

static void random_mxfp4(struct rng *rng, int exponent, struct block_mxfp4 *block)
{
    uint64_t bits = rng_next(rng), more = rng_next(rng);
    block->scale = (uint8_t)(exponent - 1 + (int)(more & 1) + (int)(more >> 1 & 1));
    memset(block->nibbles, 0, sizeof block->nibbles);
    for (int j = 0; j < 16; j++) { /* each value once with either sign, far apart */
        uint8_t value = (uint8_t)(bits >> 4 * j & 15);
        block->nibbles[j] |= value;
        block->nibbles[15 - j] |= (uint8_t)((value ^ 8) << 4);
    }
}

/* `bytes` (whole blocks) of fresh noise. */
static void random_blocks(struct rng *rng, const struct noise *noise, unsigned char *out,
                          size_t bytes)
{
    const struct dtype_info *info = dtype_info(noise->dtype);
    for (size_t at = 0; at + info->block_bytes <= bytes; at += info->block_bytes) {
        if (noise->dtype == DTYPE_MXFP4) {
            struct block_mxfp4 block;
            random_mxfp4(rng, noise->exponent, &block);
            memcpy(out + at, &block, sizeof block);
            continue;
        }
        float values[32];
        for (int64_t i = 0; i < info->block; i++)
            values[i] = noise->mean + noise->deviation * rng_normal(rng);
        info->encode(values, out + at, info->block);
    }
}

/* ---- filling ---- */

struct block_pool {
    struct noise noise;
    size_t blocks;
    unsigned char *data;
};

struct filler {
    const struct synth *synth;
    struct pool *threads;
    struct block_pool pools[POOLS_MAX];
    int n_pools;
};

static bool same_noise(const struct noise *a, const struct noise *b)
{
    return a->dtype == b->dtype && a->mean == b->mean && a->deviation == b->deviation &&
           a->exponent == b->exponent;
}

static enum sol_status get_pool(struct filler *f, const struct noise *noise,
                                const struct block_pool **out)
{
    for (int i = 0; i < f->n_pools; i++) {
        *out = &f->pools[i];
        if (same_noise(&f->pools[i].noise, noise)) return SOL_OK;
    }
    if (f->n_pools == POOLS_MAX)
        return status_set(SOL_E_INTERNAL, "synth: too many kinds of weights");
    struct block_pool *pool = &f->pools[f->n_pools];
    size_t block = dtype_info(noise->dtype)->block_bytes;
    pool->noise = *noise;
    pool->blocks = POOL_BYTES / block;
    pool->data = malloc(pool->blocks * block);
    if (!pool->data) return status_set(SOL_E_MEMORY, "cannot allocate %d bytes", POOL_BYTES);
    struct rng rng;
    rng_seed(&rng, f->synth->seed * 1000003u + (uint64_t)f->n_pools);
    random_blocks(&rng, noise, pool->data, pool->blocks * block);
    f->n_pools++;
    *out = pool;
    return SOL_OK;
}

struct fill_job {
    unsigned char *to;
    size_t bytes, stretch; /* whole blocks */
    size_t block;
    struct noise noise;
    const struct block_pool *pool; /* NULL: drawn afresh */
    uint64_t seed;
};

/* Stretch number `s`; returns its bytes. */
static size_t fill_stretch(const struct fill_job *job, size_t s, unsigned char *to)
{
    struct rng rng;
    rng_seed(&rng, job->seed + (uint64_t)s * 0x9e3779b97f4a7c15u);
    size_t left = job->bytes - s * job->stretch;
    size_t bytes = left < job->stretch ? left : job->stretch;
    if (job->pool) {
        int64_t last = (int64_t)(job->pool->blocks - bytes / job->block);
        memcpy(to, job->pool->data + (size_t)rng_range(&rng, 0, last) * job->block, bytes);
    } else {
        random_blocks(&rng, &job->noise, to, bytes);
    }
    return bytes;
}

static void fill_stretches(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct fill_job *job = arg;
    (void)worker;
    for (int64_t s = begin; s < end; s++)
        fill_stretch(job, (size_t)s, job->to + (size_t)s * job->stretch);
}

/* What fills weight number `index`; pools are made in the order of the weights. */
static enum sol_status make_job(struct filler *f, const struct weight *w, int64_t index,
                                struct fill_job *job)
{
    *job =
        (struct fill_job){.bytes = weight_bytes(f->synth, w), .noise = weight_noise(f->synth, w)};
    job->block = dtype_info(job->noise.dtype)->block_bytes;
    job->stretch = STRETCH_BYTES / job->block * job->block;
    job->seed = (f->synth->seed << 24 ^ (uint64_t)index) * 0xd1342543de82ef95u;
    bool fresh = w->role == ROLE_ROUTER || job->bytes <= FRESH_BYTES;
    return fresh ? SOL_OK : get_pool(f, &job->noise, &job->pool);
}

static enum sol_status fill_weight(struct filler *f, const struct weight *w, int64_t index,
                                   unsigned char *to)
{
    struct fill_job job;
    SOL_TRY(make_job(f, w, index, &job));
    job.to = to;
    int64_t stretches = (int64_t)((job.bytes + job.stretch - 1) / job.stretch);
    pool_for(f->threads, stretches, 8, fill_stretches, &job);
    return interrupt_check();
}

static enum sol_status fill_all(struct filler *f, struct model *model, unsigned char *to)
{
    struct progress progress;
    size_t done = 0;
    enum sol_status status = SOL_OK;
    progress_start(&progress, "making random weights", "MiB", synth_bytes(f->synth) >> 20);
    for (int64_t i = 0; i < weight_count(&model->config) && status == SOL_OK; i++) {
        struct weight w = weight_at(&model->config, i);
        status = fill_weight(f, &w, i, to + done);
        weight_bind(model, &w, synth_dtype(f->synth, &w), to + done);
        model->parameters += weight_elements(&w);
        model->weight_bytes += weight_bytes(f->synth, &w);
        done += padded(weight_bytes(f->synth, &w));
        progress_update(&progress, done >> 20);
    }
    progress_end(&progress);
    return status;
}

enum sol_status synth_fill(const struct synth *synth, struct model *model, void **pages)
{
    size_t bytes = synth_bytes(synth), available = memory_available();
    *pages = NULL;
    if (available && bytes > available) {
        return status_set(SOL_E_MEMORY,
                          "the synthetic model needs %.1f GiB and %.1f GiB are free; dense=q8_0 or "
                          "layers=N makes it smaller",
                          (double)bytes / (1 << 30), (double)available / (1 << 30));
    }
    struct filler f = {.synth = synth};
    SOL_TRY(pages_alloc(bytes, pages));
    enum sol_status status = pool_create(cpu_info()->cores, &f.threads);
    if (status == SOL_OK) status = fill_all(&f, model, *pages);
    pool_destroy(f.threads);
    for (int i = 0; i < f.n_pools; i++) free(f.pools[i].data);
    return status;
}

/* ---- piece by piece ---- */

struct synth_stream {
    struct synth synth;
    struct filler filler;
    struct fill_job *jobs; /* [weights] */
};

enum sol_status synth_stream_create(const struct synth *synth, struct synth_stream **out)
{
    int64_t count = weight_count(&synth->config);
    *out = NULL;
    struct synth_stream *stream = calloc(1, sizeof *stream);
    struct fill_job *jobs = calloc((size_t)count, sizeof *jobs);
    if (!stream || !jobs) {
        free(stream);
        free(jobs);
        return status_set(SOL_E_MEMORY, "no memory for the plan of a synthetic model");
    }
    stream->synth = *synth;
    stream->filler.synth = &stream->synth;
    stream->jobs = jobs;
    enum sol_status status = SOL_OK;
    for (int64_t i = 0; i < count && status == SOL_OK; i++) {
        struct weight w = weight_at(&synth->config, i);
        status = make_job(&stream->filler, &w, i, &jobs[i]);
    }
    if (status != SOL_OK) {
        synth_stream_destroy(stream);
        return status;
    }
    *out = stream;
    return SOL_OK;
}

void synth_stream_destroy(struct synth_stream *stream)
{
    if (!stream) return;
    for (int i = 0; i < stream->filler.n_pools; i++) free(stream->filler.pools[i].data);
    free(stream->jobs);
    free(stream);
}

enum sol_status synth_stream_read(const struct synth_stream *stream, int64_t index, size_t offset,
                                  size_t size, void *dst)
{
    const struct fill_job *job = &stream->jobs[index];
    unsigned char *to = dst, *stretch = NULL; /* a whole one, where a part is wanted */
    while (size) {
        size_t s = offset / job->stretch, skip = offset % job->stretch;
        size_t left = job->bytes - s * job->stretch;
        size_t length = left < job->stretch ? left : job->stretch;
        size_t take = length - skip < size ? length - skip : size;
        if (take == length) {
            fill_stretch(job, s, to);
        } else {
            if (!stretch) stretch = malloc(STRETCH_BYTES);
            if (!stretch) return status_set(SOL_E_MEMORY, "no memory for random weights");
            fill_stretch(job, s, stretch);
            memcpy(to, stretch + skip, take);
        }
        to += take;
        offset += take;
        size -= take;
    }
    free(stretch);
    return SOL_OK;
}
