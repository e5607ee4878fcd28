/* Which lists an architecture has, and what all of them are written with. */
#include "train/pass.h"

#include "model/architecture.h"
#include "ops/ops.h"

#define SOL_ARCHITECTURE(id) extern const struct pass_entry pass_##id;
#include "model/architectures.list"
#undef SOL_ARCHITECTURE

const struct pass_entry *pass_entry_of(const struct model_config *config)
{
    static const struct pass_entry *const entries[] = {
#define SOL_ARCHITECTURE(id) &pass_##id,
#include "model/architectures.list"
#undef SOL_ARCHITECTURE
    };
    int i = architecture_count - 1; /* their list is the same */
    while (i > 0 && architectures[i] != config->arch) i--;
    return entries[i];
}

void pass_forward(struct plan *plan, const struct pass *p)
{
    pass_entry_of(&p->params->model.config)->forward(plan, p);
}

void pass_backward(struct plan *plan, const struct pass *p)
{
    pass_entry_of(&p->params->model.config)->backward(plan, p);
}

struct matrix pass_rows(const struct pass *p, void *data, int64_t cols)
{
    return matrix_of(p->dtype, data, p->sequences * p->length, cols);
}

struct matrix pass_hidden(const struct pass *p, void *data)
{
    return pass_rows(p, data, p->params->model.config.hidden);
}

struct matrix pass_weight(const struct tensor *w)
{
    return matrix_of(w->dtype, (void *)(uintptr_t)w->data, w->groups * w->rows, w->cols);
}

struct matrix pass_grad_of(const struct pass *p, const void *field)
{
    for (int i = 0; i < p->params->count; i++)
        if (weight_field(&p->params->model, &p->params->all[i].weight) == field)
            return p->params->all[i].grad;
    return (struct matrix){0};
}

float *pass_vector_grad_of(const struct pass *p, const void *field)
{
    return pass_grad_of(p, field).data;
}

/* clang-format off */
void pass_linear(struct plan *plan, struct matrix x, struct matrix w, struct matrix add, struct matrix y)
{
    plan_call(plan, &op_matmul,
              &(struct matmul_args){
                  .batch = 1, .m = y.rows, .n = y.cols, .k = x.cols, .transpose_b = true, .alpha = 1,
                  .beta = add.data ? 1 : 0, .a = x, .b = w, .add = add, .out = y});
}

void pass_linear_backward(struct plan *plan, const struct pass *p, struct matrix dy, struct matrix x,
                          const struct tensor *w, struct matrix add, struct matrix dx)
{
    const struct matrix dw = pass_grad_of(p, w);
    plan_call(plan, &op_matmul,
              &(struct matmul_args){
                  .batch = 1, .m = dy.cols, .n = x.cols, .k = dy.rows, .transpose_a = true, .alpha = 1,
                  .beta = 1, .a = dy, .b = x, .add = dw, .out = dw});
    plan_call(plan, &op_matmul,
              &(struct matmul_args){
                  .batch = 1, .m = dx.rows, .n = dx.cols, .k = dy.cols, .alpha = 1,
                  .beta = add.data ? 1 : 0, .a = dy, .b = pass_weight(w), .add = add, .out = dx});
}

void pass_norm(struct plan *plan, const struct pass *p, struct matrix x, const float *const *gain,
               struct matrix y)
{
    plan_call(plan, &op_rmsnorm,
              &(struct rmsnorm_args){
                  .m = x.rows, .n = x.cols, .eps = p->params->model.config.rms_eps, .x = x,
                  .gain = gain ? *gain : NULL, .y = y});
}

void pass_norm_backward(struct plan *plan, const struct pass *p, struct matrix x,
                        const float *const *gain, struct matrix dy, struct matrix dx)
{
    plan_call(plan, &op_rmsnorm_backward,
              &(struct rmsnorm_backward_args){
                  .m = x.rows, .n = x.cols, .eps = p->params->model.config.rms_eps, .x = x, .dy = dy,
                  .gain = gain ? *gain : NULL, .dgain = gain ? pass_vector_grad_of(p, gain) : NULL,
                  .dx = dx});
}

void pass_loss(struct plan *plan, const struct pass *p, float cap)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const struct matrix normed = pass_hidden(p, b->normed), none = {0};
    plan_call(plan, &op_linear_cross_entropy,
              &(struct linear_cross_entropy_args){
                  .m = normed.rows, .hidden = m->config.hidden, .vocab = m->config.vocab,
                  .chunk = p->loss_chunk, .cap = cap, .gradient = !p->evaluate, .target = b->target,
                  .scale = b->scale, .x = normed, .w = pass_weight(&m->head), .nll = b->nll,
                  .dx = p->evaluate ? none : pass_hidden(p, b->dnormed),
                  .dw = p->evaluate ? none : pass_grad_of(p, &m->head)});
    plan_call(plan, &op_weighted_sum,
              &(struct weighted_sum_args){.n = normed.rows, .x = b->nll, .scale = b->scale, .sum = b->loss});
}
/* clang-format on */
