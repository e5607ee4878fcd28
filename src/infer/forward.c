/* The one forward pass of gpt-oss. It names ops; which kernels serve them, on which device, is the
 * plan's business. Everything between the residual stream and the experts is in the composites'
 * files under src/ops. */
#include "infer/forward.h"

#include "ops/ops.h"

void forward_build(struct plan *plan, const struct model *model, const struct batch *batch,
                   const struct forward_buffers *buffers, int64_t rows, int64_t outputs, bool draws)
{
    /* One op a paragraph reads better than one argument a line. */
    /* clang-format off */
    const struct model_config *c = &model->config;
    const struct forward_buffers *b = buffers;
    const struct matrix x = matrix_f32(b->x, rows, c->hidden);
    const struct matrix q = matrix_f32(b->q, rows, c->n_heads * c->head_dim);
    const struct matrix attn = matrix_f32(b->attn, rows, c->n_heads * c->head_dim);
    const struct matrix normed = matrix_f32(b->normed, rows, c->hidden);
    const struct matrix logits = matrix_f32(b->logits, outputs, c->vocab);

    plan_call(plan, &op_embed,
              &(struct embed_args){.m = rows, .batch = batch, .table = model->embed, .x = x});

    for (int64_t n = 0; n < c->n_layers; n++) {
        const struct layer_weights *w = &model->layers[n];
        plan_layer(plan, (int)n);

        plan_call(plan, &op_attn_in,
                  &(struct attn_in_args){
                      .m = rows, .hidden = c->hidden, .n_heads = c->n_heads, .eps = c->rms_eps,
                      .rope_scale = b->rope_scale, .inv_freq = b->inv_freq, .batch = batch, .x = x,
                      .norm = w->attn_norm, .wq = w->wq, .wk = w->wk, .wv = w->wv, .bq = w->bq,
                      .bk = w->bk, .bv = w->bv, .kv = b->kv[n], .q = q});

        plan_call(plan, &op_attention,
                  &(struct attention_args){
                      .m = rows, .n_heads = c->n_heads, .window = model_layer_window(c, n),
                      .batch = batch, .q = q, .kv = b->kv[n], .sinks = w->sinks, .out = attn});

        plan_call(plan, &op_attn_out,
                  &(struct attn_out_args){
                      .m = rows, .hidden = c->hidden, .width = c->n_heads * c->head_dim,
                      .n_experts = c->n_experts, .top_k = c->top_k, .eps = c->rms_eps,
                      .attn = attn, .wo = w->wo, .bo = w->bo, .norm = w->ffn_norm,
                      .router = w->router, .router_bias = w->router_bias, .x = x,
                      .normed = normed, .routing = b->routing});

        plan_call(plan, &op_moe,
                  &(struct moe_args){
                      .m = rows, .hidden = c->hidden, .intermediate = c->intermediate,
                      .top_k = c->top_k, .alpha = c->swiglu_alpha, .limit = c->swiglu_limit,
                      .normed = normed, .gate = w->gate, .up = w->up, .down = w->down,
                      .gate_bias = w->gate_bias, .up_bias = w->up_bias,
                      .down_bias = w->down_bias, .routing = b->routing, .x = x});
    }

    plan_layer(plan, -1);
    if (outputs == 0) return;
    plan_call(plan, &op_head,
              &(struct head_args){
                  .n_outputs = outputs, .hidden = c->hidden, .eps = c->rms_eps, .batch = batch,
                  .x = x, .norm = model->final_norm, .w = model->head, .logits = logits});
    if (draws)
        plan_call(plan, &op_sample,
                  &(struct sample_args){
                      .n = outputs, .vocab = c->vocab, .logits = logits, .banned = b->banned,
                      .draws = b->draws, .token = b->token});
    /* clang-format on */
}
