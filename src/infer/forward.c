/* The one loop over layers. Which kernels serve the ops, on which device, is the plan's business.
 */
#include "infer/forward.h"

#include "model/architecture.h"
#include "ops/ops.h"

#define SOL_ARCHITECTURE(id) extern const struct forward forward_##id;
#include "model/architectures.list"
#undef SOL_ARCHITECTURE

const struct forward *forward_of(const struct model_config *config)
{
    static const struct forward *const entries[] = {
#define SOL_ARCHITECTURE(id) &forward_##id,
#include "model/architectures.list"
#undef SOL_ARCHITECTURE
    };
    int i = architecture_count - 1; /* their list is the same */
    while (i > 0 && architectures[i] != config->arch) i--;
    return entries[i];
}

/* ---- several ranks ---- */

bool forward_is_shared(const struct model_config *c)
{
    return c->ranks > 1;
}

bool forward_deals_experts(const struct model_config *c)
{
    return c->own_experts > 0;
}

const struct op *const *forward_parts(const struct model_config *c)
{
    return forward_is_shared(c) ? forward_of(c)->shared_parts : forward_of(c)->parts;
}

struct matrix forward_part(const struct forward_step *s)
{
    const struct forward_buffers *b = s->buffers;
    const struct model_config *c = &s->model->config;
    return matrix_f32(forward_is_shared(c) ? b->part : b->x, s->rows, c->hidden);
}

void forward_clear_part(struct plan *plan, const struct forward_step *s)
{
    const struct matrix part = forward_part(s);
    if (forward_is_shared(&s->model->config))
        plan_call(plan, &op_fill, &(struct fill_args){.m = part.rows, .n = part.cols, .x = part});
}

void forward_add_up(struct plan *plan, const struct forward_step *s, struct matrix part,
                    struct matrix x)
{
    const struct model_config *c = &s->model->config;
    if (!forward_is_shared(c)) return;
    plan_call(plan, &op_all_reduce_add,
              &(struct all_reduce_add_args){
                  .ranks = c->ranks, .m = x.rows, .n = x.cols, .part = part, .x = x});
}

/* Of one output the parts in their order are the row. */
static float *parts_of(const struct forward_step *s)
{
    return s->outputs == 1 ? s->buffers->logits : s->buffers->parts;
}

struct matrix forward_logits(const struct forward_step *s)
{
    const struct model_config *c = &s->model->config;
    if (!forward_is_shared(c)) return matrix_f32(s->buffers->logits, s->outputs, c->vocab);
    return matrix_f32(parts_of(s) + c->rank * s->outputs * c->head_rows, s->outputs, c->head_rows);
}

/* All ranks come, the first alone reads. */
static void join_logits(struct plan *plan, const struct forward_step *s)
{
    const struct model_config *c = &s->model->config;
    if (!forward_is_shared(c)) return;
    const struct matrix parts = matrix_f32(parts_of(s), c->ranks * s->outputs, c->head_rows);
    plan_call(plan, &op_all_gather,
              &(struct collective_args){
                  .ranks = c->ranks, .m = s->outputs, .n = c->head_rows, .x = parts});
    if (s->outputs > 1 && c->rank == 0)
        plan_call(
            plan, &op_join_columns,
            &(struct join_columns_args){.m = s->outputs,
                                        .n = c->vocab,
                                        .ranks = c->ranks,
                                        .x = parts,
                                        .y = matrix_f32(s->buffers->logits, s->outputs, c->vocab)});
}

/* ---- a step ---- */

void forward_build(struct plan *plan, const struct forward_step *step)
{
    const struct model_config *c = &step->model->config;
    const struct forward_buffers *b = step->buffers;
    const struct forward *forward = forward_of(c);
    if (step->rows) forward->before(plan, step);
    for (int64_t n = 0; n < c->n_layers && step->rows; n++) {
        plan_layer(plan, (int)n);
        if (!step->skip || !step->skip[n]) forward->layer(plan, step, n);
    }
    plan_layer(plan, -1);
    if (step->rows && step->outputs) forward->head(plan, step);
    if (step->rows && step->outputs) join_logits(plan, step);
    if (step->outputs && step->draw)
        plan_call(plan, &op_sample,
                  &(struct sample_args){.n = step->outputs,
                                        .vocab = c->vocab,
                                        .logits = matrix_f32(b->logits, step->outputs, c->vocab),
                                        .banned = b->banned,
                                        .lists = step->draw == FORWARD_DRAW_LISTS ? b->lists : NULL,
                                        .draws = b->draws,
                                        .token = b->token});
}
