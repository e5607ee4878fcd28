/* A trainer's steps: micro-batches in, updates, losses out; the host waits for nothing that it does
 * not need. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "gpu/device.h"
#include "train/trainer_private.h"

static const char range_step[] = "step", range_micro[] = "micro-batch", range_update[] = "update";
static const char range_last[] = "last micro-batch"; /* with sums over ranks */

enum sol_status trainer_refresh(struct trainer *t, int64_t step)
{
    const float round = recipe_rounds(t->recipe, step);
    t->step = step;
    t->micro_batch = 0;
    SOL_TRY(trainer_put(t, &t->small->rates.round, &round, sizeof round));
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
    const int64_t rows = trainer_rows(t), vocab = t->recipe->config.vocab;
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
    const int64_t rows = trainer_rows(t), vocab = t->recipe->config.vocab;
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
    const size_t rows = (size_t)trainer_rows(t);
    const struct pass_buffers *b = &t->act.at;
    struct slot *slot = &t->inputs[t->next_input];
    t->next_input = (t->next_input + 1) % TRAINER_SLOTS;
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
    SOL_TRY(trainer_clear(t, loss, sizeof *loss));
    return trainer_clear(t, sum, sizeof *sum);
}

enum sol_status trainer_update(struct trainer *t, int64_t step, bool timed)
{
    struct slot *slot = &t->results[step % TRAINER_SLOTS];
    if (slot->used && slot->ready) SOL_TRY(gpu_event_wait(slot->ready));
    update_rates_at(t->recipe, t->weights, step, slot->rates);
    SOL_TRY(trainer_put(t, &t->small->rates, slot->rates, sizeof *slot->rates));
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
    const struct slot *slot = &t->results[step % TRAINER_SLOTS];
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
    const size_t bytes = (size_t)trainer_rows(t) * sizeof *nll;
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
    SOL_TRY(trainer_clear(t, t->act.at.loss, sizeof *t->act.at.loss));
    return trainer_clear(t, t->weights->grads, t->weights->grad_bytes);
}

enum sol_status trainer_wait(struct trainer *t)
{
    return t->gpu ? gpu_wait(t->context.stream) : SOL_OK;
}
