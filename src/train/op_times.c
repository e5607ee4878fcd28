/* See op_times.h. */
#include "train/op_times.h"

#include <stdlib.h>
#include <string.h>

#include "trace/category.h"
#include "train/tuned.h"

void train_op_times_reset(struct trainer *trainer)
{
    plan_reset_times(trainer_micro_plan(trainer));
    plan_reset_times(trainer_last_plan(trainer));
    plan_reset_times(trainer_update_plan(trainer));
}

static struct train_op_time *find(struct train_op_times *out, const struct plan_step *s)
{
    for (int i = 0; i < out->count; i++)
        if (out->ops[i].op == s->op->name && strcmp(out->ops[i].variant, s->variant) == 0)
            return &out->ops[i];
    if (out->count == TRAIN_OPS_MAX) return NULL;
    out->ops[out->count] =
        (struct train_op_time){.op = s->op->name, .variant = s->variant, .numerics = s->numerics};
    return &out->ops[out->count++];
}

static void add_plan(const struct chooser *chooser, const struct plan *plan, int64_t times,
                     struct train_op_times *out)
{
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct plan_step *s = plan_step_at(plan, i);
        struct train_op_time *t = find(out, s);
        if (!t) out->left_out += times;
        if (!t) continue;
        const struct op_cost cost = s->op->cost(s->args);
        t->tuned = t->tuned || train_tuned_step(chooser, s);
        t->calls += times;
        t->runs += (int64_t)s->runs;
        t->ns += (double)s->ns;
        t->flops += (double)times * cost.flops;
        t->bytes += (double)times * cost.bytes;
    }
}

static int slower(const void *a, const void *b)
{
    const struct train_op_time *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

void train_op_times_read(struct trainer *trainer, int64_t micro_batches, bool update,
                         struct train_op_times *out)
{
    *out = (struct train_op_times){.count = 0};
    const struct plan *micro = trainer_micro_plan(trainer), *last = trainer_last_plan(trainer);
    const bool other = update && last != micro;
    const struct chooser *chooser = &trainer_params(trainer)->chooser;
    add_plan(chooser, micro, micro_batches - other, out);
    if (other) add_plan(chooser, last, 1, out);
    if (update) add_plan(chooser, trainer_update_plan(trainer), 1, out);
    qsort(out->ops, (size_t)out->count, sizeof *out->ops, slower);
}

double train_op_times_ns(const struct train_op_times *times)
{
    double ns = 0;
    for (int i = 0; i < times->count; i++) ns += times->ops[i].ns;
    return ns;
}

double train_op_times_preparing(const struct train_op_times *times)
{
    const double all = train_op_times_ns(times);
    double ns = 0;
    for (int i = 0; i < times->count; i++)
        if (category_prepares(category_of(times->ops[i].op))) ns += times->ops[i].ns;
    return all > 0 ? ns / all : 0;
}

int64_t train_op_times_surplus(const struct train_op_times *times)
{
    int64_t surplus = -times->left_out;
    for (int i = 0; i < times->count; i++) surplus += times->ops[i].runs - times->ops[i].calls;
    return surplus;
}
