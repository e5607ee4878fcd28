/* See training.h. */
#include "scale/training.h"

#include "base/status.h"

enum sol_status scale_training_work(const struct scale_training *t, int64_t ranks,
                                    int64_t sequences, struct work *micro, struct work *update)
{
    struct trainer_params params = t->params;
    struct trainer *trainer;
    struct trainer_memory memory;
    params.sequences = sequences;
    *micro = *update = (struct work){0};
    SOL_TRY(trainer_outline(&params, (int)ranks, &trainer));
    enum sol_status status = work_add(micro, trainer_micro_plan(trainer), &t->limits, 1);
    if (status == SOL_OK) status = work_add(update, trainer_update_plan(trainer), &t->limits, 1);
    if (status == SOL_OK && trainer_reduce_plan(trainer))
        status = work_add(update, trainer_reduce_plan(trainer), &t->limits, 1);
    trainer_memory(trainer, &memory);
    micro->memory = update->memory = trainer_memory_total(&memory);
    trainer_destroy(trainer);
    return status;
}

/* ---- one GPU ---- */

struct wanted {
    const struct scale_training *t;
    const struct network *network;
    int64_t gpus, sequences, micro_batches; /* of a GPU, where each works alone */
    struct work micro, update;              /* of one GPU, as it was measured */
    double micro_ns, update_ns;
    struct scale_way *ways;
    int *n;
};

static void split_step(struct wanted *w, const struct scale_trained *measured)
{
    const double batches = (double)w->t->micro_batches;
    const double micro = batches * work_limit_ns(&w->micro), update = work_limit_ns(&w->update);
    w->update_ns = measured->update_ns > 0 ? measured->update_ns
                                           : measured->step_ns * update / (micro + update);
    w->micro_ns = (measured->step_ns - w->update_ns) / batches;
}

/* Whole sequences of an update for each: micro-batches of the size that was measured, or a smaller
 * one. false: it cannot be cut so. */
static bool cut(struct wanted *w)
{
    const int64_t length = w->t->params.recipe->length, measured = w->t->params.sequences;
    w->sequences = measured;
    w->micro_batches = w->t->micro_batches;
    if (!w->t->tokens) return true;
    if (w->t->tokens % (length * w->gpus)) return false;
    const int64_t each = w->t->tokens / (length * w->gpus);
    w->sequences = each < measured ? each : measured;
    w->micro_batches = each / w->sequences;
    return each % w->sequences == 0;
}

static double compute_ns(const struct work *one, const struct work *part, double ns)
{
    const struct scale_measured measured = {.step_ns = ns};
    return scale_compute_ns(one, part, &measured);
}

/* ---- ways ---- */

/* Of a part of the model that `of` GPUs have one of each. */
static void take_part(struct work *w, double of)
{
    for (int i = 0; i < w->n_parts; i++) w->parts[i].limit_ns /= of;
    for (int i = 0; i < w->n_messages; i++) w->messages[i].bytes /= of;
}

static struct network_ranks apart(const struct wanted *w, int64_t count, int64_t between)
{
    const int64_t node = w->network->node;
    const int64_t in_node = node / between > 1 ? node / between : 1;
    return (struct network_ranks){count, count < in_node ? count : in_node};
}

/* `group` GPUs have one model together, and copies of it add up their gradients. */
static enum sol_status add_way(const struct wanted *w, int64_t group, struct scale_way **out)
{
    struct work micro, update;
    const int64_t copies = w->gpus / group;
    SOL_TRY(scale_training_work(w->t, copies, w->sequences, &micro, &update));
    take_part(&update, (double)group);
    struct scale_way *way = *out = &w->ways[(*w->n)++];
    *way = (struct scale_way){.tensor = 1, .data = copies, .expert = 1, .stages = 1};
    const double batches = (double)(w->micro_batches * group);
    way->compute_ns = batches * compute_ns(&w->micro, &micro, w->micro_ns) / (double)group +
                      compute_ns(&w->update, &update, w->update_ns);
    way->messages_ns = scale_messages_ns(&update, w->network, apart(w, copies, group)) +
                       batches * scale_messages_ns(&micro, w->network, apart(w, copies, group));
    way->tokens = (double)(w->gpus * w->micro_batches * w->sequences * w->t->params.recipe->length);
    way->memory = update.memory / (size_t)group;
    return SOL_OK;
}

/* As models are shared for inference: two sums a layer forward, of rows in bf16, and two back. */
static enum sol_status add_tensor(const struct wanted *w, int64_t group)
{
    const struct train_recipe *r = w->t->params.recipe;
    struct scale_way *way;
    SOL_TRY(add_way(w, group, &way));
    const double bytes = 2 * (double)(w->sequences * r->length * r->config.hidden);
    const double calls = 4 * (double)(w->micro_batches * group * r->config.n_layers);
    way->tensor = group;
    way->messages_ns +=
        calls * network_ns(w->network, "all_reduce", bytes, (struct network_ranks){group, group});
    return SOL_OK;
}

/* Layers dealt out; sequences follow each other through them, one by one, forward and back. */
static enum sol_status add_stages(const struct wanted *w, int64_t stages)
{
    const struct train_recipe *r = w->t->params.recipe;
    struct scale_way *way;
    SOL_TRY(add_way(w, stages, &way));
    const double groups = (double)(w->micro_batches * w->sequences * stages);
    const double times = groups + (double)stages - 1;
    const double bytes = 2 * (double)(r->length * r->config.hidden);
    const double micro = groups * w->micro_ns / (double)(w->t->params.sequences * stages);
    way->stages = stages;
    way->messages_ns += 2 * times * network_send_ns(w->network, bytes, false);
    way->idle_ns = micro * ((double)stages - 1) / groups;
    return SOL_OK;
}

enum sol_status scale_training_ways(const struct scale_training *t, const struct network *network,
                                    const struct scale_trained *measured, int64_t gpus,
                                    size_t memory, struct scale_way ways[SCALE_WAYS_MAX], int *n)
{
    const int64_t length = t->params.recipe->length;
    struct wanted w = {.t = t, .network = network, .gpus = gpus, .ways = ways, .n = n};
    struct scale_goal goal = {gpus, (double)(t->micro_batches * t->params.sequences * length),
                              measured->step_ns, memory};
    struct scale_way *way;
    *n = 0;
    SOL_TRY(scale_training_work(t, 1, t->params.sequences, &w.micro, &w.update));
    split_step(&w, measured);
    if (!cut(&w)) return SOL_OK;
    if (t->tokens) { /* one GPU would make as large an update */
        const double batches = (double)t->tokens / (double)(t->params.sequences * length);
        goal.tokens = (double)t->tokens;
        goal.one_ns = batches * w.micro_ns + w.update_ns;
    }
    SOL_TRY(add_way(&w, 1, &way));
    way->built = true;
    for (int64_t group = 2; group <= network->node && group <= gpus; group *= 2) {
        if (gpus % group) continue;
        if (t->params.recipe->config.n_kv_heads % group == 0) SOL_TRY(add_tensor(&w, group));
        if (t->params.recipe->config.n_layers % group == 0) SOL_TRY(add_stages(&w, group));
    }
    for (int i = 0; i < *n; i++) scale_settle(&ways[i], &goal);
    return SOL_OK;
}
