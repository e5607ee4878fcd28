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
    const struct param *param = params_of_field(p->params, field);
    return param ? param->grad : (struct matrix){0};
}

float *pass_vector_grad_of(const struct pass *p, const void *field)
{
    return pass_grad_of(p, field).data;
}

/* ---- products with weights ---- */

/* Of a weight whose products are in a small format; else NULL. */
static const struct param *small_of(const struct pass *p, const struct tensor *w)
{
    if (p->precision == PRECISION_PLAIN || p->evaluate) return NULL;
    const struct param *param = params_of_field(p->params, w);
    return param && param->small.data ? param : NULL;
}

static const float *factor_of(const struct param *param, enum operand operand)
{
    return &param->scale[operand]->factor;
}

/* clang-format off */
/* Into memory at `to`. Random bits depend on parameter and operand. */
static struct matrix quantise(struct plan *plan, const struct pass *p, const struct param *param,
                              enum operand operand, struct matrix from, void *to)
{
    const bool fp8 = p->precision == PRECISION_FP8;
    const bool gradient = operand == OPERAND_DY || operand == OPERAND_DY_TURNED;
    const bool turned = operand == OPERAND_X_TURNED || operand == OPERAND_DY_TURNED;
    struct quantise_args a = {
        .m = from.rows, .n = from.cols, .key = p->buffers->key,
        .format = !fp8 ? DTYPE_NVFP4 : gradient ? DTYPE_FP8_E5M2 : DTYPE_FP8_E4M3,
        .stream = (uint32_t)(param->number * OPERANDS) + operand, .scale = param->scale[operand],
        .from = from, .to = pass_rows(p, to, from.cols)};
    if (turned) a.features |= QUANTISE_TRANSPOSED | QUANTISE_HADAMARD;
    if (gradient && !fp8) a.features |= QUANTISE_STOCHASTIC;
    if (turned) a.to = matrix_of(a.to.dtype, to, from.cols, from.rows);
    plan_call(plan, &op_quantise, &a);
    return a.to;
}

static struct input make_input(struct plan *plan, const struct pass *p, struct matrix x,
                               const struct tensor *w, enum operand operand)
{
    const struct param *param = small_of(p, w);
    struct input input = {.x = x};
    if (!param) return input;
    input.small = quantise(plan, p, param, operand, x, p->buffers->small_x);
    input.factor = factor_of(param, operand);
    return input;
}

struct input pass_input(struct plan *plan, const struct pass *p, struct matrix x, const struct tensor *w)
{
    return make_input(plan, p, x, w, OPERAND_X);
}

struct input pass_input_backward(struct plan *plan, const struct pass *p, struct matrix x,
                                 const struct tensor *w)
{
    return make_input(plan, p, x, w, p->precision == PRECISION_NVFP4 ? OPERAND_X_TURNED : OPERAND_X);
}

void pass_linear(struct plan *plan, const struct pass *p, struct input x, const struct tensor *w,
                 struct matrix add, struct matrix y)
{
    const struct param *param = small_of(p, w);
    struct matmul_args a = {
        .batch = 1, .m = y.rows, .n = y.cols, .k = x.x.cols, .transpose_b = true, .alpha = 1,
        .beta = add.data ? 1 : 0, .a = x.x, .b = pass_weight(w), .add = add, .out = y};
    if (param) {
        a.a = x.small, a.b = param->small;
        a.factor_a = x.factor, a.factor_b = factor_of(param, OPERAND_W);
    }
    plan_call(plan, &op_matmul, &a);
}

void pass_linear_backward(struct plan *plan, const struct pass *p, struct matrix dy, struct input x,
                          const struct tensor *w, struct matrix add, struct matrix dx)
{
    const struct param *param = small_of(p, w);
    const bool turned = param && p->precision == PRECISION_NVFP4;
    const struct matrix dw = pass_grad_of(p, w);
    struct matmul_args of_w = {
        .batch = 1, .m = dy.cols, .n = x.x.cols, .k = dy.rows, .transpose_a = !turned,
        .transpose_b = turned, .alpha = 1, .beta = 1, .a = dy, .b = x.x, .add = dw, .out = dw};
    struct matmul_args of_x = {
        .batch = 1, .m = dx.rows, .n = dx.cols, .k = dy.cols, .alpha = 1,
        .beta = add.data ? 1 : 0, .a = dy, .b = pass_weight(w), .add = add, .out = dx};
    if (param) {
        of_x.a = of_w.a = quantise(plan, p, param, OPERAND_DY, dy, p->buffers->small_dy);
        of_x.b = param->small;
        of_x.factor_a = of_w.factor_a = factor_of(param, OPERAND_DY);
        of_x.factor_b = factor_of(param, OPERAND_W);
        of_w.b = x.small, of_w.factor_b = x.factor;
    }
    if (turned) {
        of_w.a = quantise(plan, p, param, OPERAND_DY_TURNED, dy, p->buffers->small_dy_turned);
        of_w.factor_a = factor_of(param, OPERAND_DY_TURNED);
    }
    plan_call(plan, &op_matmul, &of_w);
    plan_call(plan, &op_matmul, &of_x);
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
    const struct param *small = small_of(p, &m->head);
    plan_call(plan, &op_linear_cross_entropy,
              &(struct linear_cross_entropy_args){
                  .m = normed.rows, .hidden = m->config.hidden, .vocab = m->config.vocab,
                  .chunk = p->loss_chunk, .cap = cap, .gradient = !p->evaluate, .target = b->target,
                  .scale = b->scale, .x = normed, .w = pass_weight(&m->head), .nll = b->nll,
                  .dx = p->evaluate ? none : pass_hidden(p, b->dnormed),
                  .dw = p->evaluate ? none : pass_grad_of(p, &m->head),
                  .w_small = small ? small->small : none,
                  .scale_w = small ? small->scale[OPERAND_W] : NULL,
                  .scale_x = small ? small->scale[OPERAND_X] : NULL,
                  .scale_d = small ? small->scale[OPERAND_DY] : NULL});
    plan_call(plan, &op_weighted_sum,
              &(struct weighted_sum_args){.n = normed.rows, .x = b->nll, .scale = b->scale, .sum = b->loss});
}
/* clang-format on */
