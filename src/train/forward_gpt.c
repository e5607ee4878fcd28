/* The forward pass of GPT in training. It leaves what the backward pass reads: of each layer its
 * input, what attention and its projection made, and the wide activation. */
#include "ops/ops.h"
#include "train/activation_lines.h"
#include "train/pass_gpt.h"

/* One op a paragraph reads better than one argument a line. */
/* clang-format off */
static void rotate(struct plan *plan, const struct pass *p, int64_t heads, struct matrix x, float *rstd)
{
    const struct pass_buffers *b = p->buffers;
    plan_call(plan, &op_rotary_norm,
              &(struct rotary_norm_args){
                  .m = x.rows, .n_heads = heads, .head_dim = p->params->model.config.head_dim,
                  .batch = p->batch, .inv_freq = b->inv_freq, .scale = b->rope_scale,
                  .eps = p->params->model.config.rms_eps, .rounded = p->rounded_rotation,
                  .x = x, .rstd = rstd});
}

struct matrix gpt_mixed(const struct pass *p, int64_t n)
{
    const struct layer_buffers *l = &p->buffers->layers[n];
    return pass_hidden(p, p->params->model.config.gpt.plain ? l->stream : l->mix);
}

void gpt_mix(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct gpt_weights *g = &p->params->model.gpt;
    const struct matrix mix = gpt_mixed(p, n);
    if (p->params->model.config.gpt.plain) return;
    plan_call(plan, &op_axpby,
              &(struct axpby_args){
                  .m = mix.rows, .n = mix.cols, .a = g->resid_lambdas + n, .b = g->x0_lambdas + n,
                  .factor = 1, .x = pass_hidden(p, b->layers[n].stream), .y = pass_hidden(p, b->x0), .out = mix});
}

void gpt_mlp_up(struct plan *plan, const struct pass *p, int64_t n, struct matrix act)
{
    const struct layer_buffers *l = &p->buffers->layers[n];
    const struct tensor *fc = &p->params->model.layers[n].gpt.fc;
    pass_linear(plan, p, pass_input(plan, p, pass_hidden(p, l->mlp_in), fc, l->mlp_in_turned), fc,
                (struct matrix){0}, act);
}

static void embed(struct plan *plan, const struct pass *p)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const struct matrix raw = pass_hidden(p, b->raw), e = pass_hidden(p, b->embedding), x0 = pass_hidden(p, b->x0);

    plan_call(plan, &op_embed,
              &(struct embed_args){.m = raw.rows, .batch = p->batch, .table = m->embed, .x = raw});
    if (m->config.gpt.plain) {
        pass_norm(plan, p, raw, NULL, pass_hidden(p, b->layers[0].stream));
        pass_wide_begin(plan, p);
        return;
    }
    pass_norm(plan, p, raw, NULL, e);
    plan_call(plan, &op_smear,
              &(struct smear_args){
                  .sequences = p->sequences, .length = p->length, .n = e.cols,
                  .lambda = m->gpt.smear_lambda, .gate = m->gpt.smear_gate.data,
                  .channels = m->gpt.smear_gate.cols, .x = e, .y = x0});
}

/* Layer n's stream: layer n - 1's input, its attention and its MLP. out = a stream + factor b y, of the
 * stream before it is rounded: in bf16 small additions would be lost (ops/add_rmsnorm.c). */
static void add_mix(struct plan *plan, const struct pass *p, int64_t n, const float *a, const float *b, float factor,
                    struct matrix y, struct matrix out)
{
    const struct pass_buffers *buffers = p->buffers;
    plan_call(plan, &op_add_axpby,
              &(struct add_axpby_args){
                  .m = out.rows, .n = out.cols, .a = a, .b = b, .factor = factor, .x = gpt_mixed(p, n - 1),
                  .first = pass_hidden(p, buffers->attn_out), .second = pass_hidden(p, buffers->mlp_out),
                  .sum = pass_hidden(p, buffers->layers[n].stream), .y = y, .out = out});
}

static void mix(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct gpt_weights *g = &p->params->model.gpt;
    if (n == 0)
        gpt_mix(plan, p, n);
    else
        add_mix(plan, p, n, g->resid_lambdas + n, g->x0_lambdas + n, 1, pass_hidden(p, p->buffers->x0), gpt_mixed(p, n));
}

static void attend(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct layer_buffers *l = &b->layers[n];
    const struct matrix x = gpt_mixed(p, n), normed = pass_hidden(p, l->attn_in), none = {0};
    const struct matrix q = pass_rows(p, l->q, w->wq.rows), attn = pass_rows(p, l->attn, w->wq.rows);
    const struct matrix k = pass_rows(p, l->k, w->wk.rows), v = pass_rows(p, l->v, w->wv.rows);

    if (c->gpt.plain && n > 0) {
        pass_wide_add(plan, p, b->mlp_out, NULL, l->stream, l->attn_in);
    } else {
        mix(plan, p, n);
        pass_norm(plan, p, x, NULL, normed);
    }
    const struct linear_input in = pass_input(plan, p, normed, &w->wq, l->attn_in_turned);
    pass_linear(plan, p, in, &w->wq, none, q);
    pass_linear(plan, p, in, &w->wk, none, k);
    pass_linear(plan, p, in, &w->wv, none, v);
    if (w->gpt.values.rows)
        plan_call(plan, &op_gated_embed,
                  &(struct gated_embed_args){
                      .m = v.rows, .n = v.cols, .scale = c->gpt.value_scale, .batch = p->batch,
                      .table = w->gpt.values, .gate = w->gpt.ve_gate, .x = normed, .y = v});
    rotate(plan, p, c->n_heads, q, l->q_rstd);
    rotate(plan, p, c->n_kv_heads, k, l->k_rstd);
    plan_call(plan, &op_self_attention,
              &(struct self_attention_args){
                  .sequences = p->sequences, .length = p->length, .n_heads = c->n_heads,
                  .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim,
                  .window = model_layer_window(c, n), .q = q, .k = k, .v = v, .out = attn,
                  .lse = l->lse});
    pass_linear(plan, p, pass_input(plan, p, attn, &w->wo, l->attn_turned), &w->wo, none,
                pass_hidden(p, b->attn_out));
}

static void layer(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct layer_buffers *l = &b->layers[n];
    const struct tensor *proj = &p->params->model.layers[n].gpt.proj;
    const struct matrix act = pass_rows(p, l->act, p->params->model.config.intermediate), none = {0};

    attend(plan, p, n);
    if (p->params->model.config.gpt.plain)
        pass_wide_add(plan, p, b->attn_out, NULL, l->mid, l->mlp_in);
    else
        pass_add_norm(plan, p, gpt_mixed(p, n), pass_hidden(p, b->attn_out), NULL, pass_hidden(p, l->mid), none,
                      pass_hidden(p, l->mlp_in));
    gpt_mlp_up(plan, p, n, act);
    pass_linear(plan, p, pass_relu2(plan, p, act, proj, l->act_turned), proj, none, pass_hidden(p, b->mlp_out));
}

static void head(struct plan *plan, const struct pass *p)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const int64_t layers = m->config.n_layers;

    if (m->config.gpt.plain) {
        pass_wide_add(plan, p, b->mlp_out, NULL, b->layers[layers].stream, b->normed);
    } else {
        const int64_t half = layers / 2 + 1; /* of one or two layers the stream that is made here */
        const struct matrix middle = half < layers ? pass_hidden(p, b->layers[half].stream) : (struct matrix){0};
        const struct matrix final = pass_hidden(p, b->final);
        add_mix(plan, p, layers, NULL, m->gpt.backout_lambda, -1, middle, final);
        pass_norm(plan, p, final, NULL, pass_hidden(p, b->normed));
    }
    pass_loss(plan, p, m->config.gpt.softcap);
}

static const struct activation_line lines[] = {
    {"q rstd", F32, ROWS, HEADS, ATTENTION, BACK_ATTENTION, true, LAYER(q_rstd)},
    {"k rstd", F32, ROWS, KV_HEADS, ATTENTION, BACK_ATTENTION, true, LAYER(k_rstd)},
    {"act", ACT, ROWS, INTER, ATTENTION, BACK_ATTENTION, true, LAYER_AGAIN(act, RECOMPUTE_WIDE)},
    {"mlp in turned", TURNED, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER(mlp_in_turned)},
    {"act turned", TURNED, ROWS, INTER, ATTENTION, BACK_ATTENTION, true, LAYER(act_turned)},
    {"embedding", ACT, ROWS, HIDDEN, EMBED, BACK_EMBED, false, AT(embedding)},
    {"mix", ACT, ROWS, HIDDEN, EMBED, BACK_EMBED, true, LAYER_AGAIN(mix, RECOMPUTE_NORMS)},
    {"attn in", ACT, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER_AGAIN(attn_in, RECOMPUTE_NORMS)},
    {"mlp in", ACT, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER_UNTIL_TURNED(mlp_in)},
    {"normed", ACT, ROWS, HIDDEN, HEAD, HEAD, false, AT(normed)},
    {"final", ACT, ROWS, HIDDEN, HEAD, HEAD, false, AT(final)},
    {"dnormed", ACT, ROWS, HIDDEN, HEAD, BACK_EMBED, false, AT(dnormed)},
    {"dstream", ACT, ROWS, HIDDEN, HEAD, BACK_EMBED, false, AT(dstream)},
    {"dmiddle", ACT, ROWS, HIDDEN, HEAD, BACK_ATTENTION, false, AT(dmiddle)},
    {"dx0", ACT, ROWS, HIDDEN, BACK_MLP, BACK_EMBED, false, AT(dx0)},
    {"dact", ACT, ROWS, INTER, BACK_MLP, BACK_MLP, false, AT(dact)},
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
    embed(plan, p);
    for (int64_t n = 0; n < p->params->model.config.n_layers; n++) {
        plan_layer(plan, (int)n);
        layer(plan, p, n);
    }
    plan_layer(plan, -1);
    head(plan, p);
}

const struct pass_entry pass_gpt = {forward, gpt_backward, lines, sizeof lines / sizeof *lines};
