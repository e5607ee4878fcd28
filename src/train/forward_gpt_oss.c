/* The forward pass of gpt-oss in training, of the same primitives that inference's composites are
 * made of. It leaves of each layer its input, what attention and its projection made, the routing,
 * and of experts what came before the activation and what they made of it. */
#include "ops/ops.h"
#include "train/activation_lines.h"
#include "train/pass_gpt_oss.h"

struct matrix gpt_oss_slots(const struct pass *p, void *data, int64_t cols)
{
    return matrix_of(p->dtype, data, p->sequences * p->length * p->params->model.config.top_k,
                     cols);
}

struct matrix gpt_oss_logits(const struct pass *p, float *data)
{
    return matrix_f32(data, p->sequences * p->length, p->params->model.config.n_experts);
}

/* One op a paragraph reads better than one argument a line. */
/* clang-format off */
static void add_bias(struct plan *plan, const float *bias, struct matrix y)
{
    plan_call(plan, &op_add_bias,
              &(struct add_bias_args){.m = y.rows, .n = y.cols, .groups = 1, .bias = bias, .y = y});
}

static void rotate(struct plan *plan, const struct pass *p, int64_t heads, struct matrix x)
{
    const struct pass_buffers *b = p->buffers;
    plan_call(plan, &op_rope,
              &(struct rope_args){
                  .m = x.rows, .n_heads = heads, .head_dim = p->params->model.config.head_dim,
                  .batch = p->batch, .inv_freq = b->inv_freq, .scale = b->rope_scale, .x = x});
}

void gpt_oss_drop(struct plan *plan, const struct pass *p, uint32_t site, struct matrix x,
                  struct matrix add, struct matrix out)
{
    plan_call(plan, &op_dropout,
              &(struct dropout_args){
                  .m = x.rows, .n = x.cols, .rate = p->dropout, .stream = STREAM_DROPOUT + site,
                  .key = p->buffers->key, .x = x, .add = add, .out = out});
}

static void embed(struct plan *plan, const struct pass *p)
{
    const struct matrix x = pass_hidden(p, p->buffers->layers[0].stream);
    plan_call(plan, &op_embed,
              &(struct embed_args){
                  .m = x.rows, .batch = p->batch, .table = p->params->model.embed, .x = x});
    if (p->dropout > 0) gpt_oss_drop(plan, p, DROP_EMBEDDING, x, (struct matrix){0}, x);
    pass_wide_begin(plan, p);
}

static void attend(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct model_config *c = &p->params->model.config;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct layer_buffers *l = &p->buffers->layers[n];
    const struct matrix normed = pass_hidden(p, l->attn_in), none = {0};
    const struct matrix q = pass_rows(p, l->q, w->wq.rows), attn = pass_rows(p, l->attn, w->wq.rows);
    const struct matrix k = pass_rows(p, l->k, w->wk.rows), v = pass_rows(p, l->v, w->wv.rows);
    const struct matrix out = pass_hidden(p, p->buffers->attn_out);

    if (n > 0)
        pass_wide_add(plan, p, p->buffers->mlp_out, &w->gpt_oss.attn_norm, l->stream, l->attn_in);
    else
        pass_norm(plan, p, pass_hidden(p, l->stream), &w->gpt_oss.attn_norm, normed);
    const struct linear_input in = pass_input(plan, p, normed, &w->wq, l->attn_in_turned);
    pass_linear(plan, p, in, &w->wq, none, q);
    pass_linear(plan, p, in, &w->wk, none, k);
    pass_linear(plan, p, in, &w->wv, none, v);
    add_bias(plan, w->gpt_oss.bq, q);
    add_bias(plan, w->gpt_oss.bk, k);
    add_bias(plan, w->gpt_oss.bv, v);
    rotate(plan, p, c->n_heads, q);
    rotate(plan, p, c->n_kv_heads, k);
    plan_call(plan, &op_self_attention,
              &(struct self_attention_args){
                  .sequences = p->sequences, .length = p->length, .n_heads = c->n_heads,
                  .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim,
                  .window = model_layer_window(c, n), .sinks = w->gpt_oss.sinks, .q = q, .k = k,
                  .v = v, .out = attn, .lse = l->lse});
    pass_linear(plan, p, pass_input(plan, p, attn, &w->wo, l->attn_turned), &w->wo, none, out);
    add_bias(plan, w->gpt_oss.bo, out);
    if (p->dropout > 0) gpt_oss_drop(plan, p, DROP_ATTENTION(n), out, none, out);
}

static void route(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct model_config *c = &p->params->model.config;
    const struct gpt_oss_layer *w = &p->params->model.layers[n].gpt_oss;
    const struct layer_buffers *l = &p->buffers->layers[n];
    const struct matrix normed = pass_hidden(p, l->mlp_in), logits = gpt_oss_logits(p, l->logits);

    pass_wide_add(plan, p, p->buffers->attn_out, &w->ffn_norm, l->mid, l->mlp_in);
    pass_linear(plan, p, (struct linear_input){.x = normed}, &w->router, (struct matrix){0}, logits);
    add_bias(plan, w->router_bias, logits);
    plan_call(plan, &op_route,
              &(struct route_args){
                  .m = logits.rows, .n_experts = c->n_experts, .top_k = c->top_k, .logits = logits,
                  .routing = l->routing});
}

void gpt_oss_gather(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct layer_buffers *l = &p->buffers->layers[n];
    const struct matrix x = pass_hidden(p, l->mlp_in), y = gpt_oss_slots(p, p->buffers->gathered, x.cols);
    plan_call(plan, &op_gather_rows,
              &(struct gather_rows_args){
                  .m = y.rows, .n = y.cols, .rows = l->routing.token_of_row, .x = x, .y = y});
}

void gpt_oss_activate(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct model_config *c = &p->params->model.config;
    const struct layer_buffers *l = &p->buffers->layers[n];
    const struct matrix gate = gpt_oss_slots(p, l->gate, c->intermediate);
    const struct matrix act = gpt_oss_slots(p, p->buffers->act, c->intermediate);
    plan_call(plan, &op_convert,
              &(struct convert_args){.m = act.rows, .n = act.cols, .from = gate, .to = act});
    plan_call(plan, &op_swiglu,
              &(struct swiglu_args){
                  .m = act.rows, .n = act.cols, .alpha = c->gpt_oss.swiglu_alpha,
                  .limit = c->gpt_oss.swiglu_limit, .up = gpt_oss_slots(p, l->up, c->intermediate),
                  .gate = act});
}

void gpt_oss_product(struct plan *plan, const struct pass *p, int64_t n, struct matrix a,
                     const struct tensor *w, bool transpose, bool add, struct matrix out)
{
    plan_call(plan, &op_grouped_matmul,
              &(struct grouped_matmul_args){
                  .m = out.rows, .n = out.cols, .k = a.cols, .groups = w->groups,
                  .transpose = transpose, .add = add,
                  .group_offsets = p->buffers->layers[n].routing.group_offsets,
                  .host_offsets = p->buffers->layers[n].routing.host_offsets, .a = a,
                  .w = pass_weight(w), .out = out});
}

static void expert_linear(struct plan *plan, const struct pass *p, int64_t n, struct matrix x,
                          const struct tensor *w, const float *bias, struct matrix y)
{
    gpt_oss_product(plan, p, n, x, w, true, false, y);
    plan_call(plan, &op_add_bias,
              &(struct add_bias_args){
                  .m = y.rows, .n = y.cols, .groups = w->groups, .bias = bias,
                  .group_offsets = p->buffers->layers[n].routing.group_offsets, .y = y});
}

void gpt_oss_experts(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct gpt_oss_layer *w = &p->params->model.layers[n].gpt_oss;
    const struct layer_buffers *l = &b->layers[n];
    const struct matrix x = gpt_oss_slots(p, b->gathered, c->hidden);

    gpt_oss_gather(plan, p, n);
    expert_linear(plan, p, n, x, &w->gate, w->gate_bias, gpt_oss_slots(p, l->gate, c->intermediate));
    expert_linear(plan, p, n, x, &w->up, w->up_bias, gpt_oss_slots(p, l->up, c->intermediate));
    gpt_oss_activate(plan, p, n);
    expert_linear(plan, p, n, gpt_oss_slots(p, b->act, c->intermediate), &w->down, w->down_bias,
                  gpt_oss_slots(p, l->y, c->hidden));
}

static void layer(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct model_config *c = &p->params->model.config;
    const struct layer_buffers *l = &p->buffers->layers[n];
    const struct matrix out = pass_hidden(p, p->buffers->mlp_out), none = {0};

    attend(plan, p, n);
    route(plan, p, n);
    gpt_oss_experts(plan, p, n);
    plan_call(plan, &op_fill, &(struct fill_args){.m = out.rows, .n = out.cols, .x = out});
    plan_call(plan, &op_combine,
              &(struct combine_args){
                  .m = out.rows, .n = out.cols, .top_k = c->top_k, .y = gpt_oss_slots(p, l->y, c->hidden),
                  .routing = l->routing, .x = out});
    if (p->dropout > 0) gpt_oss_drop(plan, p, DROP_EXPERTS(n), out, none, out);
}

static const struct activation_line lines[] = {
    {"attn in", ACT, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER_AGAIN(attn_in, RECOMPUTE_NORMS)},
    {"mlp in", ACT, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER(mlp_in)},
    {"router logits", F32, ROWS, EXPERTS, ATTENTION, BACK_ATTENTION, true, LAYER(logits)},
    {"weights of experts", F32, SLOTS, ONE, ATTENTION, BACK_ATTENTION, true, LAYER(routing.weight)},
    {"experts", I32, SLOTS, ONE, ATTENTION, BACK_ATTENTION, true, LAYER(routing.expert)},
    {"group offsets", I32, GROUP_ENDS, ONE, ATTENTION, BACK_ATTENTION, true, LAYER(routing.group_offsets)},
    {"tokens of rows", I32, SLOTS, ONE, ATTENTION, BACK_ATTENTION, true, LAYER(routing.token_of_row)},
    {"rows of slots", I32, SLOTS, ONE, ATTENTION, BACK_ATTENTION, true, LAYER(routing.row_of_slot)},
    {"gate", ACT, SLOTS, INTER, ATTENTION, BACK_ATTENTION, true, LAYER_AGAIN(gate, RECOMPUTE_WIDE)},
    {"up", ACT, SLOTS, INTER, ATTENTION, BACK_ATTENTION, true, LAYER_AGAIN(up, RECOMPUTE_WIDE)},
    {"experts out", ACT, SLOTS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER_AGAIN(y, RECOMPUTE_WIDE)},
    {"gathered", ACT, SLOTS, HIDDEN, MLP, BACK_MLP, false, AT(gathered)},
    {"act", ACT, SLOTS, INTER, MLP, BACK_MLP, false, AT(act)},
    {"normed", ACT, ROWS, HIDDEN, HEAD, HEAD, false, AT(normed)},
    {"dnormed", ACT, ROWS, HIDDEN, HEAD, BACK_EMBED, false, AT(dnormed)},
    {"dstream", ACT, ROWS, HIDDEN, HEAD, BACK_EMBED, false, AT(dstream)},
    {"dexperts", ACT, SLOTS, HIDDEN, BACK_MLP, BACK_MLP, false, AT(dy)},
    {"dact", ACT, SLOTS, INTER, BACK_MLP, BACK_MLP, false, AT(dact)},
    {"dup", ACT, SLOTS, INTER, BACK_MLP, BACK_MLP, false, AT(dup)},
    {"dweights", F32, SLOTS, ONE, BACK_MLP, BACK_MLP, false, AT(dweight)},
    {"dlogits", F32, ROWS, EXPERTS, BACK_MLP, BACK_MLP, false, AT(dlogits)},
    {"dattn", ACT, ROWS, Q_WIDTH, BACK_ATTENTION, BACK_ATTENTION, false, AT(dattn)},
    {"dq", ACT, ROWS, Q_WIDTH, BACK_ATTENTION, BACK_ATTENTION, false, AT(dq)},
    {"dk", ACT, ROWS, KV_WIDTH, BACK_ATTENTION, BACK_ATTENTION, false, AT(dk)},
    {"dv", ACT, ROWS, KV_WIDTH, BACK_ATTENTION, BACK_ATTENTION, false, AT(dv)},
    /* last: they find room where gradients will be */
    {"attn out", ACT, ROWS, HIDDEN, ATTENTION, HEAD, false, AT(attn_out)},
    {"mlp out", ACT, ROWS, HIDDEN, ATTENTION, HEAD, false, AT(mlp_out)},
    {"wide stream", F32, ROWS, HIDDEN, EMBED, HEAD, false, AT(wide)},
};
/* clang-format on */

static void forward(struct plan *plan, const struct pass *p)
{
    const struct model *m = &p->params->model;
    embed(plan, p);
    for (int64_t n = 0; n < m->config.n_layers; n++) {
        plan_layer(plan, (int)n);
        layer(plan, p, n);
    }
    plan_layer(plan, -1);
    pass_wide_add(plan, p, p->buffers->mlp_out, &m->final_norm,
                  p->buffers->layers[m->config.n_layers].stream, p->buffers->normed);
    pass_loss(plan, p, 0);
}

const struct pass_entry pass_gpt_oss = {forward, gpt_oss_backward, lines,
                                        sizeof lines / sizeof *lines};
