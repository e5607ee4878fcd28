/* The backward pass of gpt-oss: the forward pass's calls in reverse. dstream is the gradient of the
 * residual stream where the list has arrived; gradients of weights are accumulated. What experts
 * read and what they multiplied with `down` are made again, norms and wide activations where they
 * were not kept. */
#include "ops/ops.h"
#include "train/pass_gpt_oss.h"

/* clang-format off */
static void bias_backward(struct plan *plan, const struct pass *p, const int32_t *offsets,
                          int64_t groups, struct matrix dy, const float *const *bias)
{
    plan_call(plan, &op_bias_backward,
              &(struct bias_backward_args){
                  .m = dy.rows, .n = dy.cols, .groups = groups, .group_offsets = offsets, .dy = dy,
                  .dbias = pass_vector_grad_of(p, bias)});
}

static void rotate_backward(struct plan *plan, const struct pass *p, int64_t heads, struct matrix d)
{
    const struct pass_buffers *b = p->buffers;
    plan_call(plan, &op_rope,
              &(struct rope_args){
                  .m = d.rows, .n_heads = heads, .head_dim = p->params->model.config.head_dim,
                  .batch = p->batch, .inv_freq = b->back_freq, .scale = b->rope_scale, .x = d});
}

/* Gradients of an expert's weights and biases. */
static void expert_wgrad(struct plan *plan, const struct pass *p, int64_t n, struct matrix dy,
                         struct matrix x, const struct tensor *w, const float *const *bias)
{
    const struct routing *r = &p->buffers->layers[n].routing;
    const int32_t *offsets = r->group_offsets;
    bias_backward(plan, p, offsets, w->groups, dy, bias);
    plan_call(plan, &op_grouped_wgrad,
              &(struct grouped_wgrad_args){
                  .m = dy.rows, .n = dy.cols, .k = x.cols, .groups = w->groups,
                  .group_offsets = offsets, .host_offsets = r->host_offsets, .dy = dy, .x = x,
                  .dw = pass_grad_of(p, w)});
}

/* The gradient of what a layer's part added to the stream: where numbers were left out in dnormed,
 * which is free until the part's norm. */
static struct matrix of_part(struct plan *plan, const struct pass *p, uint32_t site)
{
    const struct matrix d = pass_hidden(p, p->buffers->dstream), none = {0};
    const struct matrix kept = pass_hidden(p, p->buffers->dnormed);
    if (!(p->dropout > 0)) return d;
    gpt_oss_drop(plan, p, site, d, none, kept);
    return kept;
}

/* dgathered becomes the gradient of what experts read, dweight that of their weights. */
static void experts(struct plan *plan, const struct pass *p, int64_t n, struct matrix dgathered)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct gpt_oss_layer *w = &p->params->model.layers[n].gpt_oss;
    const struct layer_buffers *l = &b->layers[n];
    const struct matrix d = of_part(plan, p, DROP_EXPERTS(n)), dy = dgathered; /* one place, in turn */
    const struct matrix act = gpt_oss_slots(p, b->act, c->intermediate);
    const struct matrix dact = gpt_oss_slots(p, b->dact, c->intermediate);
    const struct matrix dup = gpt_oss_slots(p, b->dup, c->intermediate);
    const struct matrix gathered = gpt_oss_slots(p, b->gathered, c->hidden);

    plan_call(plan, &op_combine_backward,
              &(struct combine_backward_args){
                  .m = d.rows, .n = d.cols, .top_k = c->top_k, .routing = l->routing,
                  .y = gpt_oss_slots(p, l->y, c->hidden), .dx = d, .dy = dy, .dweight = b->dweight});
    expert_wgrad(plan, p, n, dy, act, &w->down, &w->down_bias);
    gpt_oss_product(plan, p, n, dy, &w->down, false, false, dact);
    plan_call(plan, &op_swiglu_backward,
              &(struct swiglu_backward_args){
                  .m = dact.rows, .n = dact.cols, .alpha = c->gpt_oss.swiglu_alpha,
                  .limit = c->gpt_oss.swiglu_limit, .gate = gpt_oss_slots(p, l->gate, c->intermediate),
                  .up = gpt_oss_slots(p, l->up, c->intermediate), .d = dact, .dup = dup});
    expert_wgrad(plan, p, n, dact, gathered, &w->gate, &w->gate_bias);
    expert_wgrad(plan, p, n, dup, gathered, &w->up, &w->up_bias);
    gpt_oss_product(plan, p, n, dact, &w->gate, false, false, dgathered);
    gpt_oss_product(plan, p, n, dup, &w->up, false, true, dgathered);
}

static void mlp(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct gpt_oss_layer *w = &p->params->model.layers[n].gpt_oss;
    const struct layer_buffers *l = &b->layers[n];
    const struct matrix mid = pass_hidden(p, l->mid), normed = pass_hidden(p, l->mlp_in), none = {0};
    const struct matrix d = pass_hidden(p, b->dstream), dnormed = pass_hidden(p, b->dnormed);
    const struct matrix dgathered = gpt_oss_slots(p, b->dy, c->hidden);
    const struct matrix dlogits = gpt_oss_logits(p, b->dlogits);

    if (p->recompute >= RECOMPUTE_NORMS) pass_norm(plan, p, mid, &w->ffn_norm, normed);
    if (p->recompute >= RECOMPUTE_WIDE) {
        gpt_oss_experts(plan, p, n);
    } else {
        gpt_oss_gather(plan, p, n);
        gpt_oss_activate(plan, p, n);
    }
    experts(plan, p, n, dgathered);
    plan_call(plan, &op_route_backward,
              &(struct route_backward_args){
                  .m = dlogits.rows, .n_experts = c->n_experts, .top_k = c->top_k,
                  .balance = p->balance, .scale = b->scale, .dweight = b->dweight,
                  .routing = l->routing, .logits = gpt_oss_logits(p, l->logits), .dlogits = dlogits});
    bias_backward(plan, p, NULL, 1, dlogits, &w->router_bias);
    pass_linear_backward(plan, p, dlogits, (struct linear_input){.x = normed}, &w->router, none, dnormed);
    plan_call(plan, &op_gather_rows_backward,
              &(struct gather_rows_backward_args){
                  .m = dnormed.rows, .n = dnormed.cols, .top_k = c->top_k,
                  .row_of_slot = l->routing.row_of_slot, .d = dgathered, .dx = dnormed});
    pass_norm_backward(plan, p, mid, &w->ffn_norm, dnormed, d);
}

static void attention(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct layer_buffers *l = &b->layers[n];
    const struct matrix x = pass_hidden(p, l->stream), d = pass_hidden(p, b->dstream), none = {0};
    const struct matrix normed = pass_hidden(p, l->attn_in), dnormed = pass_hidden(p, b->dnormed);
    const struct matrix q = pass_rows(p, l->q, w->wq.rows), dq = pass_rows(p, b->dq, w->wq.rows);
    const struct matrix k = pass_rows(p, l->k, w->wk.rows), dk = pass_rows(p, b->dk, w->wk.rows);
    const struct matrix v = pass_rows(p, l->v, w->wv.rows), dv = pass_rows(p, b->dv, w->wv.rows);
    const struct matrix attn = pass_rows(p, l->attn, w->wq.rows), dattn = pass_rows(p, b->dattn, w->wq.rows);

    const struct matrix dpart = of_part(plan, p, DROP_ATTENTION(n));
    bias_backward(plan, p, NULL, 1, dpart, &w->gpt_oss.bo);
    pass_linear_backward(plan, p, dpart, pass_input_backward(plan, p, attn, &w->wo, l->attn_turned), &w->wo, none, dattn);
    plan_call(plan, &op_self_attention_backward,
              &(struct self_attention_backward_args){
                  .sequences = p->sequences, .length = p->length, .n_heads = c->n_heads,
                  .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim,
                  .window = model_layer_window(c, n), .sinks = w->gpt_oss.sinks, .lse = l->lse, .q = q,
                  .k = k, .v = v, .out = attn, .dout = dattn, .dq = dq, .dk = dk, .dv = dv,
                  .dsinks = pass_vector_grad_of(p, &w->gpt_oss.sinks)});
    rotate_backward(plan, p, c->n_heads, dq);
    rotate_backward(plan, p, c->n_kv_heads, dk);
    if (p->recompute >= RECOMPUTE_NORMS) pass_norm(plan, p, x, &w->gpt_oss.attn_norm, normed);
    bias_backward(plan, p, NULL, 1, dq, &w->gpt_oss.bq);
    bias_backward(plan, p, NULL, 1, dk, &w->gpt_oss.bk);
    bias_backward(plan, p, NULL, 1, dv, &w->gpt_oss.bv);
    const struct linear_input in = pass_input_backward(plan, p, normed, &w->wq, l->attn_in_turned);
    pass_linear_backward(plan, p, dq, in, &w->wq, none, dnormed);
    pass_linear_backward(plan, p, dk, in, &w->wk, dnormed, dnormed);
    pass_linear_backward(plan, p, dv, in, &w->wv, dnormed, dnormed);
    pass_norm_backward(plan, p, x, &w->gpt_oss.attn_norm, dnormed, d);
}

/* dstream is 0 but for the head, which wrote dnormed. */
static void head(struct plan *plan, const struct pass *p)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const struct matrix d = pass_hidden(p, b->dstream);
    plan_call(plan, &op_fill, &(struct fill_args){.m = d.rows, .n = d.cols, .x = d});
    pass_norm_backward(plan, p, pass_hidden(p, b->layers[m->config.n_layers].stream), &m->final_norm,
                       pass_hidden(p, b->dnormed), d);
}

static void embed(struct plan *plan, const struct pass *p)
{
    const struct matrix d = pass_hidden(p, p->buffers->dstream);
    if (p->dropout > 0) gpt_oss_drop(plan, p, DROP_EMBEDDING, d, (struct matrix){0}, d);
    plan_call(plan, &op_embed_backward,
              &(struct embed_backward_args){
                  .m = d.rows, .n = d.cols, .batch = p->batch, .order = p->buffers->order, .d = d,
                  .dtable = pass_grad_of(p, &p->params->model.embed)});
}
/* clang-format on */

void gpt_oss_backward(struct plan *plan, const struct pass *p)
{
    head(plan, p);
    for (int64_t n = p->params->model.config.n_layers - 1; n >= 0; n--) {
        plan_layer(plan, (int)n);
        mlp(plan, p, n);
        attention(plan, p, n);
        pass_leave(plan, p, n);
    }
    plan_layer(plan, -1);
    embed(plan, p);
}
