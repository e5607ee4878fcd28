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
