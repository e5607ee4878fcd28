/* The forward pass of gpt-oss. Everything between the residual stream and the experts is in the
 * composites' files under src/ops. */
#include "infer/buffer_table.h"
#include "ops/attn_moe.h"
#include "ops/ops.h"

/* One op a paragraph reads better than one argument a line. */
/* clang-format off */
static void before(struct plan *plan, const struct forward_step *s)
{
    const struct matrix x = matrix_f32(s->buffers->x, s->rows, s->model->config.hidden);
    plan_call(plan, &op_embed,
              &(struct embed_args){
                  .m = s->rows, .batch = s->batch, .table = s->model->embed, .x = x});
    forward_clear_part(plan, s);
}

/* Of all ranks' routing what this one has to do. */
static void own_experts(struct plan *plan, const struct forward_step *s)
{
    const struct model_config *c = &s->model->config;
    if (!forward_deals_experts(c)) return;
    plan_call(plan, &op_own_experts,
              &(struct own_experts_args){
                  .m = s->rows, .n_experts = c->n_experts, .top_k = c->top_k, .first = c->first_expert,
                  .count = c->own_experts,
                  .all = s->buffers->routing, .own = s->buffers->own});
}

/* The same as attn_moe, but that ranks add up, or that one has some of the experts. */
static void shared_behind(struct plan *plan, const struct forward_step *s,
                          const struct attn_moe_args *args)
{
    struct attn_out_args add = args->out;
    struct moe_args experts = attn_moe_second(args);
    add.x = experts.x = forward_part(s);
    experts.routing = s->buffers->own;
    plan_call(plan, &op_attn_add, &add);
    forward_add_up(plan, s, add.x, args->out.x);
    plan_call(plan, &op_attn_route, &args->out);
    own_experts(plan, s);
    plan_call(plan, &op_moe, &experts);
    forward_add_up(plan, s, experts.x, args->out.x);
}

static void layer(struct plan *plan, const struct forward_step *s, int64_t n)
{
    const struct model_config *c = &s->model->config;
    const struct forward_buffers *b = s->buffers;
    const struct layer_weights *l = &s->model->layers[n];
    const struct gpt_oss_layer *w = &l->gpt_oss;
    const int64_t rows = s->rows, width = c->n_heads * c->head_dim;
    const struct matrix x = matrix_f32(b->x, rows, c->hidden);
    const struct matrix q = matrix_f32(b->q, rows, width);
    const struct matrix attn = matrix_f32(b->attn, rows, width);
    const struct matrix normed = matrix_f32(b->normed, rows, c->hidden);

    plan_call(plan, &op_attn_in,
              &(struct attn_in_args){
                  .m = rows, .hidden = c->hidden, .n_heads = c->n_heads, .eps = c->rms_eps,
                  .rope_scale = b->rope_scale, .inv_freq = b->inv_freq, .batch = s->batch, .x = x,
                  .norm = w->attn_norm, .wq = l->wq, .wk = l->wk, .wv = l->wv, .bq = w->bq,
                  .bk = w->bk, .bv = w->bv, .kv = b->kv[n], .q = q});

    plan_call(plan, &op_attention,
              &(struct attention_args){
                  .m = rows, .n_heads = c->n_heads, .outputs = s->outputs,
                  .window = model_layer_window(c, n), .batch = s->batch, .q = q, .kv = b->kv[n],
                  .sinks = w->sinks, .out = attn});

    const struct attn_moe_args behind = {
        .out = {.m = rows, .hidden = c->hidden, .width = width,
                .n_experts = c->n_experts, .top_k = c->top_k, .eps = c->rms_eps,
                .attn = attn, .wo = l->wo, .bo = w->bo, .norm = w->ffn_norm,
                .router = w->router, .router_bias = w->router_bias, .x = x,
                .normed = normed, .routing = b->routing},
        .intermediate = c->intermediate, .alpha = c->gpt_oss.swiglu_alpha,
        .limit = c->gpt_oss.swiglu_limit, .gate = w->gate, .up = w->up, .down = w->down,
        .gate_bias = w->gate_bias, .up_bias = w->up_bias, .down_bias = w->down_bias};

    if (forward_is_shared(c) || forward_deals_experts(c))
        shared_behind(plan, s, &behind);
    else
        plan_call(plan, &op_attn_moe, &behind);
}

static void head(struct plan *plan, const struct forward_step *s)
{
    const struct model_config *c = &s->model->config;
    plan_call(plan, &op_head,
              &(struct head_args){
                  .n_outputs = s->outputs, .hidden = c->hidden, .eps = c->rms_eps,
                  .batch = s->batch, .x = matrix_f32(s->buffers->x, s->rows, c->hidden),
                  .norm = s->model->final_norm, .w = s->model->head,
                  .logits = forward_logits(s)});
}

static const struct buffer_line lines[] = {
    {"part", F32, {ROWS, PART}, EMBED, FFN, .pointer = AT(at.part)},
    {"normed", F32, {ROWS, HIDDEN}, ATTN_OUT, FFN, .pointer = AT(at.normed)},
    /* Costs of the last layer are asked for when the step is over. */
    {"routing.weight", F32, {SLOTS}, ATTN_OUT, RESULT, .pointer = AT(at.routing.weight)},
    {"routing.expert", I32, {SLOTS}, ATTN_OUT, RESULT, .pointer = AT(at.routing.expert)},
    {"routing.group_offsets", I32, {GROUP_ENDS}, ATTN_OUT, RESULT, .pointer = AT(at.routing.group_offsets)},
    {"routing.token_of_row", I32, {SLOTS}, ATTN_OUT, RESULT, .pointer = AT(at.routing.token_of_row)},
    {"routing.row_of_slot", I32, {SLOTS}, ATTN_OUT, RESULT, .pointer = AT(at.routing.row_of_slot)},
    {"own.expert", I32, {OWN_SLOTS}, FFN, RESULT, .pointer = AT(at.own.expert)},
    {"own.group_offsets", I32, {OWN_ENDS}, FFN, RESULT, .pointer = AT(at.own.group_offsets)},
    {"own.token_of_row", I32, {OWN_SLOTS}, FFN, RESULT, .pointer = AT(at.own.token_of_row)},
    {"own.row_of_slot", I32, {OWN_SLOTS}, FFN, RESULT, .pointer = AT(at.own.row_of_slot)},
};
/* clang-format on */

static const struct op *const parts[] = {&op_attn_in, &op_attention, &op_attn_out, &op_moe, NULL};
static const struct op *const shared_parts[] = {
    &op_attn_in, &op_attention, &op_attn_add, &op_all_reduce_add, &op_attn_route, &op_moe, NULL};

const struct forward forward_gpt_oss = {
    .before = before,
    .layer = layer,
    .head = head,
    .parts = parts,
    .shared_parts = shared_parts,
    .n_carried = 1,
    .carried = {offsetof(struct forward_buffers, x)},
    .lines = lines,
    .n_lines = sizeof lines / sizeof *lines,
};
