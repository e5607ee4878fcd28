/* A trainer's lists of calls: forward and backward, the update, and what several ranks pass around.
 */
#include <stdlib.h>

#include "model/model.h"
#include "train/trainer_private.h"

int64_t trainer_rows(const struct trainer *t)
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

bool trainer_adds_up_shards(const struct trainer *t)
{
    return t->ranks > 1 && !t->params.tree;
}

static void reduce_left(void *arg, struct plan *plan, int64_t layer)
{
    update_reduce(plan, arg, layer);
}

static void build(const struct trainer *t, int list, struct plan *plan)
{
    struct pass pass = pass_of(t, list == LIST_EVALUATION);
    struct update update = {.params = t->weights,
                            .recipe = t->recipe,
                            .rates = &t->small->rates,
                            .sum = &t->small->sum,
                            .clip = &t->small->clip,
                            .bf16 = t->params.bf16,
                            .loss = t->act.at.loss,
                            .summed = t->params.tree};
    if (list == LIST_LAST) pass.left = reduce_left, pass.left_arg = &update;
    if (list == LIST_MICRO || list == LIST_LAST || list == LIST_EVALUATION)
        pass_forward(plan, &pass);
    if (list == LIST_MICRO || list == LIST_LAST) pass_backward(plan, &pass);
    for (int64_t n = t->recipe->config.n_layers - 1; list == LIST_REDUCE && n >= -1; n--)
        update_reduce(plan, &update, n);
    if (list == LIST_UPDATE) update_build(plan, &update);
    if (list == LIST_COPIES) update_copies(plan, t->weights, &t->small->rates.round);
    if (list >= LIST_GATHER) states_gather(plan, t->weights, list - LIST_GATHER);
}

enum sol_status trainer_make_list(const struct trainer *t, int list, bool dry, struct plan **out)
{
    SOL_TRY(plan_create(&t->params.chooser, out));
    if (!dry) plan_share(*out, t->scratch, t->scratch_bytes);
    if (!dry && (list == LIST_MICRO || list == LIST_REDUCE || list == LIST_UPDATE))
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
        build(t, update ? LIST_UPDATE : LIST_MICRO, *out);
        status = dry ? plan_finish_dry(*out) : plan_finish(*out);
        need = plan_bytes(*out);
        if (!dry && status == SOL_OK) return SOL_OK;
        plan_destroy(*out);
        *out = NULL;
    }
    return status;
}

enum sol_status trainer_measure_scratch(struct trainer *t)
{
    t->scratch_bytes = 0;
    for (int list = 0; list < LIST_COUNT; list++) {
        struct plan *plan = NULL;
        if ((list == LIST_LAST || list == LIST_REDUCE) && !trainer_adds_up_shards(t)) continue;
        enum sol_status status = trainer_make_list(t, list, true, &plan);
        size_t bytes = plan ? plan_bytes(plan) : 0;
        plan_destroy(plan);
        if (status != SOL_OK) return status;
        if (bytes > t->scratch_bytes) t->scratch_bytes = bytes;
    }
    return SOL_OK;
}

enum sol_status trainer_make_lists(struct trainer *t)
{
    /* The rotation's scale is known to plans when they are made. */
    float *unused = calloc((size_t)t->recipe->config.head_dim, sizeof *unused);
    if (!unused) return status_set(SOL_E_MEMORY, "no memory for frequencies");
    model_rope_frequencies(&t->recipe->config, false, unused, &t->act.at.rope_scale);
    free(unused);
    SOL_TRY(trainer_make_list(t, LIST_MICRO, false, &t->micro));
    if (trainer_adds_up_shards(t)) SOL_TRY(trainer_make_list(t, LIST_LAST, false, &t->last));
    if (trainer_adds_up_shards(t)) SOL_TRY(trainer_make_list(t, LIST_REDUCE, false, &t->reduce));
    SOL_TRY(trainer_make_list(t, LIST_EVALUATION, false, &t->evaluation));
    SOL_TRY(trainer_make_list(t, LIST_UPDATE, false, &t->update));
    SOL_TRY(trainer_make_list(t, LIST_COPIES, false, &t->copies));
    for (int half = 0; half < STATE_HALVES; half++)
        SOL_TRY(trainer_make_list(t, LIST_GATHER + half, false, &t->gather[half]));
    return SOL_OK;
}
