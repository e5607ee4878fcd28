/* The backward pass of GPT: the forward pass's calls in reverse. dstream is the gradient of the
 * residual stream where the list has arrived; gradients of weights are accumulated. What is cheap
 * to make again (norms, the mix of a layer's input, the wide activation) is, where it was not kept.
 */
#include <assert.h>

#include "ops/ops.h"
#include "train/pass_gpt.h"

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
    const struct matrix d = pass_hidden(p, b->dstream), none = {0};
    struct matrix x = pass_hidden(p, b->layers[m->config.n_layers].stream);

    plan_call(plan, &op_fill, &(struct fill_args){.m = d.rows, .n = d.cols, .x = d});
    if (m->config.gpt.plain) {
        pass_norm_backward(plan, p, x, NULL, pass_hidden(p, b->dnormed), d);
        return;
    }
    pass_norm_backward(plan, p, pass_hidden(p, b->final), NULL, pass_hidden(p, b->dnormed), d);
    plan_call(plan, &op_axpby_backward,
              &(struct axpby_backward_args){
                  .m = d.rows, .n = d.cols, .b = m->gpt.backout_lambda,
                  .db = pass_vector_grad_of(p, &m->gpt.backout_lambda), .factor = -1, .first = true, .x = none,
                  .y = pass_hidden(p, b->layers[m->config.n_layers / 2 + 1].stream), .d = d,
                  .dy = pass_hidden(p, b->dmiddle)});
}

/* For dW of the projection behind it. */
static struct linear_input wide(struct plan *plan, const struct pass *p, int64_t n, struct matrix act)
{
    const struct tensor *proj = &p->params->model.layers[n].gpt.proj;
    if (p->recompute < RECOMPUTE_WIDE)
        return pass_input_backward(plan, p, act, proj, p->buffers->layers[n].act_turned);
    gpt_mlp_up(plan, p, n, act);
    return pass_relu2_backward(plan, p, act, proj);
}

static void mlp(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct layer_buffers *l = &b->layers[n];
    const int64_t inter = p->params->model.config.intermediate;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct matrix mid = pass_hidden(p, l->mid), d = pass_hidden(p, b->dstream), none = {0};
    const struct matrix normed = pass_hidden(p, l->mlp_in), dnormed = pass_hidden(p, b->dnormed);
    const struct matrix act = pass_rows(p, l->act, inter), dact = pass_rows(p, b->dact, inter);

    if (p->recompute >= RECOMPUTE_NORMS) pass_norm(plan, p, mid, NULL, normed);
    /* Else `normed` would be the last layer's. */
    assert(!l->mlp_in_turned || params_of_field(p->params, &w->gpt.fc)->small.data);
    pass_linear_backward(plan, p, d, wide(plan, p, n, act), &w->gpt.proj, none, dact);
    pass_relu2_linear_backward(plan, p, act, dact, pass_input_backward(plan, p, normed, &w->gpt.fc, l->mlp_in_turned),
                               &w->gpt.fc, none, dnormed);
    pass_norm_backward(plan, p, mid, NULL, dnormed, d);
}

static void attention(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct layer_buffers *l = &b->layers[n];
    const struct matrix d = pass_hidden(p, b->dstream), none = {0};
    const struct matrix normed = pass_hidden(p, l->attn_in), dnormed = pass_hidden(p, b->dnormed);
    const struct matrix mix = gpt_mixed(p, n);
    const struct matrix q = pass_rows(p, l->q, w->wq.rows), dq = pass_rows(p, b->dq, w->wq.rows);
    const struct matrix k = pass_rows(p, l->k, w->wk.rows), dk = pass_rows(p, b->dk, w->wk.rows);
    const struct matrix v = pass_rows(p, l->v, w->wv.rows), dv = pass_rows(p, b->dv, w->wv.rows);
    const struct matrix attn = pass_rows(p, l->attn, w->wq.rows), dattn = pass_rows(p, b->dattn, w->wq.rows);

    pass_linear_backward(plan, p, d, pass_input_backward(plan, p, attn, &w->wo, l->attn_turned), &w->wo, none, dattn);
    plan_call(plan, &op_self_attention_backward,
              &(struct self_attention_backward_args){
                  .sequences = p->sequences, .length = p->length, .n_heads = c->n_heads,
                  .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim,
                  .window = model_layer_window(c, n), .lse = l->lse, .q = q, .k = k, .v = v,
                  .out = attn, .dout = dattn, .dq = dq, .dk = dk, .dv = dv});
    rotate_backward(plan, p, c->n_heads, l->q_rstd, q, dq);
    rotate_backward(plan, p, c->n_kv_heads, l->k_rstd, k, dk);
    if (p->recompute >= RECOMPUTE_NORMS) {
        gpt_mix(plan, p, n);
        pass_norm(plan, p, mix, NULL, normed);
    }
    const struct linear_input in = pass_input_backward(plan, p, normed, &w->wq, l->attn_in_turned);
    pass_linear_backward(plan, p, dq, in, &w->wq, none, dnormed);
    pass_linear_backward(plan, p, dk, in, &w->wk, dnormed, dnormed);
    pass_linear_backward(plan, p, dv, in, &w->wv, dnormed, dnormed);
    if (w->gpt.values.rows)
        plan_call(plan, &op_gated_embed_backward,
                  &(struct gated_embed_backward_args){
                      .m = dv.rows, .n = dv.cols, .scale = c->gpt.value_scale, .batch = p->batch,
                      .order = b->order, .table = w->gpt.values, .gate = w->gpt.ve_gate, .x = normed,
                      .dy = dv, .dx = dnormed, .dgate = pass_vector_grad_of(p, &w->gpt.ve_gate),
                      .dtable = pass_grad_of(p, &w->gpt.values)});
    pass_norm_backward(plan, p, mix, NULL, dnormed, d);
}

/* Of the scales at a layer's beginning. */
static void mix(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const struct matrix d = pass_hidden(p, b->dstream);
    if (m->config.gpt.plain) return;
    plan_call(plan, &op_axpby_backward,
              &(struct axpby_backward_args){
                  .m = d.rows, .n = d.cols, .a = m->gpt.resid_lambdas + n, .b = m->gpt.x0_lambdas + n,
                  .da = pass_vector_grad_of(p, &m->gpt.resid_lambdas) + n,
                  .db = pass_vector_grad_of(p, &m->gpt.x0_lambdas) + n, .factor = 1,
                  .first = n == m->config.n_layers - 1, .x = pass_hidden(p, b->layers[n].stream),
                  .y = pass_hidden(p, b->x0), .d = d, .dy = pass_hidden(p, b->dx0)});
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
    const struct matrix d = pass_hidden(p, b->dstream), e = pass_hidden(p, b->embedding);
    const struct matrix raw = pass_hidden(p, b->raw), draw = pass_hidden(p, b->dx0);
    struct matrix de = d;

    if (!m->config.gpt.plain) {
        de = pass_hidden(p, b->dnormed);
        add(plan, draw, d);
        plan_call(plan, &op_smear_backward,
                  &(struct smear_backward_args){
                      .sequences = p->sequences, .length = p->length, .n = d.cols,
                      .lambda = m->gpt.smear_lambda, .gate = m->gpt.smear_gate.data,
                      .channels = m->gpt.smear_gate.cols, .x = e, .dy = d, .dx = de,
                      .dlambda = pass_vector_grad_of(p, &m->gpt.smear_lambda),
                      .dgate = pass_vector_grad_of(p, &m->gpt.smear_gate)});
    }
    plan_call(plan, &op_embed,
              &(struct embed_args){.m = raw.rows, .batch = p->batch, .table = m->embed, .x = raw});
    plan_call(plan, &op_fill, &(struct fill_args){.m = d.rows, .n = d.cols, .x = draw});
    pass_norm_backward(plan, p, raw, NULL, de, draw);
    plan_call(plan, &op_embed_backward,
              &(struct embed_backward_args){
                  .m = d.rows, .n = d.cols, .batch = p->batch, .order = b->order, .d = draw,
                  .dtable = pass_grad_of(p, &m->embed)});
}
/* clang-format on */

void gpt_backward(struct plan *plan, const struct pass *p)
{
    const struct model_config *c = &p->params->model.config;
    head(plan, p);
    for (int64_t n = c->n_layers - 1; n >= 0; n--) {
        plan_layer(plan, (int)n);
        if (!c->gpt.plain && n == c->n_layers / 2)
            add(plan, pass_hidden(p, p->buffers->dmiddle), pass_hidden(p, p->buffers->dstream));
        mlp(plan, p, n);
        attention(plan, p, n);
        mix(plan, p, n);
        pass_leave(plan, p, n);
    }
    plan_layer(plan, -1);
    embed(plan, p);
}
