/* A trainer's life: what it allocates, keeps from step to step, and is asked. */
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "gpu/device.h"
#include "model/model.h"
#include "train/trainer_private.h"

void trainer_params_init(struct trainer_params *params)
{
    *params = (struct trainer_params){.recompute = -1};
    chooser_init(&params->chooser, cpu_info()->cores);
}

static enum sol_status take(struct trainer *t, const char *name, size_t bytes, void **out)
{
    return t->gpu ? gpu_alloc(t->gpu, name, bytes, out) : pages_alloc(bytes, out);
}

static enum sol_status allocate(struct trainer *t)
{
    SOL_TRY(take(t, "activations", t->act.size, &t->memory));
    SOL_TRY(take(t, "scratch", t->scratch_bytes + 1, &t->scratch));
    void *small;
    SOL_TRY(take(t, "rates", sizeof *t->small, &small));
    t->small = small;
    activations_place(&t->act, t->memory);
    trainer_set_batch(t);
    return SOL_OK;
}

/* Host memory of both directions; on the CPU a slot is the memory itself. */
static enum sol_status make_slots(struct trainer *t)
{
    const size_t line = 256, inputs = t->act.input_bytes;
    const size_t rates = (sizeof(struct update_rates) + line - 1) / line * line;
    char *at = NULL;
    if (t->gpu) {
        SOL_TRY(gpu_alloc_pinned(t->gpu, TRAINER_SLOTS * (inputs + rates + line), &t->pinned));
        at = t->pinned;
    } else {
        t->pinned = calloc(TRAINER_SLOTS, rates + line);
        if (!t->pinned) return status_set(SOL_E_MEMORY, "no memory for a trainer");
        at = t->pinned;
    }
    for (int i = 0; i < TRAINER_SLOTS; i++) {
        struct slot *in = &t->inputs[i], *out = &t->results[i];
        in->input = t->gpu ? at : (void *)t->act.at.token;
        at += t->gpu ? inputs : 0;
        out->rates = (void *)at;
        out->results = (void *)(at + rates);
        at += rates + line;
        if (!t->gpu) continue;
        SOL_TRY(gpu_event_create(t->gpu, &in->read));
        SOL_TRY(gpu_event_create(t->gpu, &out->ready));
    }
    return SOL_OK;
}

/* ---- what stays from step to step ---- */

enum sol_status trainer_put(struct trainer *t, void *to, const void *from, size_t bytes)
{
    if (t->gpu) return gpu_copy_in(t->context.stream, to, from, bytes);
    memcpy(to, from, bytes);
    return SOL_OK;
}

enum sol_status trainer_clear(struct trainer *t, void *to, size_t bytes)
{
    if (t->gpu) return gpu_zero(t->context.stream, to, bytes);
    memset(to, 0, bytes);
    return SOL_OK;
}

static enum sol_status set_constants(struct trainer *t)
{
    const int64_t rows = trainer_rows(t), length = t->recipe->length;
    const int64_t half = t->recipe->config.head_dim / 2;
    struct pass_buffers *b = &t->act.at;
    int32_t *numbers = calloc((size_t)(2 * (rows + half)), sizeof *numbers);
    if (!numbers) return status_set(SOL_E_MEMORY, "no memory for positions");
    float *frequencies = (float *)(void *)(numbers + 2 * rows);
    for (int64_t i = 0; i < rows; i++) {
        numbers[i] = (int32_t)(i % length);
        numbers[rows + i] = (int32_t)(i / length);
    }
    model_rope_frequencies(&t->recipe->config, false, frequencies, &b->rope_scale);
    for (int64_t i = 0; i < half; i++) frequencies[half + i] = -frequencies[i];
    enum sol_status status = trainer_put(t, b->position, numbers, (size_t)rows * 4);
    if (status == SOL_OK) status = trainer_put(t, b->sequence, numbers + rows, (size_t)rows * 4);
    if (status == SOL_OK) status = trainer_put(t, b->inv_freq, frequencies, (size_t)half * 4);
    if (status == SOL_OK)
        status = trainer_put(t, b->back_freq, frequencies + half, (size_t)half * 4);
    if (status == SOL_OK) status = trainer_clear(t, b->loss, sizeof *b->loss);
    if (status == SOL_OK) status = trainer_clear(t, t->small, sizeof *t->small);
    if (status == SOL_OK) status = trainer_wait(t);
    free(numbers);
    return status;
}

/* ---- life ---- */

static enum sol_status create_weights(struct trainer *t, bool outline)
{
    const struct params_options options = {.recipe = t->recipe,
                                           .gpu = t->gpu,
                                           .bf16 = t->params.bf16,
                                           .outline = outline,
                                           .ranks = t->ranks,
                                           .rank = t->rank};
    params_destroy(t->weights);
    SOL_TRY(params_create(&options, &t->weights));
    return update_check(t->weights);
}

static enum sol_status make_tree(struct trainer *t)
{
    const struct params *w = t->weights;
    const struct tree_sum_params params = {
        .chooser = &t->params.chooser,
        .parts = {matrix_f32(w->grads, 1, (int64_t)(w->grad_bytes / sizeof(float))),
                  matrix_f32(t->act.at.loss, 1, 1)},
        .ranks = t->ranks,
        .rounds = t->rounds};
    return t->params.tree ? tree_sum_create(&params, &t->tree) : SOL_OK;
}

static enum sol_status make_all(struct trainer *t)
{
    SOL_TRY(create_weights(t, false));
    SOL_TRY(allocate(t));
    SOL_TRY(trainer_make_lists(t));
    SOL_TRY(make_slots(t));
    SOL_TRY(make_tree(t));
    t->count = calloc((size_t)t->recipe->config.vocab + 1, sizeof *t->count);
    if (!t->count) return status_set(SOL_E_MEMORY, "no memory for a trainer");
    if (t->gpu && t->rank == 0) t->ranges = trace_ranges_open(); /* steps are those of all */
    return set_constants(t);
}

static enum sol_status choose(struct trainer *t)
{
    const struct trainer_params *p = &t->params;
    int threads = p->threads ? p->threads : cpu_info()->cores;
    SOL_TRY(pool_create(threads, &t->context.pool));
    t->context.whole = true; /* no half of an update is ever saved */
    t->params.chooser.device.workers = pool_size(t->context.pool);
    if (t->gpu) SOL_TRY(gpu_stream_create(t->gpu, &t->context.stream));
    if (t->gpu && t->ranks > 1 && !p->in_turn)
        SOL_TRY(gpu_stream_create(t->gpu, &t->context.beside));
    if (t->gpu && t->recipe->precision == PRECISION_NVFP4)
        return status_set(SOL_E_UNSUPPORTED, "--precision nvfp4 runs on the CPU alone so far");
    if (t->ranks > 1 && t->recipe->precision != PRECISION_PLAIN)
        return status_set(SOL_E_UNSUPPORTED,
                          "several ranks train in bf16 and float32 alone so far");
    SOL_TRY(create_weights(t, true));
    return trainer_choose_size(t);
}

enum sol_status trainer_create(const struct trainer_params *params, struct trainer **out)
{
    *out = NULL;
    struct trainer *t = calloc(1, sizeof *t);
    if (!t) return status_set(SOL_E_MEMORY, "no memory for a trainer");
    const struct tuning *tuning = params->chooser.tuning;
    t->params = *params;
    t->params.chooser.tuning = NULL;
    t->recipe = params->recipe;
    t->gpu = params->chooser.device.gpu;
    t->context.communicator = params->communicator;
    t->ranks = params->communicator ? communicator_size(params->communicator) : 1;
    t->rank = params->communicator ? communicator_rank(params->communicator) : 0;
    /* What one rank cannot do, none does. */
    enum sol_status status = communicator_agree(params->communicator, choose(t));
    if (status == SOL_OK) status = trainer_agree_size(t);
    if (status == SOL_OK)
        status = communicator_agree(params->communicator, trainer_take_tuning(t, tuning));
    if (status == SOL_OK) status = trainer_agree_tuning(t, tuning);
    if (status == SOL_OK) status = communicator_agree(params->communicator, make_all(t));
    if (status != SOL_OK) goto fail;
    *out = t;
    return SOL_OK;
fail:
    trainer_destroy(t);
    return status;
}

/* ---- outlines ---- */

static enum sol_status make_outline(struct trainer *t)
{
    const struct trainer_params *p = &t->params;
    SOL_TRY(create_weights(t, true));
    SOL_TRY(
        trainer_describe(t, p->sequences, (enum recompute)(p->recompute < 0 ? 0 : p->recompute)));
    SOL_TRY(trainer_make_list(t, LIST_MICRO, true, &t->micro));
    if (trainer_adds_up_shards(t)) SOL_TRY(trainer_make_list(t, LIST_REDUCE, true, &t->reduce));
    return trainer_make_list(t, LIST_UPDATE, true, &t->update);
}

enum sol_status trainer_outline(const struct trainer_params *params, int ranks,
                                struct trainer **out)
{
    *out = NULL;
    struct trainer *t = calloc(1, sizeof *t);
    if (!t) return status_set(SOL_E_MEMORY, "no memory for a trainer");
    t->params = *params;
    t->recipe = params->recipe;
    t->gpu = params->chooser.device.gpu;
    t->ranks = ranks;
    const enum sol_status status = make_outline(t);
    if (status == SOL_OK)
        *out = t;
    else
        trainer_destroy(t);
    return status;
}

static void give(struct trainer *t, void *memory, size_t bytes)
{
    if (t->gpu)
        gpu_free(t->gpu, memory);
    else
        pages_free(memory, bytes);
}

void trainer_destroy(struct trainer *t)
{
    if (!t) return;
    if (t->context.stream) gpu_settle(t->context.stream);
    trace_ranges_close(t->ranges);
    plan_destroy(t->micro);
    plan_destroy(t->last);
    plan_destroy(t->reduce);
    plan_destroy(t->evaluation);
    plan_destroy(t->update);
    plan_destroy(t->copies);
    for (int half = 0; half < STATE_HALVES; half++) plan_destroy(t->gather[half]);
    tree_sum_destroy(t->tree);
    for (int i = 0; i < TRAINER_SLOTS; i++) {
        gpu_event_destroy(t->inputs[i].read);
        gpu_event_destroy(t->results[i].ready);
    }
    if (t->gpu)
        gpu_free_pinned(t->gpu, t->pinned);
    else
        free(t->pinned);
    if (t->memory) {
        give(t, t->memory, t->act.size);
        if (t->scratch) give(t, t->scratch, t->scratch_bytes + 1);
        if (t->small != plan_nowhere) give(t, t->small, sizeof *t->small);
    }
    activations_free(&t->act);
    params_destroy(t->weights);
    gpu_stream_destroy(t->context.beside);
    gpu_stream_destroy(t->context.stream);
    pool_destroy(t->context.pool);
    free(t->count);
    free(t);
}

const struct trainer_params *trainer_params(const struct trainer *t)
{
    return &t->params;
}

struct params *trainer_weights(struct trainer *t)
{
    return t->weights;
}

struct gpu_stream *trainer_stream(struct trainer *t)
{
    return t->context.stream;
}

const struct op_context *trainer_context(const struct trainer *t)
{
    return &t->context;
}

struct pool *trainer_pool(struct trainer *t)
{
    return t->context.pool;
}

int64_t trainer_sequences(const struct trainer *t)
{
    return t->act.sequences;
}

int trainer_ranks(const struct trainer *t)
{
    return t->ranks;
}

int trainer_rank(const struct trainer *t)
{
    return t->rank;
}

enum recompute trainer_recomputes(const struct trainer *t)
{
    return t->act.recompute;
}

const struct activations *trainer_activations(const struct trainer *t)
{
    return &t->act;
}

struct plan *trainer_micro_plan(struct trainer *t)
{
    return t->micro;
}

struct plan *trainer_last_plan(struct trainer *t)
{
    return t->last ? t->last : t->micro;
}

struct plan *trainer_reduce_plan(struct trainer *t)
{
    return t->reduce;
}

struct plan *trainer_update_plan(struct trainer *t)
{
    return t->update;
}

enum sol_status trainer_kernels(const struct trainer *t, struct trainer_kernels *out)
{
    SOL_TRY(plan_kernels(t->micro, &t->context, &out->micro));
    out->last = out->micro;
    if (t->last) SOL_TRY(plan_kernels(t->last, &t->context, &out->last));
    return plan_kernels(t->update, &t->context, &out->update);
}
