/* The engine: memory, plans, and the loop that feeds rows through them.
 *
 * A plan is made for each shape of a step that occurs, and kept: prefill chunks and decode steps
 * repeat the same few. All share buffers and scratch.
 */
#include "infer/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/rng.h"
#include "gpu/device.h"
#include "infer/engine_private.h"
#include "infer/finite.h"
#include "infer/fit.h"
#include "model/upload.h"

/* Of plans and their graphs: some hundred of a model of 36 layers. */
static const size_t plans_bytes = (size_t)128 << 20;
/* Of ranks, which have to keep the same ones: a graph of one rank does not meet single calls of
 * another. */
enum { PLANS_OF_RANKS = 64 };

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

/* Behind the fourth array stands how to draw each output, which only a GPU has. */
static void split_batch(struct batch *b, int32_t *block, int64_t rows, size_t draw)
{
    b->token = block;
    b->position = block + rows;
    b->sequence = block + 2 * rows;
    b->output_rows = block + 3 * rows;
    b->previous = block + 4 * rows + draw / sizeof *block;
}

/* On a GPU steps are written on the host's side and copied. */
static enum sol_status point_batches(struct engine *e)
{
    size_t draw = e->gpu ? (size_t)e->params.max_outputs * sizeof(struct sample_draw) : 0;
    split_batch(&e->batch, e->buffers.step, e->params.max_batch, draw);
    split_batch(&e->host, e->buffers.host.step, e->params.max_batch, draw);
    if (!e->gpu) return SOL_OK;
    e->batch.host = &e->host;
    e->offsets = calloc((size_t)e->model->config.n_experts + 1, sizeof *e->offsets);
    e->buffers.at.routing.host_offsets = e->offsets;
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
    if (p->kv_dtype != DTYPE_F32 && p->kv_dtype != DTYPE_F16 && p->kv_dtype != DTYPE_BF16)
        return status_set(SOL_E_ARGUMENT, "the cache is kept in f32, f16 or bf16, not in %s",
                          dtype_info(p->kv_dtype)->name);
    return SOL_OK;
}

void engine_params_settle(struct engine_params *p)
{
    if (p->max_batch > p->context * p->sequences) p->max_batch = p->context * p->sequences;
    if (p->max_outputs > p->max_batch) p->max_outputs = p->max_batch;
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

/* From the given one on. */
static void drop_plans(struct cached_plan **from)
{
    while (*from) {
        struct cached_plan *p = *from;
        *from = p->next;
        plan_destroy(p->plan);
        free(p);
    }
}

static void destroy(struct engine *e)
{
    if (!e) return;
    drop_plans(&e->plans);
    if (e->gpu) {
        if (e->context.stream) gpu_settle(e->context.stream);
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

/* ---- steps ---- */

static struct forward_step step_of(const struct engine *e, int64_t rows, int64_t outputs,
                                   enum forward_draw draw)
{
    return (struct forward_step){.model = e->model,
                                 .batch = &e->batch,
                                 .buffers = &e->buffers.at,
                                 .rows = rows,
                                 .outputs = outputs,
                                 .draw = draw};
}

static enum sol_status make_plan(struct engine *e, struct cached_plan *p)
{
    SOL_TRY(plan_create(&e->params.chooser, &p->plan));
    plan_share(p->plan, e->buffers.scratch_at, e->buffers.scratch);
    const enum forward_draw draw = e->rank ? FORWARD_NO_DRAW : p->draw; /* the first rank draws */
    const struct forward_step step = step_of(e, p->rows, p->outputs, draw);
    forward_build(p->plan, &step);
    e->plans_made++;
    SOL_TRY(plan_finish(p->plan));
    if (!e->params.keep) plan_narrow(p->plan);
    return SOL_OK;
}

/* A step's and that of its draw may be in use: they stay, and of the others those used last. */
static void make_room(struct engine *e)
{
    struct cached_plan **at = &e->plans;
    size_t bytes = 0;
    int steps = 0;
    for (int n = 0; *at; at = &(*at)->next, n++) {
        bytes += plan_list_bytes((*at)->plan);
        steps += (*at)->rows > 0;
        if (e->params.team ? steps > PLANS_OF_RANKS : n >= 2 && bytes > plans_bytes) break;
    }
    drop_plans(at);
}

/* Afterwards it is the first one. */
static enum sol_status plan_for(struct engine *e, int64_t rows, int64_t outputs,
                                enum forward_draw draw, struct plan **out)
{
    struct cached_plan **at = &e->plans, *p;
    while ((p = *at) && (p->rows != rows || p->outputs != outputs || p->draw != draw))
        at = &p->next;
    if (p) {
        *at = p->next;
    } else {
        p = calloc(1, sizeof *p);
        if (!p) return status_set(SOL_E_MEMORY, "no memory for a plan");
        *p = (struct cached_plan){.rows = rows, .outputs = outputs, .draw = draw};
        enum sol_status status = make_plan(e, p);
        if (status != SOL_OK) {
            drop_plans(&p);
            return status;
        }
    }
    p->next = e->plans;
    e->plans = p;
    make_room(e);
    *out = p->plan;
    return SOL_OK;
}

enum sol_status engine_no_pages(const struct engine *e, int64_t missing)
{
    return status_set(
        SOL_E_MEMORY,
        "the cache is full: %lld of its %lld positions are free, %lld are needed; end "
        "a sequence, or give the cache more positions",
        (long long)(e->pages.n_free * KV_PAGE), (long long)(e->pages.n_pages * KV_PAGE),
        (long long)(missing * KV_PAGE));
}

/* All rows, of however many steps, have room, or none is begun. */
static enum sol_status check_room(const struct engine *e, const struct engine_row *rows, int64_t n)
{
    int64_t *length = e->length, missing = 0;
    memcpy(length, e->position, (size_t)e->params.sequences * sizeof *length);
    for (int64_t i = 0; i < n; i++) length[rows[i].sequence]++;
    for (int32_t s = 0; s < e->params.sequences; s++) {
        if (length[s] > e->params.context)
            return status_set(
                SOL_E_ARGUMENT,
                "sequence of %lld tokens does not fit the context of %lld; raise the context",
                (long long)length[s], (long long)e->params.context);
        missing += kv_pages_missing(&e->pages, s, length[s]);
    }
    return missing > e->pages.n_free ? engine_no_pages(e, missing) : SOL_OK;
}

enum sol_status engine_make_plan(struct engine *e, const struct chooser *chooser, int64_t rows,
                                 int64_t outputs, plan_choice_fn on_choice, void *arg,
                                 struct plan **out)
{
    SOL_TRY(plan_create(chooser, out));
    plan_on_choice(*out, on_choice, arg);
    const struct forward_step step = step_of(e, rows, outputs, FORWARD_NO_DRAW);
    forward_build(*out, &step);
    enum sol_status status = plan_finish(*out);
    if (status == SOL_OK) return SOL_OK;
    plan_destroy(*out);
    *out = NULL;
    return status;
}

enum sol_status engine_check_rows(const struct engine *e, const struct engine_row *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (rows[i].token < 0 || rows[i].token >= e->model->config.vocab)
            return status_set(SOL_E_ARGUMENT, "token %d is outside the vocabulary of %lld",
                              rows[i].token, (long long)e->model->config.vocab);
        if (rows[i].sequence < 0 || rows[i].sequence >= e->params.sequences)
            return status_set(SOL_E_ARGUMENT, "sequence %d of %lld", rows[i].sequence,
                              (long long)e->params.sequences);
    }
    return check_room(e, rows, n);
}

/* Rows of the same sequence keep their order, so the first n rows that fit are taken as they come.
 */
int64_t engine_fill_batch(struct engine *e, const struct engine_row *rows, int64_t n)
{
    struct batch *b = &e->host;
    e->taken = rows;
    e->n_taken = n;
    b->n_tokens = b->n_outputs = 0;
    for (int64_t i = 0; i < n && i < e->params.max_batch; i++)
        e->oldest[rows[i].sequence] = e->position[rows[i].sequence];
    for (int64_t i = 0; i < n && i < e->params.max_batch; i++) {
        int32_t sequence = rows[i].sequence;
        if (rows[i].output && b->n_outputs == e->params.max_outputs) break;
        if (e->position[sequence] - e->oldest[sequence] == e->params.max_run) break;
        if (rows[i].output) b->output_rows[b->n_outputs++] = (int32_t)i;
        b->token[i] = rows[i].token;
        b->sequence[i] = sequence;
        b->previous[i] = e->position[sequence] ? e->last[sequence] : -1;
        e->last[sequence] = rows[i].token;
        b->position[i] = (int32_t)e->position[sequence]++;
        kv_pages_hold(&e->pages, sequence, e->position[sequence]);
        b->n_tokens++;
    }
    e->batch.n_tokens = b->n_tokens;
    e->batch.n_outputs = b->n_outputs;
    return b->n_tokens;
}

void engine_forget_batch(struct engine *e)
{
    for (int64_t i = e->host.n_tokens - 1; i >= 0; i--) {
        int32_t sequence = e->host.sequence[i];
        e->last[sequence] = e->host.previous[i];
        kv_pages_hold(&e->pages, sequence, --e->position[sequence]);
    }
}

static enum sol_status fetch_layer(const struct engine *e, float *x, size_t bytes)
{
    const struct model_config *c = &e->model->config;
    SOL_TRY(gpu_copy_out(e->context.stream, x, e->buffers.at.x, bytes));
    if (c->n_experts)
        SOL_TRY(gpu_copy_out(e->context.stream, e->offsets, e->buffers.at.routing.group_offsets,
                             (size_t)(c->n_experts + 1) * sizeof *e->offsets));
    return gpu_wait(e->context.stream);
}

/* What costs and callers want to see is copied only here, for those who look. */
static enum sol_status show_layer(const struct engine *e, int layer, float *x)
{
    const int64_t n = e->batch.n_tokens * e->model->config.hidden;
    SOL_TRY(fetch_layer(e, x, (size_t)n * sizeof *x));
    e->trace(e->trace_arg, layer, x, e->batch.n_tokens);
    return SOL_OK;
}

static enum sol_status after_layer(void *arg, int layer)
{
    const struct engine *e = arg;
    if (!e->trace || layer < 0) return SOL_OK;
    if (!e->gpu) {
        e->trace(e->trace_arg, layer, e->buffers.at.x, e->batch.n_tokens);
        return SOL_OK;
    }
    float *x = malloc((size_t)(e->batch.n_tokens * e->model->config.hidden) * sizeof *x);
    if (!x) return status_set(SOL_E_MEMORY, "no memory to look at layer %d", layer);
    enum sol_status status = show_layer(e, layer, x);
    if (status != SOL_OK)
        gpu_settle(e->context.stream); /* before `x` goes, no copy is on its way there */
    free(x);
    return status;
}

/* New pages are in the table before the step whose rows they are for; few steps have any. */
static enum sol_status send_batch(struct engine *e)
{
    struct kv_pages *p = &e->pages;
    const struct buffers *b = &e->buffers;
    if (!e->gpu) return SOL_OK;
    if (p->unsent)
        SOL_TRY(gpu_copy_in(e->context.stream, b->page_table + p->changed, p->table + p->changed,
                            (size_t)p->unsent * sizeof *p->table));
    kv_pages_sent(p);
    bool previous = forward_of(&e->model->config)->previous;
    const void *end = b->at.draws + e->params.max_outputs;
    if (previous) end = e->batch.previous + e->params.max_batch;
    return gpu_copy_in(e->context.stream, b->step, b->host.step,
                       (size_t)((const char *)end - (const char *)b->step));
}

enum sol_status engine_place(struct engine *e, const struct engine_row *rows, int64_t n)
{
    SOL_TRY(engine_check_rows(e, rows, n));
    engine_fill_batch(e, rows, n);
    enum sol_status status = send_batch(e);
    engine_forget_batch(e);
    enum sol_status waited = e->gpu ? gpu_wait(e->context.stream) : SOL_OK;
    return status == SOL_OK ? waited : status;
}

/* Outputs that follow each other in one copy. */
static enum sol_status fetch_logits(struct engine *e)
{
    const struct buffers *b = &e->buffers;
    const int64_t n = e->host.n_outputs, vocab = e->model->config.vocab;
    for (int64_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && e->fetched[end]; end++) continue;
        if (end > i)
            SOL_TRY(gpu_copy_out(e->context.stream, b->host.logits + i * vocab,
                                 b->at.logits + i * vocab,
                                 (size_t)((end - i) * vocab) * sizeof(float)));
    }
    return SOL_OK;
}

/* What is wanted of it, on the host. */
static enum sol_status fetch_output(struct engine *e, unsigned wanted)
{
    size_t n = (size_t)e->host.n_outputs;
    const struct buffers *b = &e->buffers;
    if (wanted & WANT_LOGITS) SOL_TRY(fetch_logits(e));
    if (n && wanted & WANT_TOKENS)
        return gpu_copy_out(e->context.stream, b->host.token, b->at.token, n * sizeof *b->at.token);
    return SOL_OK;
}

/* Waits, so that the staging arrays may be written again. */
enum sol_status engine_end_step(struct engine *e, unsigned wanted)
{
    enum sol_status status = e->gpu ? fetch_output(e, wanted) : SOL_OK;
    if (status == SOL_OK && e->gpu) status = gpu_wait(e->context.stream);
    status = engine_join_step(e, status);
    if (status != SOL_OK) engine_forget_batch(e);
    return status;
}

/* All that can fail before something runs. */
static enum sol_status prepare_step(struct engine *e, enum forward_draw draw, struct plan **plan)
{
    if (!e->batch.n_outputs) draw = FORWARD_NO_DRAW;
    SOL_TRY(plan_for(e, e->batch.n_tokens, e->batch.n_outputs, draw, plan));
    return send_batch(e);
}

static enum sol_status run_plan(struct engine *e, struct plan *plan)
{
    const struct plan_observer observer = {after_layer, e};
    return plan_run(plan, &e->context, e->timed, e->trace ? &observer : NULL);
}

/* ---- steps of all ranks ---- */

struct joint_step {
    struct engine *first;
    enum forward_draw draw;
};

/* None begins to run what others would wait for before all are ready. Ranks but the first, whose
 * caller has something else to do meanwhile, come back when their part is over. */
static enum sol_status do_step(void *arg, int rank)
{
    const struct joint_step s = *(const struct joint_step *)arg; /* gone behind the meeting */
    struct engine *e = s.first->ranks[rank];
    struct team *team = e->params.team;
    struct plan *plan = NULL;
    if (rank) engine_fill_batch(e, s.first->taken, s.first->n_taken);
    enum sol_status status = prepare_step(e, s.draw, &plan);
    status = team_meet(team, rank, status);
    if (status == SOL_OK) {
        status = run_plan(e, plan);
        if (status == SOL_OK && rank && e->gpu) status = gpu_wait(e->context.stream);
        if (status != SOL_OK) team_break(team, rank, status);
    }
    if (status != SOL_OK && rank) engine_forget_batch(e);
    return status;
}

enum sol_status engine_join_step(struct engine *e, enum sol_status mine)
{
    if (!e->ranks || !e->joint) return mine;
    e->joint = false;
    if (mine != SOL_OK) team_break(e->params.team, 0, mine);
    return team_finish(e->params.team, mine);
}

static enum sol_status start_joint_step(struct engine *e, enum forward_draw draw)
{
    struct joint_step s = {e, draw};
    team_start(e->params.team, do_step, &s);
    const enum sol_status status = do_step(&s, 0);
    if (status != SOL_OK) return team_finish(e->params.team, status);
    e->joint = true;
    return SOL_OK;
}

enum sol_status engine_start_step(struct engine *e, unsigned wanted)
{
    struct plan *plan;
    const enum forward_draw draw = wanted & WANT_TOKENS ? FORWARD_DRAW : FORWARD_NO_DRAW;
    enum sol_status status;
    if (e->ranks) {
        status = start_joint_step(e, draw);
    } else {
        status = prepare_step(e, draw, &plan);
        if (status == SOL_OK) status = run_plan(e, plan);
    }
    if (status != SOL_OK) engine_forget_batch(e);
    return status;
}

/* The step's own plan stays the last one. */
enum sol_status engine_start_draw(struct engine *e)
{
    struct plan *plan;
    const struct buffers *b = &e->buffers;
    size_t n = (size_t)e->host.n_outputs;
    const void *draws = b->host.step + ((int32_t *)(void *)b->at.draws - b->step);
    SOL_TRY(plan_for(e, 0, e->host.n_outputs, FORWARD_DRAW_LISTS, &plan));
    struct cached_plan *draw = e->plans, *step = draw->next;
    draw->next = step->next;
    step->next = draw;
    e->plans = step;
    SOL_TRY(gpu_copy_in(e->context.stream, b->at.draws, draws, n * sizeof *b->at.draws));
    return plan_run(plan, &e->context, e->timed, NULL);
}

/* Logits: of all outputs. */
static enum sol_status run_step(struct engine *e, unsigned wanted)
{
    for (int64_t i = 0; i < e->params.max_outputs; i++) e->fetched[i] = true;
    SOL_TRY(engine_start_step(e, wanted));
    return engine_end_step(e, wanted);
}

enum sol_status engine_eval(struct engine *e, const struct engine_row *rows, int64_t n,
                            engine_logits_fn on_logits, void *arg, const float **logits)
{
    const float *at = e->buffers.host.logits;
    if (logits) *logits = NULL;
    SOL_TRY(engine_check_rows(e, rows, n));
    for (int64_t done = 0; done < n;) {
        SOL_TRY(interrupt_check());
        int64_t step = engine_fill_batch(e, rows + done, n - done);
        bool wanted = logits || on_logits;
        SOL_TRY(run_step(e, wanted ? WANT_LOGITS : WANT_NOTHING));
        if (wanted) SOL_TRY(finite_check(e->original, e->context.pool, at, e->host.n_outputs));
        if (on_logits && e->host.n_outputs)
            SOL_TRY(on_logits(arg, done, e->host.output_rows, e->host.n_outputs, at));
        done += step;
    }
    if (logits) *logits = at;
    return SOL_OK;
}

/* ---- state ---- */

int64_t engine_position(const struct engine *e, int32_t sequence)
{
    return e->position[sequence];
}

void engine_forget(struct engine *e, int32_t sequence)
{
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
    for (int r = 0; r < engine_count(e) && status == SOL_OK; r++)
        status = fill_cache(engine_of(e, r));
    return status;
}

/* Of ranks whose layers nobody looks at: they stop where the first does. */
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
    e->trace = fn;
    e->trace_arg = arg;
}
