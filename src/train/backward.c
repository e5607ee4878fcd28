/* The backward pass of GPT: the forward pass's calls in reverse. dstream is the gradient of the
 * residual stream where the list has arrived; gradients of weights are accumulated. What is cheap
 * to make again (norms, the mix of a layer's input, the wide activation) is, where it was not kept.
 */
#include "ops/ops.h"
#include "train/pass.h"

static struct matrix hidden(const struct pass *p, void *data)
{
    return pass_rows(p, data, p->params->model.config.hidden);
}

/* The gradient of what the model's field is. */
static struct matrix grad_of(const struct pass *p, const void *field)
{
    for (int i = 0; i < p->params->count; i++)
        if (weight_field(&p->params->model, &p->params->all[i].weight) == field)
            return p->params->all[i].grad;
    return (struct matrix){0};
}

static float *vector_grad_of(const struct pass *p, const void *field)
{
    return grad_of(p, field).data;
}

/* Of y = x W^T: dW += dy^T x, and dx = dy W (+ add, where it has data). */
static void linear_backward(struct plan *plan, const struct pass *p, struct matrix dy,
                            struct matrix x, const struct tensor *w, struct matrix add,
                            struct matrix dx)
{
    const struct matrix dw = grad_of(p, w);
    plan_call(plan, &op_matmul,
              &(struct matmul_args){.batch = 1,
                                    .m = dy.cols,
                                    .n = x.cols,
                                    .k = dy.rows,
                                    .transpose_a = true,
                                    .alpha = 1,
                                    .beta = 1,
                                    .a = dy,
                                    .b = x,
                                    .add = dw,
                                    .out = dw});
    plan_call(plan, &op_matmul,
              &(struct matmul_args){.batch = 1,
                                    .m = dx.rows,
                                    .n = dx.cols,
                                    .k = dy.cols,
                                    .alpha = 1,
                                    .beta = add.data ? 1 : 0,
                                    .a = dy,
                                    .b = pass_weight(w),
                                    .add = add,
                                    .out = dx});
}

static void norm_backward(struct plan *plan, const struct pass *p, struct matrix x,
                          struct matrix dy, struct matrix dx)
{
    plan_call(plan, &op_rmsnorm_backward,
              &(struct rmsnorm_backward_args){.m = x.rows,
                                              .n = x.cols,
                                              .eps = p->params->model.config.rms_eps,
                                              .x = x,
                                              .dy = dy,
                                              .dx = dx});
}

/* clang-format off */
static void rotate_backward(struct plan *plan, const struct pass *p, int64_t heads, const float *rstd,
                            struct matrix y, struct matrix d)
{
    const struct pass_buffers *b = p->buffers;
    plan_call(plan, &op_rotary_norm_backward,
              &(struct rotary_norm_backward_args){
                  .m = y.rows, .n_heads = heads, .head_dim = p->params->model.config.head_dim,
                  .batch = p->batch, .inv_freq = b->inv_freq, .scale = b->rope_scale,
                  .eps = p->params->model.config.rms_eps, .rounded = p->rounded_rotation,
                  .rstd = rstd, .y = y, .d = d});
}

/* dstream is 0 but for the head, which wrote dnormed. */
static void head(struct plan *plan, const struct pass *p)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const struct matrix d = hidden(p, b->dstream), none = {0};
    struct matrix x = hidden(p, b->layers[m->config.n_layers].stream);

    plan_call(plan, &op_fill, &(struct fill_args){.m = d.rows, .n = d.cols, .x = d});
    if (m->config.gpt.plain) {
        norm_backward(plan, p, x, hidden(p, b->dnormed), d);
        return;
    }
    norm_backward(plan, p, hidden(p, b->final), hidden(p, b->dnormed), d);
    plan_call(plan, &op_axpby_backward,
              &(struct axpby_backward_args){
                  .m = d.rows, .n = d.cols, .b = m->gpt.backout_lambda,
                  .db = vector_grad_of(p, &m->gpt.backout_lambda), .factor = -1, .first = true, .x = none,
                  .y = hidden(p, b->layers[m->config.n_layers / 2 + 1].stream), .d = d,
                  .dy = hidden(p, b->dmiddle)});
}

static void mlp(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const int64_t inter = p->params->model.config.intermediate;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct matrix mid = hidden(p, b->layers[n].mid), d = hidden(p, b->dstream), none = {0};
    const struct matrix normed = hidden(p, b->layers[n].mlp_in), dnormed = hidden(p, b->dnormed);
    const struct matrix act = pass_rows(p, b->layers[n].act, inter), dact = pass_rows(p, b->dact, inter);

    if (p->recompute >= RECOMPUTE_NORMS) pass_norm(plan, p, mid, normed);
    if (p->recompute >= RECOMPUTE_WIDE) pass_mlp_up(plan, p, n);
    linear_backward(plan, p, d, act, &w->gpt.proj, none, dact);
    plan_call(plan, &op_relu2_backward,
              &(struct relu2_backward_args){.m = act.rows, .n = act.cols, .y = act, .d = dact});
    linear_backward(plan, p, dact, normed, &w->gpt.fc, none, dnormed);
    norm_backward(plan, p, mid, dnormed, d);
}

static void attention(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct layer_buffers *l = &b->layers[n];
    const struct matrix d = hidden(p, b->dstream), none = {0};
    const struct matrix normed = hidden(p, l->attn_in), dnormed = hidden(p, b->dnormed);
    const struct matrix mix = pass_mixed(p, n);
    const struct matrix q = pass_rows(p, l->q, w->wq.rows), dq = pass_rows(p, b->dq, w->wq.rows);
    const struct matrix k = pass_rows(p, l->k, w->wk.rows), dk = pass_rows(p, b->dk, w->wk.rows);
    const struct matrix v = pass_rows(p, l->v, w->wv.rows), dv = pass_rows(p, b->dv, w->wv.rows);
    const struct matrix attn = pass_rows(p, l->attn, w->wq.rows), dattn = pass_rows(p, b->dattn, w->wq.rows);

    linear_backward(plan, p, d, attn, &w->wo, none, dattn);
    plan_call(plan, &op_self_attention_backward,
              &(struct self_attention_backward_args){
                  .sequences = p->sequences, .length = p->length, .n_heads = c->n_heads,
                  .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim,
                  .window = model_layer_window(c, n), .lse = l->lse, .q = q, .k = k, .v = v,
                  .out = attn, .dout = dattn, .dq = dq, .dk = dk, .dv = dv});
    rotate_backward(plan, p, c->n_heads, l->q_rstd, q, dq);
    rotate_backward(plan, p, c->n_kv_heads, l->k_rstd, k, dk);
    if (p->recompute >= RECOMPUTE_NORMS) {
        pass_mix(plan, p, n);
        pass_norm(plan, p, mix, normed);
    }
    linear_backward(plan, p, dq, normed, &w->wq, none, dnormed);
    linear_backward(plan, p, dk, normed, &w->wk, dnormed, dnormed);
    linear_backward(plan, p, dv, normed, &w->wv, dnormed, dnormed);
    if (w->gpt.values.rows)
        plan_call(plan, &op_gated_embed_backward,
                  &(struct gated_embed_backward_args){
                      .m = dv.rows, .n = dv.cols, .scale = c->gpt.value_scale, .batch = p->batch,
                      .order = b->order, .table = w->gpt.values, .gate = w->gpt.ve_gate, .x = normed,
                      .dy = dv, .dx = dnormed, .dgate = vector_grad_of(p, &w->gpt.ve_gate),
                      .dtable = grad_of(p, &w->gpt.values)});
    norm_backward(plan, p, mix, dnormed, d);
}

/* Of the scales at a layer's beginning. */
static void mix(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const struct matrix d = hidden(p, b->dstream);
    if (m->config.gpt.plain) return;
    plan_call(plan, &op_axpby_backward,
              &(struct axpby_backward_args){
                  .m = d.rows, .n = d.cols, .a = m->gpt.resid_lambdas + n, .b = m->gpt.x0_lambdas + n,
                  .da = vector_grad_of(p, &m->gpt.resid_lambdas) + n,
                  .db = vector_grad_of(p, &m->gpt.x0_lambdas) + n, .factor = 1,
                  .first = n == m->config.n_layers - 1, .x = hidden(p, b->layers[n].stream),
                  .y = hidden(p, b->x0), .d = d, .dy = hidden(p, b->dx0)});
}

static void add(struct plan *plan, struct matrix y, struct matrix x)
{
    plan_call(plan, &op_add, &(struct add_args){.m = x.rows, .n = x.cols, .y = y, .x = x});
}

/* dnormed becomes the gradient of the normed embedding, dx0 that of the one that is stored. */
static void embed(struct plan *plan, const struct pass *p)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const struct matrix d = hidden(p, b->dstream), e = hidden(p, b->embedding);
    const struct matrix raw = hidden(p, b->raw), draw = hidden(p, b->dx0);
    struct matrix de = d;

    if (!m->config.gpt.plain) {
        de = hidden(p, b->dnormed);
        add(plan, draw, d);
        plan_call(plan, &op_smear_backward,
                  &(struct smear_backward_args){
                      .sequences = p->sequences, .length = p->length, .n = d.cols,
                      .lambda = m->gpt.smear_lambda, .gate = m->gpt.smear_gate.data,
                      .channels = m->gpt.smear_gate.cols, .x = e, .dy = d, .dx = de,
                      .dlambda = vector_grad_of(p, &m->gpt.smear_lambda),
                      .dgate = vector_grad_of(p, &m->gpt.smear_gate)});
    }
    plan_call(plan, &op_embed,
              &(struct embed_args){.m = raw.rows, .batch = p->batch, .table = m->embed, .x = raw});
    plan_call(plan, &op_fill, &(struct fill_args){.m = d.rows, .n = d.cols, .x = draw});
    norm_backward(plan, p, raw, de, draw);
    plan_call(plan, &op_embed_backward,
              &(struct embed_backward_args){
                  .m = d.rows, .n = d.cols, .batch = p->batch, .order = b->order, .d = draw,
                  .dtable = grad_of(p, &m->embed)});
}
/* clang-format on */

void pass_backward(struct plan *plan, const struct pass *p)
{
    const struct model_config *c = &p->params->model.config;
    head(plan, p);
    for (int64_t n = c->n_layers - 1; n >= 0; n--) {
        plan_layer(plan, (int)n);
        if (!c->gpt.plain && n == c->n_layers / 2)
            add(plan, hidden(p, p->buffers->dmiddle), hidden(p, p->buffers->dstream));
        mlp(plan, p, n);
        attention(plan, p, n);
        mix(plan, p, n);
    }
    plan_layer(plan, -1);
    embed(plan, p);
}
