/* How many sequences a micro-batch of a trainer has, and what of it is made again: what fits into
 * the memory of this rank and of the others. */
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "gpu/device.h"
#include "train/trainer_private.h"

enum {
    SEQUENCES_MAX = 32,  /* where nothing is said: more are no faster */
    RESERVE = 256 << 20, /* of a GPU's memory, for what libraries and graphs take */
};

size_t trainer_memory_total(const struct trainer_memory *m)
{
    return m->weights + m->gradients + m->optimizer + m->activations + m->scratch;
}

void trainer_set_batch(struct trainer *t)
{
    struct pass_buffers *b = &t->act.at;
    t->batch = (struct batch){.n_tokens = trainer_rows(t),
                              .token = b->token,
                              .position = b->position,
                              .sequence = b->sequence};
}

enum sol_status trainer_describe(struct trainer *t, int64_t sequences, enum recompute recompute)
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
    trainer_set_batch(t);
    return trainer_measure_scratch(t);
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

size_t trainer_size(const struct trainer *t)
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
        (long long)t->act.sequences, (long long)t->recipe->length, (double)trainer_size(t) / gib,
        (double)m.weights / gib, (double)m.gradients / gib, (double)m.optimizer / gib,
        (double)m.activations / gib, (double)m.scratch / gib, (double)room / gib);
}

enum sol_status trainer_agree_size(struct trainer *t)
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
    return trainer_describe(t, least.sequences, (enum recompute)least.recompute);
}

enum sol_status trainer_choose_size(struct trainer *t)
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
            SOL_TRY(trainer_describe(t, n, (enum recompute)again));
            if (!room || trainer_size(t) <= room) return SOL_OK;
        }
    }
    if (t->act.sequences) return too_little(t, room);
    return status_set(SOL_E_ARGUMENT,
                      "an update of %lld tokens has no whole sequences of %lld; change "
                      "--total-batch-size or --max-seq-len",
                      (long long)t->recipe->total_batch, (long long)t->recipe->length);
}

enum sol_status trainer_take_tuning(struct trainer *t, const struct tuning *tuning)
{
    size_t room;
    if (!tuning) return SOL_OK;
    SOL_TRY(available(t, &room));
    t->params.chooser.tuning = tuning;
    SOL_TRY(trainer_describe(t, t->act.sequences, t->act.recompute));
    if (!room || trainer_size(t) <= room) return SOL_OK;
    t->params.chooser.tuning = NULL;
    return trainer_describe(t, t->act.sequences, t->act.recompute);
}

enum sol_status trainer_agree_tuning(struct trainer *t, const struct tuning *tuning)
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
    return trainer_describe(t, t->act.sequences, t->act.recompute);
}

enum sol_status trainer_scratch_room(const struct trainer *t, size_t *bytes)
{
    const size_t own = trainer_size(t), limit = t->params.memory;
    *bytes = memory_available();
    if (!*bytes) *bytes = SIZE_MAX / 2; /* unknown */
    if (t->gpu) SOL_TRY(gpu_memory_free(t->gpu, bytes));
    if (t->gpu) *bytes = *bytes > RESERVE ? *bytes - RESERVE : 0;
    if (limit && *bytes > (limit > own ? limit - own : 0)) *bytes = limit > own ? limit - own : 0;
    *bytes += t->scratch_bytes;
    return SOL_OK;
}
