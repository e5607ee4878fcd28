/* See trainer.h. */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "gpu/device.h"
#include "model/model.h"
#include "trace/ranges.h"
#include "train/tree_sum.h"

enum {
    SEQUENCES_MAX = 32,  /* where nothing is said: more are no faster */
    SLOTS = 2,           /* what the host writes while the device reads the other */
    RESERVE = 256 << 20, /* of a GPU's memory, for what libraries and graphs take */
};

/* What is no larger than a page, in device memory: one copy in, one out. */
struct small {
    struct update_rates rates;
    float sum, clip;
};

/* The host's side of a transfer: the same memory where there is no GPU. */
struct slot {
    void *input;
    struct update_rates *rates;
    float *results; /* loss, sum of squares */
    struct gpu_event *read, *ready;
    bool used;
    int64_t step;
};

struct trainer {
    struct trainer_params params;
    const struct train_recipe *recipe;
    struct params *weights;
    struct activations act;
    struct batch batch;
    struct op_context context;
    struct gpu *gpu;
    void *memory, *scratch, *pinned;
    struct small *small;
    size_t scratch_bytes;
    struct plan *micro, *evaluation, *update, *copies, *gather[STATE_HALVES];
    struct plan *last, *reduce; /* of several ranks that add up by shards; else NULL */
    int ranks, rank;
    struct tree_sum *tree; /* NULL: gradients add up where they are */
    int64_t rounds;        /* micro-batches of an update, of each rank */
    struct slot inputs[SLOTS], results[SLOTS];
    int next_input;
    int64_t step, micro_batch; /* the next update, and the next of its micro-batches */
    int32_t *count;            /* for `order` */
    struct trace_ranges *ranges;
    bool reduced; /* the gradients of this update are added up */
    bool micro_ran, last_ran, update_ran, kernels_said;
};

static const char range_step[] = "step", range_micro[] = "micro-batch", range_update[] = "update";
static const char range_last[] = "last micro-batch"; /* with sums over ranks */

void trainer_params_init(struct trainer_params *params)
{
    *params = (struct trainer_params){.recompute = -1};
    chooser_init(&params->chooser, cpu_info()->cores);
}

size_t trainer_memory_total(const struct trainer_memory *m)
{
    return m->weights + m->gradients + m->optimizer + m->activations + m->scratch;
}

/* ---- plans ---- */

static int64_t rows_of(const struct trainer *t)
{
    return t->act.sequences * t->recipe->length;
}

static struct pass pass_of(const struct trainer *t, bool evaluate)
{
    return (struct pass){.params = t->weights,
                         .buffers = &t->act.at,
                         .batch = &t->batch,
                         .sequences = t->act.sequences,
                         .length = t->recipe->length,
                         .dtype = t->act.dtype,
                         .evaluate = evaluate,
                         .recompute = t->act.recompute,
                         .rounded_rotation = t->recipe->january,
                         .balance = (float)t->recipe->balance,
                         .dropout = evaluate ? 0 : (float)t->recipe->dropout,
                         .precision = t->recipe->precision};
}

/* LAST: a micro-step in which gradients are added up over ranks; REDUCE: they are by themselves;
 * GATHER: a list for each half. */
enum list {
    MICRO,
    LAST,
    REDUCE,
    EVALUATION,
    UPDATE,
    COPIES,
    GATHER,
    LISTS = GATHER + STATE_HALVES
};

static bool adds_up_shards(const struct trainer *t)
{
    return t->ranks > 1 && !t->params.tree;
}

static void reduce_left(void *arg, struct plan *plan, int64_t layer)
{
    update_reduce(plan, arg, layer);
}

static void build(const struct trainer *t, int list, struct plan *plan)
{
    struct pass pass = pass_of(t, list == EVALUATION);
    struct update update = {.params = t->weights,
                            .recipe = t->recipe,
                            .rates = &t->small->rates,
                            .sum = &t->small->sum,
                            .clip = &t->small->clip,
                            .bf16 = t->params.bf16,
                            .loss = t->act.at.loss,
                            .summed = t->params.tree};
    if (list == LAST) pass.left = reduce_left, pass.left_arg = &update;
    if (list == MICRO || list == LAST || list == EVALUATION) pass_forward(plan, &pass);
    if (list == MICRO || list == LAST) pass_backward(plan, &pass);
    for (int64_t n = t->recipe->config.n_layers - 1; list == REDUCE && n >= -1; n--)
        update_reduce(plan, &update, n);
    if (list == UPDATE) update_build(plan, &update);
    if (list == COPIES) update_copies(plan, t->weights, &t->small->rates.round);
    if (list >= GATHER) states_gather(plan, t->weights, list - GATHER);
}

static enum sol_status make_plan(const struct trainer *t, int list, bool dry, struct plan **out)
{
    SOL_TRY(plan_create(&t->params.chooser, out));
    if (!dry) plan_share(*out, t->scratch, t->scratch_bytes);
    if (!dry && (list == MICRO || list == REDUCE || list == UPDATE))
        plan_on_choice(*out, t->params.on_choice, t->params.on_choice_arg);
    build(t, list, *out);
    return dry ? plan_finish_dry(*out) : plan_finish(*out);
}

enum sol_status trainer_make_plan(struct trainer *t, bool update, const struct chooser *chooser,
                                  plan_choice_fn on_choice, void *arg, struct plan **out)
{
    size_t need = 0;
    enum sol_status status = SOL_OK;
    for (int dry = 1; dry >= 0 && status == SOL_OK; dry--) {
        SOL_TRY(plan_create(chooser, out));
        if (!dry && need <= t->scratch_bytes) plan_share(*out, t->scratch, t->scratch_bytes);
        if (!dry) plan_on_choice(*out, on_choice, arg);
        build(t, update ? UPDATE : MICRO, *out);
        status = dry ? plan_finish_dry(*out) : plan_finish(*out);
        need = plan_bytes(*out);
        if (!dry && status == SOL_OK) return SOL_OK;
        plan_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* The most that any of the plans needs. */
static enum sol_status measure_scratch(struct trainer *t)
{
    t->scratch_bytes = 0;
    for (int list = 0; list < LISTS; list++) {
        struct plan *plan = NULL;
        if ((list == LAST || list == REDUCE) && !adds_up_shards(t)) continue;
        enum sol_status status = make_plan(t, list, true, &plan);
        size_t bytes = plan ? plan_bytes(plan) : 0;
        plan_destroy(plan);
        if (status != SOL_OK) return status;
        if (bytes > t->scratch_bytes) t->scratch_bytes = bytes;
    }
    return SOL_OK;
}

/* ---- memory ---- */

static void set_batch(struct trainer *t)
{
    struct pass_buffers *b = &t->act.at;
    t->batch = (struct batch){.n_tokens = rows_of(t),
                              .token = b->token,
                              .position = b->position,
                              .sequence = b->sequence};
}

/* What a micro-batch of that many sequences takes; nothing is allocated but tables. */
static enum sol_status describe(struct trainer *t, int64_t sequences, enum recompute recompute)
{
    activations_free(&t->act);
    t->act = (struct activations){.recipe = t->recipe,
                                  .on_gpu = t->gpu != NULL,
                                  .sequences = sequences,
                                  .dtype = t->params.bf16 ? DTYPE_BF16 : DTYPE_F32,
                                  .recompute = recompute};
    SOL_TRY(activations_describe(&t->act));
    t->small = plan_nowhere;
    t->rounds = t->recipe->total_batch / (sequences * t->recipe->length * t->ranks);
    set_batch(t);
    return measure_scratch(t);
}

void trainer_memory(const struct trainer *t, struct trainer_memory *out)
{
    const size_t sums = t->params.tree ? (size_t)tree_sum_levels(t->rounds) : 0;
    *out = (struct trainer_memory){.weights = t->weights->value_bytes,
                                   .gradients = (1 + sums) * t->weights->grad_bytes,
                                   .optimizer = t->weights->state_bytes,
                                   .activations = t->act.size,
                                   .scratch = t->scratch_bytes};
}

static size_t size_now(const struct trainer *t)
{
    struct trainer_memory m;
    trainer_memory(t, &m);
    return trainer_memory_total(&m);
}

static enum sol_status available(const struct trainer *t, size_t *out)
{
    *out = memory_available();
    if (t->gpu) {
        SOL_TRY(gpu_memory_free(t->gpu, out));
        *out = *out > RESERVE ? *out - RESERVE : 0;
    }
    if (!t->gpu) *out /= (size_t)t->ranks; /* they may be of one machine */
    if (t->params.memory && t->params.memory < *out) *out = t->params.memory;
    if (*out) *out = *out > t->params.reserve ? *out - t->params.reserve : 1; /* 0: unknown */
    return SOL_OK;
}

static enum sol_status too_little(const struct trainer *t, size_t room)
{
    const double gib = 1 << 30;
    struct trainer_memory m;
    trainer_memory(t, &m);
    return status_set(
        SOL_E_MEMORY,
        "%lld sequences of %lld tokens need %.2f GiB (weights %.2f, gradients %.2f, optimizer "
        "%.2f, activations %.2f, scratch %.2f) and %.2f are free; lower --device-batch-size or "
        "--max-seq-len",
        (long long)t->act.sequences, (long long)t->recipe->length, (double)size_now(t) / gib,
        (double)m.weights / gib, (double)m.gradients / gib, (double)m.optimizer / gib,
        (double)m.activations / gib, (double)m.scratch / gib, (double)room / gib);
}

/* All ranks take what the one with the least room can. */
static enum sol_status agree_size(struct trainer *t)
{
    struct size {
        int64_t sequences;
        int64_t recompute;
    } own = {t->act.sequences, t->act.recompute}, least = own;
    if (t->ranks == 1) return SOL_OK;
    struct size *all = calloc((size_t)t->ranks, sizeof *all);
    if (!all) return status_set(SOL_E_MEMORY, "no memory for a trainer");
    enum sol_status status =
        communicator_all_gather(t->context.communicator, &own, sizeof own, all);
    for (int r = 0; r < t->ranks; r++)
        if (all[r].sequences < least.sequences ||
            (all[r].sequences == least.sequences && all[r].recompute > least.recompute))
            least = all[r];
    free(all);
    if (status != SOL_OK || (least.sequences == own.sequences && least.recompute == own.recompute))
        return status;
    return describe(t, least.sequences, (enum recompute)least.recompute);
}

/* The most sequences that fit and divide an update; of one count rather all kept than made again.
 */
static enum sol_status choose_size(struct trainer *t)
{
    const struct trainer_params *p = &t->params;
    size_t room;
    SOL_TRY(available(t, &room));
    int64_t most = p->sequences ? p->sequences : SEQUENCES_MAX, least = p->sequences ? most : 1;
    for (int64_t n = most; n >= least; n--) {
        if (!p->sequences && t->recipe->total_batch % (n * t->ranks * t->recipe->length)) continue;
        const int first = p->recompute < 0 ? 0 : p->recompute;
        const int last = p->recompute < 0 ? RECOMPUTE_LEVELS - 1 : p->recompute;
        for (int again = first; again <= last; again++) {
            SOL_TRY(describe(t, n, (enum recompute)again));
            if (!room || size_now(t) <= room) return SOL_OK;
        }
    }
    if (t->act.sequences) return too_little(t, room);
    return status_set(SOL_E_ARGUMENT,
                      "an update of %lld tokens has no whole sequences of %lld; change "
                      "--total-batch-size or --max-seq-len",
                      (long long)t->recipe->total_batch, (long long)t->recipe->length);
}

/* Behind agree_size, which knew no record. */
static enum sol_status take_tuning(struct trainer *t, const struct tuning *tuning)
{
    size_t room;
    if (!tuning) return SOL_OK;
    SOL_TRY(available(t, &room));
    t->params.chooser.tuning = tuning;
    SOL_TRY(describe(t, t->act.sequences, t->act.recompute));
    if (!room || size_now(t) <= room) return SOL_OK;
    t->params.chooser.tuning = NULL;
    return describe(t, t->act.sequences, t->act.recompute);
}

static enum sol_status agree_tuning(struct trainer *t, const struct tuning *tuning)
{
    bool left = tuning && !t->params.chooser.tuning, any = left;
    bool *all = calloc((size_t)t->ranks, sizeof *all);
    if (!all) return status_set(SOL_E_MEMORY, "no memory for a trainer");
    enum sol_status status = SOL_OK;
    if (t->ranks > 1)
        status = communicator_all_gather(t->context.communicator, &left, sizeof left, all);
    for (int r = 0; r < t->ranks; r++) any |= all[r];
    free(all);
    if (status != SOL_OK || !any) return status;
    if (t->rank == 0)
        LOG_WARN("what sol train tune found needs more memory than there is, and is left out");
    if (left || !tuning) return SOL_OK;
    t->params.chooser.tuning = NULL;
    return describe(t, t->act.sequences, t->act.recompute);
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
    set_batch(t);
    return SOL_OK;
}

/* Host memory of both directions; on the CPU a slot is the memory itself. */
static enum sol_status make_slots(struct trainer *t)
{
    const size_t line = 256, inputs = t->act.input_bytes;
    const size_t rates = (sizeof(struct update_rates) + line - 1) / line * line;
    char *at = NULL;
    if (t->gpu) {
        SOL_TRY(gpu_alloc_pinned(t->gpu, SLOTS * (inputs + rates + line), &t->pinned));
        at = t->pinned;
    } else {
        t->pinned = calloc(SLOTS, rates + line);
        if (!t->pinned) return status_set(SOL_E_MEMORY, "no memory for a trainer");
        at = t->pinned;
    }
    for (int i = 0; i < SLOTS; i++) {
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

static enum sol_status put(struct trainer *t, void *to, const void *from, size_t bytes)
{
    if (t->gpu) return gpu_copy_in(t->context.stream, to, from, bytes);
    memcpy(to, from, bytes);
    return SOL_OK;
}

static enum sol_status clear(struct trainer *t, void *to, size_t bytes)
{
    if (t->gpu) return gpu_zero(t->context.stream, to, bytes);
    memset(to, 0, bytes);
    return SOL_OK;
}

static enum sol_status set_constants(struct trainer *t)
{
    const int64_t rows = rows_of(t), length = t->recipe->length;
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
    enum sol_status status = put(t, b->position, numbers, (size_t)rows * 4);
    if (status == SOL_OK) status = put(t, b->sequence, numbers + rows, (size_t)rows * 4);
    if (status == SOL_OK) status = put(t, b->inv_freq, frequencies, (size_t)half * 4);
    if (status == SOL_OK) status = put(t, b->back_freq, frequencies + half, (size_t)half * 4);
    if (status == SOL_OK) status = clear(t, b->loss, sizeof *b->loss);
    if (status == SOL_OK) status = clear(t, t->small, sizeof *t->small);
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

static enum sol_status make_plans(struct trainer *t)
{
    /* The rotation's scale is known to plans when they are made. */
    float *unused = calloc((size_t)t->recipe->config.head_dim, sizeof *unused);
    if (!unused) return status_set(SOL_E_MEMORY, "no memory for frequencies");
    model_rope_frequencies(&t->recipe->config, false, unused, &t->act.at.rope_scale);
    free(unused);
    SOL_TRY(make_plan(t, MICRO, false, &t->micro));
    if (adds_up_shards(t)) SOL_TRY(make_plan(t, LAST, false, &t->last));
    if (adds_up_shards(t)) SOL_TRY(make_plan(t, REDUCE, false, &t->reduce));
    SOL_TRY(make_plan(t, EVALUATION, false, &t->evaluation));
    SOL_TRY(make_plan(t, UPDATE, false, &t->update));
    SOL_TRY(make_plan(t, COPIES, false, &t->copies));
    for (int half = 0; half < STATE_HALVES; half++)
        SOL_TRY(make_plan(t, GATHER + half, false, &t->gather[half]));
    return SOL_OK;
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
    SOL_TRY(make_plans(t));
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
    return choose_size(t);
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
    if (status == SOL_OK) status = agree_size(t);
    if (status == SOL_OK) status = communicator_agree(params->communicator, take_tuning(t, tuning));
    if (status == SOL_OK) status = agree_tuning(t, tuning);
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
    SOL_TRY(describe(t, p->sequences, (enum recompute)(p->recompute < 0 ? 0 : p->recompute)));
    SOL_TRY(make_plan(t, MICRO, true, &t->micro));
    if (adds_up_shards(t)) SOL_TRY(make_plan(t, REDUCE, true, &t->reduce));
    return make_plan(t, UPDATE, true, &t->update);
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
    for (int i = 0; i < SLOTS; i++) {
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

enum sol_status trainer_scratch_room(const struct trainer *t, size_t *bytes)
{
    const size_t own = size_now(t), limit = t->params.memory;
    *bytes = memory_available();
    if (!*bytes) *bytes = SIZE_MAX / 2; /* unknown */
    if (t->gpu) SOL_TRY(gpu_memory_free(t->gpu, bytes));
    if (t->gpu) *bytes = *bytes > RESERVE ? *bytes - RESERVE : 0;
    if (limit && *bytes > (limit > own ? limit - own : 0)) *bytes = limit > own ? limit - own : 0;
    *bytes += t->scratch_bytes;
    return SOL_OK;
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

/* ---- steps ---- */

enum sol_status trainer_refresh(struct trainer *t, int64_t step)
{
    const float round = recipe_rounds(t->recipe, step);
    t->step = step;
    t->micro_batch = 0;
    SOL_TRY(put(t, &t->small->rates.round, &round, sizeof round));
    SOL_TRY(trainer_wait(t)); /* it is this function's */
    return plan_run(t->copies, &t->context, false, NULL);
}

enum sol_status trainer_init(struct trainer *t)
{
    SOL_TRY(params_init(t->weights, t->recipe, t->context.stream));
    return trainer_refresh(t, 0);
}

enum sol_status trainer_check(const struct trainer *t, const struct micro_batch *batch)
{
    const int64_t rows = rows_of(t), vocab = t->recipe->config.vocab;
    for (int64_t i = 0; i < rows; i++)
        if (batch->x[i] < 0 || batch->x[i] >= vocab || batch->y[i] < -1 || batch->y[i] >= vocab)
            return status_set(SOL_E_ARGUMENT,
                              "token %d (target %d) at %lld of sequence %lld is not among the %lld "
                              "of the vocabulary",
                              batch->x[i], batch->y[i], (long long)(i % t->recipe->length),
                              (long long)(i / t->recipe->length), (long long)vocab);
    return SOL_OK;
}

/* Rows by rising token: counted, then dealt out. */
static void find_order(struct trainer *t, const int32_t *x, int32_t *order)
{
    const int64_t rows = rows_of(t), vocab = t->recipe->config.vocab;
    memset(t->count, 0, (size_t)(vocab + 1) * sizeof *t->count);
    for (int64_t i = 0; i < rows; i++) t->count[x[i] + 1]++;
    for (int64_t i = 0; i < vocab; i++) t->count[i + 1] += t->count[i];
    for (int64_t i = 0; i < rows; i++) order[t->count[x[i]]++] = (int32_t)i;
}

static void *in_slot(const struct trainer *t, const struct slot *slot, const void *device)
{
    return (char *)slot->input + ((const char *)device - (const char *)t->act.at.token);
}

/* Puts a micro-batch where the ops read it. */
static enum sol_status place(struct trainer *t, const struct micro_batch *batch, double weight)
{
    const size_t rows = (size_t)rows_of(t);
    const struct pass_buffers *b = &t->act.at;
    struct slot *slot = &t->inputs[t->next_input];
    t->next_input = (t->next_input + 1) % SLOTS;
    if (slot->read && slot->used) SOL_TRY(gpu_event_wait(slot->read));
    int64_t targets = 0;
    for (size_t i = 0; i < rows; i++) targets += batch->y[i] >= 0;
    int32_t *order = in_slot(t, slot, b->order);
    memcpy(in_slot(t, slot, b->token), batch->x, rows * sizeof *batch->x);
    memcpy(in_slot(t, slot, b->target), batch->y, rows * sizeof *batch->y);
    if (batch->order)
        memcpy(order, batch->order, rows * sizeof *order);
    else
        find_order(t, batch->x, order);
    *(float *)in_slot(t, slot, b->scale) = targets ? (float)(weight / (double)targets) : 0;
    const uint64_t seed = (uint64_t)t->recipe->flags.seed;
    *(struct random_key *)in_slot(t, slot, b->key) =
        (struct random_key){.seed = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                            .step = (uint32_t)t->step,
                            .micro_batch = (uint32_t)(t->micro_batch * t->ranks + t->rank)};
    if (!t->gpu) return SOL_OK;
    SOL_TRY(gpu_copy_in(t->context.stream, b->token, slot->input, t->act.input_bytes));
    slot->used = true;
    return gpu_event_record(slot->read, t->context.stream);
}

enum sol_status trainer_micro(struct trainer *t, const struct micro_batch *batch, double weight,
                              bool timed)
{
    const bool last = batch->last && t->last;
    trace_ranges_begin(t->ranges, last ? range_last : range_micro);
    enum sol_status status = place(t, batch, weight);
    if (status == SOL_OK) status = plan_run(last ? t->last : t->micro, &t->context, timed, NULL);
    if (status == SOL_OK && t->tree) status = tree_sum_add(t->tree, &t->context);
    trace_ranges_end(t->ranges);
    t->micro_batch++;
    t->reduced = last;
    *(last ? &t->last_ran : &t->micro_ran) = true;
    return status;
}

void trainer_step_begin(struct trainer *t)
{
    trace_ranges_begin(t->ranges, range_step);
}

/* What ran once can be counted. */
enum sol_status trainer_step_end(struct trainer *t)
{
    int64_t kernels;
    trace_ranges_end(t->ranges);
    if (!t->ranges || t->kernels_said) return SOL_OK;
    t->kernels_said = true;
    if (t->micro_ran) {
        SOL_TRY(plan_kernels(t->micro, &t->context, &kernels));
        trace_ranges_expect(t->ranges, range_micro, kernels);
    }
    if (t->last_ran) {
        SOL_TRY(plan_kernels(t->last, &t->context, &kernels));
        trace_ranges_expect(t->ranges, range_last, kernels);
    }
    if (t->update_ran) {
        SOL_TRY(plan_kernels(t->update, &t->context, &kernels));
        trace_ranges_expect(t->ranges, range_update, kernels);
    }
    return SOL_OK;
}

/* Results to the host, and to zero. */
static enum sol_status fetch_results(struct trainer *t, struct slot *slot)
{
    float *loss = t->act.at.loss, *sum = &t->small->sum;
    if (!t->gpu) {
        slot->results[0] = *loss;
        slot->results[1] = *sum;
    } else {
        struct gpu_stream *stream = t->context.stream;
        SOL_TRY(gpu_copy_out(stream, &slot->results[0], loss, sizeof *loss));
        SOL_TRY(gpu_copy_out(stream, &slot->results[1], sum, sizeof *sum));
        SOL_TRY(gpu_event_record(slot->ready, stream));
    }
    SOL_TRY(clear(t, loss, sizeof *loss));
    return clear(t, sum, sizeof *sum);
}

enum sol_status trainer_update(struct trainer *t, int64_t step, bool timed)
{
    struct slot *slot = &t->results[step % SLOTS];
    if (slot->used && slot->ready) SOL_TRY(gpu_event_wait(slot->ready));
    update_rates_at(t->recipe, t->weights, step, slot->rates);
    SOL_TRY(put(t, &t->small->rates, slot->rates, sizeof *slot->rates));
    trace_ranges_begin(t->ranges, range_update);
    enum sol_status status = t->tree ? tree_sum_end(t->tree, &t->context) : SOL_OK;
    if (status == SOL_OK && t->reduce && !t->reduced)
        status = plan_run(t->reduce, &t->context, timed, NULL);
    t->reduced = false;
    if (status == SOL_OK) status = plan_run(t->update, &t->context, timed, NULL);
    trace_ranges_end(t->ranges);
    SOL_TRY(status);
    t->update_ran = true;
    slot->step = step;
    slot->used = true;
    t->step = step + 1;
    t->micro_batch = 0;
    return fetch_results(t, slot);
}

enum sol_status trainer_results(struct trainer *t, int64_t step, double *loss, double *norm)
{
    const struct slot *slot = &t->results[step % SLOTS];
    *loss = *norm = NAN;
    if (!slot->used || slot->step != step)
        return status_set(SOL_E_ARGUMENT, "update %lld is not one of the last two",
                          (long long)step);
    if (slot->ready) SOL_TRY(gpu_event_wait(slot->ready));
    *loss = (double)slot->results[0];
    *norm = sqrt((double)slot->results[1]);
    return SOL_OK;
}

enum sol_status trainer_evaluate(struct trainer *t, const struct micro_batch *batch, float *nll)
{
    const size_t bytes = (size_t)rows_of(t) * sizeof *nll;
    SOL_TRY(place(t, batch, 0)); /* so that the loss stays */
    SOL_TRY(plan_run(t->evaluation, &t->context, false, NULL));
    if (t->gpu) {
        SOL_TRY(gpu_copy_out(t->context.stream, nll, t->act.at.nll, bytes));
        return gpu_wait(t->context.stream);
    }
    memcpy(nll, t->act.at.nll, bytes);
    return SOL_OK;
}

enum sol_status trainer_gather_states(struct trainer *t, int half)
{
    return t->ranks > 1 ? plan_run(t->gather[half], &t->context, false, NULL) : SOL_OK;
}

enum sol_status trainer_drop_gradients(struct trainer *t)
{
    t->micro_batch = 0;
    t->reduced = false;
    if (t->tree) tree_sum_drop(t->tree);
    SOL_TRY(clear(t, t->act.at.loss, sizeof *t->act.at.loss));
    return clear(t, t->weights->grads, t->weights->grad_bytes);
}

enum sol_status trainer_wait(struct trainer *t)
{
    return t->gpu ? gpu_wait(t->context.stream) : SOL_OK;
}
