/* The forward pass of GPT in training. It leaves what the backward pass reads: of each layer its
 * input, what attention and its projection made, and the wide activation. */
#include "ops/ops.h"
#include "train/pass.h"

struct matrix pass_rows(const struct pass *p, void *data, int64_t cols)
{
    return matrix_of(p->dtype, data, p->sequences * p->length, cols);
}

struct matrix pass_weight(const struct tensor *w)
{
    return matrix_of(w->dtype, (void *)(uintptr_t)w->data, w->rows, w->cols);
}

static struct matrix hidden(const struct pass *p, void *data)
{
    return pass_rows(p, data, p->params->model.config.hidden);
}

void pass_linear(struct plan *plan, struct matrix x, struct matrix w, struct matrix add,
                 struct matrix y)
{
    plan_call(plan, &op_matmul,
              &(struct matmul_args){.batch = 1,
                                    .m = y.rows,
                                    .n = y.cols,
                                    .k = x.cols,
                                    .transpose_b = true,
                                    .alpha = 1,
                                    .beta = add.data ? 1 : 0,
                                    .a = x,
                                    .b = w,
                                    .add = add,
                                    .out = y});
}

void pass_norm(struct plan *plan, const struct pass *p, struct matrix x, struct matrix y)
{
    plan_call(
        plan, &op_rmsnorm,
        &(struct rmsnorm_args){
            .m = x.rows, .n = x.cols, .eps = p->params->model.config.rms_eps, .x = x, .y = y});
}

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

struct matrix pass_mixed(const struct pass *p, int64_t n)
{
    const struct layer_buffers *l = &p->buffers->layers[n];
    return hidden(p, p->params->model.config.gpt.plain ? l->stream : l->mix);
}

void pass_mix(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct gpt_weights *g = &p->params->model.gpt;
    const struct matrix mix = pass_mixed(p, n);
    if (p->params->model.config.gpt.plain) return;
    plan_call(plan, &op_axpby,
              &(struct axpby_args){
                  .m = mix.rows, .n = mix.cols, .a = g->resid_lambdas + n, .b = g->x0_lambdas + n,
                  .factor = 1, .x = hidden(p, b->layers[n].stream), .y = hidden(p, b->x0), .out = mix});
}

void pass_mlp_up(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct matrix act = pass_rows(p, b->layers[n].act, c->intermediate);
    pass_linear(plan, hidden(p, b->layers[n].mlp_in), pass_weight(&w->gpt.fc), (struct matrix){0}, act);
    plan_call(plan, &op_relu2, &(struct relu2_args){.m = act.rows, .n = act.cols, .x = act});
}

static void embed(struct plan *plan, const struct pass *p)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const struct matrix raw = hidden(p, b->raw), e = hidden(p, b->embedding), x0 = hidden(p, b->x0);

    plan_call(plan, &op_embed,
              &(struct embed_args){.m = raw.rows, .batch = p->batch, .table = m->embed, .x = raw});
    if (m->config.gpt.plain) {
        pass_norm(plan, p, raw, hidden(p, b->layers[0].stream));
        return;
    }
    pass_norm(plan, p, raw, e);
    plan_call(plan, &op_smear,
              &(struct smear_args){
                  .sequences = p->sequences, .length = p->length, .n = e.cols,
                  .lambda = m->gpt.smear_lambda, .gate = m->gpt.smear_gate.data,
                  .channels = m->gpt.smear_gate.cols, .x = e, .y = x0});
}

static void attend(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct model_config *c = &p->params->model.config;
    const struct layer_weights *w = &p->params->model.layers[n];
    const struct layer_buffers *l = &b->layers[n];
    const struct matrix x = pass_mixed(p, n), normed = hidden(p, l->attn_in), none = {0};
    const struct matrix q = pass_rows(p, l->q, w->wq.rows), attn = pass_rows(p, l->attn, w->wq.rows);
    const struct matrix k = pass_rows(p, l->k, w->wk.rows), v = pass_rows(p, l->v, w->wv.rows);

    pass_mix(plan, p, n);
    pass_norm(plan, p, x, normed);
    pass_linear(plan, normed, pass_weight(&w->wq), none, q);
    pass_linear(plan, normed, pass_weight(&w->wk), none, k);
    pass_linear(plan, normed, pass_weight(&w->wv), none, v);
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
    pass_linear(plan, attn, pass_weight(&w->wo), x, hidden(p, l->mid));
}

static void layer(struct plan *plan, const struct pass *p, int64_t n)
{
    const struct pass_buffers *b = p->buffers;
    const struct matrix mid = hidden(p, b->layers[n].mid);
    const int64_t inter = p->params->model.config.intermediate;

    attend(plan, p, n);
    pass_norm(plan, p, mid, hidden(p, b->layers[n].mlp_in));
    pass_mlp_up(plan, p, n);
    pass_linear(plan, pass_rows(p, b->layers[n].act, inter),
                pass_weight(&p->params->model.layers[n].gpt.proj), mid,
                hidden(p, b->layers[n + 1].stream));
}

/* Norm, logits and loss; in training also the gradients of what they read. */
static void head(struct plan *plan, const struct pass *p)
{
    const struct pass_buffers *b = p->buffers;
    const struct model *m = &p->params->model;
    const int64_t rows = p->sequences * p->length;
    const struct param *w = params_find((struct params *)(uintptr_t)p->params, "lm_head.weight");
    struct matrix x = hidden(p, b->layers[m->config.n_layers].stream);

    if (!m->config.gpt.plain) {
        const struct matrix final = hidden(p, b->final);
        plan_call(plan, &op_axpby,
                  &(struct axpby_args){
                      .m = rows, .n = x.cols, .b = m->gpt.backout_lambda, .factor = -1, .x = x,
                      .y = hidden(p, b->layers[m->config.n_layers / 2 + 1].stream), .out = final});
        x = final;
    }
    pass_norm(plan, p, x, hidden(p, b->normed));
    plan_call(plan, &op_linear_cross_entropy,
              &(struct linear_cross_entropy_args){
                  .m = rows, .hidden = m->config.hidden, .vocab = m->config.vocab,
                  .chunk = p->loss_chunk, .cap = m->config.gpt.softcap, .gradient = !p->evaluate,
                  .target = b->target, .scale = b->scale, .x = hidden(p, b->normed),
                  .w = pass_weight(&m->head), .nll = b->nll,
                  .dx = p->evaluate ? (struct matrix){0} : hidden(p, b->dnormed),
                  .dw = p->evaluate ? (struct matrix){0} : w->grad});
    plan_call(plan, &op_weighted_sum,
              &(struct weighted_sum_args){.n = rows, .x = b->nll, .scale = b->scale, .sum = b->loss});
}
/* clang-format on */

void pass_forward(struct plan *plan, const struct pass *p)
{
    embed(plan, p);
    for (int64_t n = 0; n < p->params->model.config.n_layers; n++) {
        plan_layer(plan, (int)n);
        layer(plan, p, n);
    }
    plan_layer(plan, -1);
    head(plan, p);
}
