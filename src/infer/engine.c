/* The engine: its life, its memory, and what it is asked. engine_step.c feeds rows through it. */
#include "infer/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/rng.h"
#include "gpu/device.h"
#include "infer/engine_private.h"
#include "infer/fit.h"
#include "model/upload.h"

/* ---- memory ---- */

static enum sol_status take_memory(struct engine *e)
{
    size_t size = e->buffers.size;
    if (e->gpu) {
        SOL_TRY(gpu_alloc(e->gpu, "cache and buffers", size, &e->memory));
        SOL_TRY(gpu_alloc_pinned(e->gpu, e->buffers.pinned, &e->pinned));
        return gpu_zero(e->context.stream, e->memory, size);
    }
    size_t available = memory_available();
    if (available && size > available)
        return status_set(
            SOL_E_MEMORY,
            "context %lld for %lld sequences needs %.1f GiB beyond the model, %.1f GiB are free; "
            "lower the context or the number of sequences",
            (long long)e->params.context, (long long)e->params.sequences, (double)size / (1 << 30),
            (double)available / (1 << 30));
    return pages_alloc(size, &e->memory);
}

/* On a GPU steps are written on the host's side, where each array has room for any, and sent. */
static enum sol_status point_batches(struct engine *e)
{
    const struct buffers *b = &e->buffers;
    const int64_t most = e->params.max_batch;
    const struct step_parts here = buffers_step_parts(b, b->host.step, most, 0);
    const struct step_parts there = buffers_step_parts(b, b->step, most, 0);
    engine_point_batch(&e->host, &here);
    engine_point_batch(&e->batch, &there);
    if (!e->gpu) return SOL_OK;
    e->batch.host = &e->host;
    e->offsets = calloc((size_t)e->model->config.n_experts + 1, sizeof *e->offsets);
    buffers_set_offsets(&e->buffers, e->offsets);
    e->banned = calloc(((size_t)e->model->config.vocab + 31) / 32, sizeof *e->banned);
    return e->offsets && e->banned ? SOL_OK
                                   : status_set(SOL_E_MEMORY, "no memory for the engine's tables");
}

static enum sol_status allocate_snapshots(struct engine *e)
{
    size_t n = (size_t)e->params.snapshots, pages = (size_t)e->buffers.sequence_pages;
    if (!n) return SOL_OK;
    e->snapshots = calloc(n, sizeof *e->snapshots);
    e->kept_pages = calloc(n * pages, sizeof *e->kept_pages);
    if (!e->snapshots || !e->kept_pages)
        return status_set(SOL_E_MEMORY, "no memory for the tables of %zu snapshots", n);
    for (size_t i = 0; i < n; i++) e->snapshots[i].pages = e->kept_pages + i * pages;
    return SOL_OK;
}

static enum sol_status allocate(struct engine *e)
{
    struct buffers *b = &e->buffers;
    SOL_TRY(buffers_describe(&e->model->config, &e->params, b));
    SOL_TRY(fit_scratch(e->model, b));
    SOL_TRY(kv_pages_init(&e->pages, e->params.sequences, b->sequence_pages, b->n_pages));
    e->position = calloc((size_t)e->params.sequences, sizeof *e->position);
    e->length = calloc((size_t)e->params.sequences, sizeof *e->length);
    e->last = calloc((size_t)e->params.sequences, sizeof *e->last);
    e->oldest = calloc((size_t)e->params.sequences, sizeof *e->oldest);
    e->drawing = calloc((size_t)e->params.max_outputs, sizeof *e->drawing);
    e->fetched = calloc((size_t)e->params.max_outputs, sizeof *e->fetched);
    if (!e->position || !e->length || !e->last || !e->oldest || !e->drawing || !e->fetched)
        return status_set(SOL_E_MEMORY, "no memory for the engine's tables");
    SOL_TRY(allocate_snapshots(e));
    SOL_TRY(take_memory(e));
    buffers_place(b, e->memory, e->pinned);
    e->pages.table = b->host.page_table;
    return point_batches(e);
}

/* Frequencies are worked out here and lie where the ops read them. */
static enum sol_status set_frequencies(struct engine *e)
{
    const struct model_config *c = &e->model->config;
    struct forward_buffers *at = &e->buffers.at;
    if (!e->gpu) {
        model_rope_frequencies(c, e->params.rounded_rope, at->inv_freq, &at->rope_scale);
        return SOL_OK;
    }
    size_t bytes = (size_t)c->head_dim / 2 * sizeof(float);
    float *values = malloc(bytes);
    if (!values) return status_set(SOL_E_MEMORY, "no memory for frequencies");
    model_rope_frequencies(c, e->params.rounded_rope, values, &at->rope_scale);
    enum sol_status status = gpu_copy_in(e->context.stream, at->inv_freq, values, bytes);
    if (status == SOL_OK) status = gpu_wait(e->context.stream);
    free(values);
    return status;
}

/* ---- life ---- */

void engine_params_init(struct engine_params *params)
{
    *params = (struct engine_params){.context = 4096,
                                     .sequences = 1,
                                     .max_batch = ENGINE_BATCH_CPU,
                                     .max_outputs = 1,
                                     .kv_dtype = DTYPE_F16};
    chooser_init(&params->chooser, cpu_info()->cores);
}

static enum sol_status check_params(const struct model *model, const struct engine_params *p)
{
    if (p->context < 1 || p->sequences < 1 || p->max_batch < 1 || p->max_outputs < 1 ||
        p->threads < 0 || p->cache_positions < 0 || p->max_run < 0)
        return status_set(SOL_E_ARGUMENT, "context, sequences, batch and outputs must be positive");
    if (p->snapshots < 0 || p->snapshots > INT32_MAX)
        return status_set(SOL_E_ARGUMENT, "%lld snapshots; 0 to 2^31 - 1 are possible",
                          (long long)p->snapshots);
    if (p->context > model->config.context)
        return status_set(SOL_E_ARGUMENT,
                          "context %lld is longer than the %lld positions that %s was made for",
                          (long long)p->context, (long long)model->config.context, model->name);
    if (p->n_features && (p->team || model->config.ranks))
        return status_set(SOL_E_UNSUPPORTED,
                          "what layers find is kept where one device has the whole model, not "
                          "where several share it");
    if (p->kv_dtype != DTYPE_F32 && p->kv_dtype != DTYPE_F16 && p->kv_dtype != DTYPE_BF16)
        return status_set(SOL_E_ARGUMENT, "the cache is kept in f32, f16 or bf16, not in %s",
                          dtype_info(p->kv_dtype)->name);
    return SOL_OK;
}

void engine_params_settle(struct engine_params *p)
{
    if (p->max_batch > p->context * p->sequences) p->max_batch = p->context * p->sequences;
    if (p->max_outputs > p->max_batch) p->max_outputs = p->max_batch;
    /* Rings of windows have room for a run, in every sequence. */
    if (!p->max_run && p->sequences > 1) p->max_run = ENGINE_BATCH_MANY;
    if (!p->max_run || p->max_run > p->max_batch) p->max_run = p->max_batch;
    if (!p->threads) p->threads = cpu_info()->cores;
    p->chooser.device.workers = p->threads;
}

static enum sol_status open_stream(struct engine *e)
{
    if (!e->params.stream) SOL_TRY(gpu_stream_create(e->gpu, &e->own_stream));
    e->context.stream = e->params.stream ? e->params.stream : e->own_stream;
    return SOL_OK;
}

static enum sol_status upload(struct engine *e)
{
    e->model = e->params.team ? e->model : e->params.uploaded;
    if (e->model) return SOL_OK;
    e->model = e->original;
    SOL_TRY(fit_upload(e->original, &e->params, &e->uploaded));
    e->model = e->uploaded;
    return SOL_OK;
}

static enum sol_status create(const struct model *model, const struct engine_params *params,
                              int rank, struct engine **out)
{
    struct team *team = params->team;
    *out = NULL;
    struct engine *e = calloc(1, sizeof *e);
    if (!e) return status_set(SOL_E_MEMORY, "no memory for an engine");
    e->ahead.turn = ENGINE_NO_TURN;
    e->original = model;
    e->model = team ? team_model(team, rank) : model;
    e->rank = rank;
    e->params = *params;
    e->gpu = params->chooser.device.gpu;
    if (team) e->context.communicator = team_communicator(team, rank);
    engine_params_settle(&e->params);
    enum sol_status status = pool_create(e->params.threads, &e->context.pool);
    if (status != SOL_OK) goto fail;
    e->params.chooser.device.workers = pool_size(e->context.pool);
    if (e->gpu) status = upload(e);
    if (status == SOL_OK && e->gpu) status = open_stream(e);
    if (status == SOL_OK) status = allocate(e);
    if (status == SOL_OK) status = set_frequencies(e);
    if (status == SOL_OK && e->gpu) status = engine_turns_create(e);
    if (status != SOL_OK) goto fail;
    *out = e;
    return SOL_OK;
fail:
    engine_destroy(e);
    return status;
}

/* Of all ranks: the caller's is the first. */
struct creation {
    const struct model *model;
    const struct engine_params *params;
    struct engine **engines;
};

static enum sol_status create_rank(void *arg, int rank)
{
    const struct creation *c = arg;
    struct engine_params own = *c->params;
    const int ranks = team_size(own.team);
    own.chooser.device.gpu = team_gpu(own.team, rank);
    if (!own.threads) own.threads = cpu_info()->cores / ranks;
    if (!own.threads) own.threads = 1;
    if (rank) own.stream = NULL;
    return create(c->model, &own, rank, &c->engines[rank]);
}

static void destroy(struct engine *e);

static enum sol_status create_all(const struct model *model, const struct engine_params *params,
                                  struct engine **out)
{
    const int ranks = team_size(params->team);
    struct engine **engines = calloc((size_t)ranks, sizeof(struct engine *));
    struct creation c = {model, params, engines};
    if (!engines) return status_set(SOL_E_MEMORY, "no memory for an engine");
    const enum sol_status status = team_run(params->team, create_rank, &c);
    if (status == SOL_OK) {
        *out = engines[0];
        engines[0]->ranks = engines;
        return SOL_OK;
    }
    for (int r = 0; r < ranks; r++) destroy(engines[r]);
    free(engines);
    return status;
}

enum sol_status engine_create(const struct model *model, const struct engine_params *params,
                              struct engine **out)
{
    *out = NULL;
    SOL_TRY(check_params(model, params));
    return params->team ? create_all(model, params, out) : create(model, params, 0, out);
}

static void destroy(struct engine *e)
{
    if (!e) return;
    if (e->gpu && e->context.stream) gpu_settle(e->context.stream);
    engine_drop_plans(&e->plans);
    if (e->gpu) {
        engine_turns_destroy(e);
        gpu_free(e->gpu, e->memory);
        gpu_free_pinned(e->gpu, e->pinned);
        model_upload_destroy(e->uploaded, e->gpu);
        gpu_stream_destroy(e->own_stream);
    } else {
        pages_free(e->memory, e->buffers.size);
    }
    kv_pages_free(&e->pages);
    free(e->kept_pages);
    free(e->snapshots);
    free(e->drawing);
    free(e->fetched);
    free(e->banned);
    free(e->offsets);
    free(e->oldest);
    free(e->last);
    free(e->length);
    free(e->position);
    buffers_free(&e->buffers);
    pool_destroy(e->context.pool);
    free(e);
}

void engine_destroy(struct engine *e)
{
    if (!e) return;
    struct engine **ranks = e->ranks;
    for (int r = engine_count(e) - 1; r > 0; r--) destroy(ranks[r]);
    destroy(e);
    free(ranks);
}

/* ---- state ---- */

int64_t engine_position(const struct engine *e, int32_t sequence)
{
    return e->position[sequence];
}

void engine_forget(struct engine *e, int32_t sequence)
{
    engine_forget_ahead(e);
    e->position[sequence] = e->oldest[sequence] = 0;
    kv_pages_hold(&e->pages, sequence, 0);
}

void engine_reset(struct engine *e, int32_t sequence)
{
    for (int r = 0; r < engine_count(e); r++) engine_forget(engine_of(e, r), sequence);
}

int64_t engine_free_positions(const struct engine *e)
{
    return e->pages.n_free * KV_PAGE;
}

int64_t engine_possible_positions(const struct engine *e)
{
    return (e->pages.n_pages - e->pages.n_in_sequences) * KV_PAGE;
}

static enum sol_status pretend(struct engine *e, int32_t sequence, int64_t position)
{
    if (position < 0 || position > e->params.context)
        return status_set(SOL_E_ARGUMENT, "depth %lld is outside the context of %lld",
                          (long long)position, (long long)e->params.context);
    /* Who goes back must not write where somebody else reads. */
    if (kv_pages_shared(&e->pages, sequence)) engine_forget(e, sequence);
    int64_t missing = kv_pages_missing(&e->pages, sequence, position);
    if (missing > e->pages.n_free) return engine_no_pages(e, missing);
    engine_forget_ahead(e);
    e->position[sequence] = e->oldest[sequence] = position;
    e->last[sequence] = 0;
    kv_pages_hold(&e->pages, sequence, position);
    return SOL_OK;
}

enum sol_status engine_pretend(struct engine *e, int32_t sequence, int64_t position)
{
    enum sol_status status = SOL_OK;
    for (int r = 0; r < engine_count(e) && status == SOL_OK; r++)
        status = pretend(engine_of(e, r), sequence, position);
    return status;
}

const struct model *engine_model(const struct engine *e)
{
    return e->original;
}

const struct model *engine_weights(const struct engine *e)
{
    return e->model;
}

void engine_set_features(struct engine *e, engine_features_fn fn, void *arg)
{
    assert(e->params.n_features || !fn);
    engine_forget_ahead(e);
    e->on_features = fn;
    e->features_arg = arg;
}

const struct engine_params *engine_params_of(const struct engine *e)
{
    return &e->params;
}

struct pool *engine_pool(struct engine *e)
{
    return e->context.pool;
}

const struct op_context *engine_context(const struct engine *e)
{
    return &e->context;
}

const struct plan *engine_last_plan(const struct engine *e)
{
    return e->plans ? e->plans->plan : NULL;
}

const struct plan *engine_rank_plan(struct engine *e, int rank)
{
    return engine_last_plan(engine_of(e, rank));
}

int64_t engine_plans_made(const struct engine *e)
{
    return e->plans_made;
}

static void set_timed(struct engine *e, bool timed)
{
    engine_forget_ahead(e);
    e->timed = timed;
    for (struct cached_plan *p = e->plans; p; p = p->next) plan_reset_times(p->plan);
}

void engine_set_timed(struct engine *e, bool timed)
{
    for (int r = 0; r < engine_count(e); r++) set_timed(engine_of(e, r), timed);
}

void engine_memory_parts(const struct engine *e, struct engine_parts *out)
{
    *out = buffers_parts(&e->buffers);
}

size_t engine_parts_total(const struct engine_parts *parts)
{
    return parts->cache + parts->buffers + parts->scratch;
}

size_t engine_memory(const struct engine *e)
{
    struct engine_parts parts;
    engine_memory_parts(e, &parts);
    return engine_parts_total(&parts);
}

int64_t engine_layers(const struct engine *e)
{
    return e->model->config.n_layers;
}

/* ---- a cache that looks used ---- */

/* The first block comes from the host, then what is there is doubled. */
static enum sol_status fill_on_gpu(struct engine *e, void *data, size_t bytes, const void *block,
                                   size_t size)
{
    size_t done = bytes < size ? bytes : size;
    SOL_TRY(gpu_copy_in(e->context.stream, data, block, done));
    while (done < bytes) {
        size_t piece = bytes - done < done ? bytes - done : done;
        SOL_TRY(gpu_copy_on(e->context.stream, (char *)data + done, data, piece));
        done += piece;
    }
    return SOL_OK;
}

static enum sol_status fill(struct engine *e, void *data, size_t bytes, const void *block,
                            size_t size)
{
    if (e->gpu) return fill_on_gpu(e, data, bytes, block, size);
    for (size_t at = 0; at < bytes; at += size)
        memcpy((char *)data + at, block, bytes - at < size ? bytes - at : size);
    return SOL_OK;
}

static enum sol_status fill_cache(struct engine *e)
{
    enum { COUNT = 4096, SEED = 1234 };
    struct rng rng;
    const struct dtype_info *type = dtype_info(e->params.kv_dtype);
    enum sol_status status = SOL_OK;
    float *values = calloc(2 * COUNT, sizeof *values);
    if (!values) return status_set(SOL_E_MEMORY, "no memory to fill the cache");
    void *encoded = &values[COUNT];
    rng_seed(&rng, SEED);
    for (int i = 0; i < COUNT; i++) values[i] = 0.5f * rng_normal(&rng);
    type->encode(values, encoded, COUNT);
    size_t size = COUNT * type->block_bytes;
    for (int64_t n = 0; n < e->model->config.n_layers && status == SOL_OK; n++) {
        const struct kv_layer *kv = &e->buffers.at.kv[n];
        size_t bytes = (size_t)kv_elements(kv) * type->block_bytes;
        status = fill(e, kv->k, bytes, encoded, size);
        if (status == SOL_OK) status = fill(e, kv->v, bytes, encoded, size);
    }
    if (status == SOL_OK && e->gpu) status = gpu_wait(e->context.stream);
    free(values);
    return status;
}

enum sol_status engine_fill_cache(struct engine *e)
{
    enum sol_status status = SOL_OK;
    engine_forget_ahead(e);
    for (int r = 0; r < engine_count(e) && status == SOL_OK; r++)
        status = fill_cache(engine_of(e, r));
    return status;
}

/* Of ranks whose layers nobody looks at: they stop where the first does, or between their own. */
static void look_away(void *arg, int layer, const float *x, int64_t rows)
{
    (void)arg;
    (void)layer;
    (void)x;
    (void)rows;
}

void engine_set_trace(struct engine *e, engine_trace_fn fn, void *arg)
{
    for (int r = 1; r < engine_count(e); r++) engine_of(e, r)->trace = fn ? look_away : NULL;
    engine_forget_ahead(e);
    e->trace = fn;
    e->trace_arg = arg;
}
