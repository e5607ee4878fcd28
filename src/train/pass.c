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
    pass_leave(plan, p, -1);
}

void pass_leave(struct plan *plan, const struct pass *p, int64_t n)
{
    if (p->left) p->left(p->left_arg, plan, n);
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
/* NVFP4's numbers for `from`, or for its transpose, at `to`. Random bits depend on parameter and
 * operand. */
static void quantise_nvfp4(struct plan *plan, const struct pass *p, const struct param *param,
                           enum operand operand, struct matrix from, void *to)
{
    const bool gradient = operand == OPERAND_DY || operand == OPERAND_DY_TURNED;
    const bool turned = operand == OPERAND_X_TURNED || operand == OPERAND_DY_TURNED;
    struct quantise_args a = {
        .m = from.rows, .n = from.cols, .format = DTYPE_NVFP4, .key = p->buffers->key,
        .stream = STREAM_QUANTISE + (uint32_t)(param->number * OPERANDS) + operand, .scale = param->scale[operand],
        .from = from, .to = matrix_of(p->dtype, to, from.rows, from.cols)};
    if (turned) a.features |= QUANTISE_TRANSPOSED | QUANTISE_HADAMARD;
    if (turned) a.to = matrix_of(p->dtype, to, from.cols, from.rows);
    if (gradient) a.features |= QUANTISE_STOCHASTIC;
    plan_call(plan, &op_quantise, &a);
}

/* Codes at `rows`, those of the transpose at `turned`; either may be NULL. */
static void quantise_fp8(struct plan *plan, const struct param *param, enum operand operand,
                         struct matrix from, void *rows, void *turned)
{
    plan_call(plan, &op_quantise,
              &(struct quantise_args){
                  .m = from.rows, .n = from.cols, .scale = param->scale[operand], .from = from,
                  .format = operand == OPERAND_DY ? DTYPE_FP8_E5M2 : DTYPE_FP8_E4M3,
                  .codes = rows, .codes_turned = turned});
}

struct linear_input pass_input(struct plan *plan, const struct pass *p, struct matrix x, const struct tensor *w,
                               void *turned)
{
    const struct param *param = small_of(p, w);
    void *small = p->buffers->small_x;
    if (!param) return (struct linear_input){.x = x};
    if (p->precision == PRECISION_FP8)
        quantise_fp8(plan, param, OPERAND_X, x, small, turned);
    else
        quantise_nvfp4(plan, p, param, OPERAND_X, x, small);
    return (struct linear_input){x, small, factor_of(param, OPERAND_X)};
}

struct linear_input pass_input_backward(struct plan *plan, const struct pass *p, struct matrix x,
                                        const struct tensor *w, void *turned)
{
    const struct param *param = small_of(p, w);
    const bool fp8 = p->precision == PRECISION_FP8;
    const enum operand operand = fp8 ? OPERAND_X : OPERAND_X_TURNED;
    void *small = turned ? turned : p->buffers->small_x;
    if (!param) return (struct linear_input){.x = x};
    if (!fp8) quantise_nvfp4(plan, p, param, operand, x, small);
    if (fp8 && !turned) quantise_fp8(plan, param, operand, x, NULL, small);
    return (struct linear_input){x, small, factor_of(param, operand)};
}

static struct linear_input relu2_fp8(struct plan *plan, const struct param *param, struct matrix x, void *small,
                                     void *codes, void *turned)
{
    plan_call(plan, &op_relu2_fp8,
              &(struct relu2_fp8_args){
                  .m = x.rows, .n = x.cols, .format = DTYPE_FP8_E4M3, .scale = param->scale[OPERAND_X],
                  .x = x, .codes = codes, .codes_turned = turned});
    return (struct linear_input){x, small, factor_of(param, OPERAND_X)};
}

struct linear_input pass_relu2(struct plan *plan, const struct pass *p, struct matrix x, const struct tensor *w,
                               void *turned)
{
    const struct param *param = small_of(p, w);
    void *small = p->buffers->small_x;
    if (param && p->precision == PRECISION_FP8) return relu2_fp8(plan, param, x, small, small, turned);
    plan_call(plan, &op_relu2, &(struct relu2_args){.m = x.rows, .n = x.cols, .x = x});
    return pass_input(plan, p, x, w, NULL);
}

struct linear_input pass_relu2_backward(struct plan *plan, const struct pass *p, struct matrix x,
                                        const struct tensor *w)
{
    const struct param *param = small_of(p, w);
    void *small = p->buffers->small_x;
    if (param && p->precision == PRECISION_FP8) return relu2_fp8(plan, param, x, small, NULL, small);
    plan_call(plan, &op_relu2, &(struct relu2_args){.m = x.rows, .n = x.cols, .x = x});
    return pass_input_backward(plan, p, x, w, NULL);
}

/* Both in FP8, their rows along the k that is summed over. */
static void fp8_product(struct plan *plan, enum dtype format, const void *a, const float *factor_a,
                        const void *b, const float *factor_b, int64_t k, bool fast,
                        struct matrix add, struct matrix out)
{
    plan_call(plan, &op_fp8_matmul,
              &(struct fp8_matmul_args){
                  .m = out.rows, .n = out.cols, .k = k, .format_a = format,
                  .format_b = DTYPE_FP8_E4M3, .a = a, .b = b, .factor_a = factor_a,
                  .factor_b = factor_b, .beta = add.data ? 1 : 0, .fast = fast, .add = add, .out = out});
}

void pass_linear(struct plan *plan, const struct pass *p, struct linear_input x, const struct tensor *w,
                 struct matrix add, struct matrix y)
{
    const struct param *param = small_of(p, w);
    struct matmul_args a = {
        .batch = 1, .m = y.rows, .n = y.cols, .k = x.x.cols, .transpose_b = true, .alpha = 1,
        .beta = add.data ? 1 : 0, .a = x.x, .b = pass_weight(w), .add = add, .out = y};
    if (param && p->precision == PRECISION_FP8) {
        fp8_product(plan, DTYPE_FP8_E4M3, x.small, x.factor, param->small.data,
                    factor_of(param, OPERAND_W), a.k, true, add, y);
        return;
    }
    if (param) {
        a.a.data = x.small, a.b = param->small;
        a.factor_a = x.factor, a.factor_b = factor_of(param, OPERAND_W);
    }
    plan_call(plan, &op_matmul, &a);
}

/* dy in the small format of param's products, at small_dy and small_dy_turned. */
static void quantise_dy(struct plan *plan, const struct pass *p, const struct param *param, struct matrix dy)
{
    void *rows = p->buffers->small_dy, *turned = p->buffers->small_dy_turned;
    if (p->precision == PRECISION_FP8) {
        quantise_fp8(plan, param, OPERAND_DY, dy, rows, turned);
        return;
    }
    quantise_nvfp4(plan, p, param, OPERAND_DY, dy, rows);
    quantise_nvfp4(plan, p, param, OPERAND_DY_TURNED, dy, turned);
}

static void fp8_products_backward(struct plan *plan, const struct pass *p, const struct param *param,
                                  struct matrix dy, struct linear_input x, struct matrix add, struct matrix dx)
{
    const struct pass_buffers *b = p->buffers;
    const float *factor = factor_of(param, OPERAND_DY);
    fp8_product(plan, DTYPE_FP8_E5M2, b->small_dy_turned, factor, x.small, x.factor, dy.rows, false,
                param->grad, param->grad);
    fp8_product(plan, DTYPE_FP8_E5M2, b->small_dy, factor, param->small_turned.data,
                factor_of(param, OPERAND_W), dy.cols, false, add, dx);
}

/* With dy in the small format, where `param` is not NULL. */
static void products_backward(struct plan *plan, const struct pass *p, const struct param *param, struct matrix dy,
                              struct linear_input x, const struct tensor *w, struct matrix add, struct matrix dx)
{
    const struct matrix dw = pass_grad_of(p, w);
    struct matmul_args of_w = {
        .batch = 1, .m = dy.cols, .n = x.x.cols, .k = dy.rows, .transpose_a = true, .alpha = 1,
        .beta = 1, .a = dy, .b = x.x, .add = dw, .out = dw};
    struct matmul_args of_x = {
        .batch = 1, .m = dx.rows, .n = dx.cols, .k = dy.cols, .alpha = 1,
        .beta = add.data ? 1 : 0, .a = dy, .b = pass_weight(w), .add = add, .out = dx};
    if (param && p->precision == PRECISION_FP8) {
        fp8_products_backward(plan, p, param, dy, x, add, dx);
        return;
    }
    if (param) {
        of_w.transpose_a = false, of_w.transpose_b = true;
        of_w.a = matrix_of(p->dtype, p->buffers->small_dy_turned, dy.cols, dy.rows);
        of_w.b = matrix_of(p->dtype, x.small, x.x.cols, x.x.rows);
        of_w.factor_a = factor_of(param, OPERAND_DY_TURNED), of_w.factor_b = x.factor;
        of_x.a.data = p->buffers->small_dy, of_x.b = param->small;
        of_x.factor_a = factor_of(param, OPERAND_DY), of_x.factor_b = factor_of(param, OPERAND_W);
    }
    plan_call(plan, &op_matmul, &of_w);
    plan_call(plan, &op_matmul, &of_x);
}

void pass_linear_backward(struct plan *plan, const struct pass *p, struct matrix dy, struct linear_input x,
                          const struct tensor *w, struct matrix add, struct matrix dx)
{
    const struct param *param = small_of(p, w);
    if (param) quantise_dy(plan, p, param, dy);
    products_backward(plan, p, param, dy, x, w, add, dx);
}

void pass_relu2_linear_backward(struct plan *plan, const struct pass *p, struct matrix y, struct matrix dy,
                                struct linear_input x, const struct tensor *w, struct matrix add, struct matrix dx)
{
    const struct param *param = small_of(p, w);
    const struct pass_buffers *b = p->buffers;
    if (param && p->precision == PRECISION_FP8) {
        plan_call(plan, &op_relu2_fp8,
                  &(struct relu2_fp8_args){
                      .m = y.rows, .n = y.cols, .format = DTYPE_FP8_E5M2, .scale = param->scale[OPERAND_DY],
                      .x = dy, .y = y, .codes = b->small_dy, .codes_turned = b->small_dy_turned});
        products_backward(plan, p, param, dy, x, w, add, dx);
        return;
    }
    plan_call(plan, &op_relu2_backward, &(struct relu2_backward_args){.m = y.rows, .n = y.cols, .y = y, .d = dy});
    pass_linear_backward(plan, p, dy, x, w, add, dx);
}

void pass_norm(struct plan *plan, const struct pass *p, struct matrix x, const float *const *gain,
               struct matrix y)
{
    plan_call(plan, &op_rmsnorm,
              &(struct rmsnorm_args){
                  .m = x.rows, .n = x.cols, .eps = p->params->model.config.rms_eps, .x = x,
                  .gain = gain ? *gain : NULL, .y = y});
}

void pass_add_norm(struct plan *plan, const struct pass *p, struct matrix x, struct matrix add,
                   const float *const *gain, struct matrix sum, struct matrix copy, struct matrix y)
{
    plan_call(plan, &op_add_rmsnorm,
              &(struct add_rmsnorm_args){
                  .m = x.rows, .n = x.cols, .eps = p->params->model.config.rms_eps, .x = x, .add = add,
                  .gain = gain ? *gain : NULL, .sum = sum, .y = y, .copy = copy});
}

static struct matrix wide_stream(const struct pass *p)
{
    return matrix_f32(p->buffers->wide, p->sequences * p->length, p->params->model.config.hidden);
}

void pass_wide_begin(struct plan *plan, const struct pass *p)
{
    const struct matrix x = pass_hidden(p, p->buffers->layers[0].stream);
    plan_call(plan, &op_convert,
              &(struct convert_args){.m = x.rows, .n = x.cols, .from = x, .to = wide_stream(p)});
}

void pass_wide_add(struct plan *plan, const struct pass *p, void *add, const float *const *gain, void *copy, void *y)
{
    const struct matrix wide = wide_stream(p);
    pass_add_norm(plan, p, wide, pass_hidden(p, add), gain, wide, pass_hidden(p, copy), pass_hidden(p, y));
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
                  .cap = cap, .gradient = !p->evaluate, .target = b->target,
                  .scale = b->scale, .x = normed, .w = pass_weight(&m->head), .nll = b->nll,
                  .dx = p->evaluate ? none : pass_hidden(p, b->dnormed),
                  .dw = p->evaluate ? none : pass_grad_of(p, &m->head),
                  .w_codes = small ? small->small.data : NULL,
                  .w_codes_turned = small ? small->small_turned.data : NULL,
                  .scale_w = small ? small->scale[OPERAND_W] : NULL,
                  .scale_x = small ? small->scale[OPERAND_X] : NULL,
                  .scale_d = small ? small->scale[OPERAND_DY] : NULL});
    plan_call(plan, &op_weighted_sum,
              &(struct weighted_sum_args){.n = normed.rows, .x = b->nll, .scale = b->scale, .sum = b->loss});
}
/* clang-format on */
