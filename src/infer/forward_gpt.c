/* The forward pass of GPT. A token's embedding is normed and smeared with the one before it; each
 * layer begins with a mix of the stream and that embedding; what the middle layer left is taken
 * away at the end. Plain models have none of the three. */
#include "infer/buffer_table.h"
#include "ops/ops.h"

static struct matrix hidden(const struct forward_step *s, float *data)
{
    return matrix_f32(data, s->rows, s->model->config.hidden);
}

static void norm_with(struct plan *plan, float eps, struct matrix x, struct matrix y)
{
    plan_call(plan, &op_rmsnorm,
              &(struct rmsnorm_args){.m = x.rows, .n = x.cols, .eps = eps, .x = x, .y = y});
}

static void norm(struct plan *plan, const struct forward_step *s, struct matrix x, struct matrix y)
{
    norm_with(plan, s->model->config.rms_eps, x, y);
}

static void product(struct plan *plan, struct matrix a, struct tensor w, struct matrix c)
{
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a.rows, .n = w.rows, .k = w.cols, .a = a, .w = w, .c = c});
}

/* Of a layer; plans are made of models without their weights, too. */
static const float *scale_of(const float *scales, int64_t n)
{
    return scales ? scales + n : NULL;
}

/* Projection, norm of each head, rotation. */
static void rotated(struct plan *plan, const struct forward_step *s, struct tensor w, int64_t heads,
                    float *out)
{
    const struct forward_buffers *b = s->buffers;
    const int64_t dim = s->model->config.head_dim;
    product(plan, hidden(s, b->normed), w, matrix_f32(b->gpt.raw, s->rows, w.rows));
    norm_with(plan, s->model->config.rms_eps, matrix_f32(b->gpt.raw, s->rows * heads, dim),
              matrix_f32(out, s->rows * heads, dim));
    plan_call(plan, &op_rope,
              &(struct rope_args){.m = s->rows,
                                  .n_heads = heads,
                                  .head_dim = dim,
                                  .batch = s->batch,
                                  .inv_freq = b->inv_freq,
                                  .scale = b->rope_scale,
                                  .x = matrix_f32(out, s->rows, w.rows)});
}

/* What a block adds to the stream; of ranks each has a part. */
static void join(struct plan *plan, const struct forward_step *s, struct matrix out,
                 struct matrix x)
{
    if (forward_is_shared(&s->model->config))
        forward_add_up(plan, s, out, x);
    else
        plan_call(plan, &op_add, &(struct add_args){.m = x.rows, .n = x.cols, .y = out, .x = x});
}

/* One op a paragraph reads better than one argument a line. */
/* clang-format off */
static void before(struct plan *plan, const struct forward_step *s)
{
    const struct forward_buffers *b = s->buffers;
    const struct gpt_weights *w = &s->model->gpt;
    const struct matrix raw = hidden(s, b->gpt.middle), x0 = hidden(s, b->gpt.x0);

    plan_call(plan, &op_embed,
              &(struct embed_args){
                  .m = s->rows, .batch = s->batch, .table = s->model->embed, .x = raw});
    norm_with(plan, s->model->config.rms_eps, raw, x0);
    if (!s->model->config.gpt.plain)
        plan_call(plan, &op_gated_embed,
                  &(struct gated_embed_args){
                      .m = s->rows, .n = x0.cols, .previous = true, .normed = true, .scale = 1,
                      .eps = s->model->config.rms_eps, .lambda = w->smear_lambda,
                      .batch = s->batch, .table = s->model->embed, .gate = w->smear_gate,
                      .x = x0, .y = x0});
    plan_call(plan, &op_axpby,
              &(struct axpby_args){.m = s->rows, .n = x0.cols, .x = x0, .out = hidden(s, b->x)});
}

static void layer(struct plan *plan, const struct forward_step *s, int64_t n)
{
    const struct model_config *c = &s->model->config;
    const struct forward_buffers *b = s->buffers;
    const struct gpt_weights *g = &s->model->gpt;
    const struct layer_weights *w = &s->model->layers[n];
    const int64_t rows = s->rows, width = c->n_heads * c->head_dim;
    const struct matrix x = hidden(s, b->x), normed = hidden(s, b->normed);
    const struct matrix out = hidden(s, b->gpt.out);
    const struct matrix q = matrix_f32(b->q, rows, width), attn = matrix_f32(b->attn, rows, width);
    const struct matrix k = matrix_f32(b->gpt.k, rows, w->wk.rows);
    const struct matrix v = matrix_f32(b->gpt.v, rows, w->wv.rows);
    const struct matrix up = matrix_f32(b->gpt.up, rows, c->intermediate);

    if (!c->gpt.plain)
        plan_call(plan, &op_axpby,
                  &(struct axpby_args){
                      .m = rows, .n = c->hidden, .a = scale_of(g->resid_lambdas, n),
                      .b = scale_of(g->x0_lambdas, n), .factor = 1, .x = x,
                      .y = hidden(s, b->gpt.x0), .out = x});

    norm(plan, s, x, normed);
    rotated(plan, s, w->wq, c->n_heads, b->q);
    rotated(plan, s, w->wk, c->n_kv_heads, b->gpt.k);
    product(plan, normed, w->wv, v);
    if (w->gpt.values.rows)
        plan_call(plan, &op_gated_embed,
                  &(struct gated_embed_args){
                      .m = rows, .n = v.cols, .scale = c->gpt.value_scale, .batch = s->batch,
                      .table = w->gpt.values, .gate = w->gpt.ve_gate, .x = normed, .y = v});
    plan_call(plan, &op_kv_write,
              &(struct kv_write_args){.m = rows, .batch = s->batch, .k = k, .v = v, .kv = b->kv[n]});
    plan_call(plan, &op_attention,
              &(struct attention_args){
                  .m = rows, .n_heads = c->n_heads, .outputs = s->outputs,
                  .window = model_layer_window(c, n), .batch = s->batch, .q = q, .kv = b->kv[n],
                  .out = attn});
    product(plan, attn, w->wo, out);
    join(plan, s, out, x);

    norm(plan, s, x, normed);
    product(plan, normed, w->gpt.fc, up);
    plan_call(plan, &op_relu2, &(struct relu2_args){.m = rows, .n = c->intermediate, .x = up});
    product(plan, up, w->gpt.proj, out);
    join(plan, s, out, x);

    if (!c->gpt.plain && c->first_layer + n == model_layers(c) / 2)
        plan_call(plan, &op_axpby,
                  &(struct axpby_args){
                      .m = rows, .n = c->hidden, .x = x, .out = hidden(s, b->gpt.middle)});
}

static void head(struct plan *plan, const struct forward_step *s)
{
    const struct model_config *c = &s->model->config;
    const struct forward_buffers *b = s->buffers;
    const struct matrix x = hidden(s, b->x);
    const struct matrix logits = forward_logits(s);
    struct tensor w = s->model->head;
    w.rows = logits.cols; /* the rest only fills the last 64 */

    if (!c->gpt.plain)
        plan_call(plan, &op_axpby,
                  &(struct axpby_args){
                      .m = s->rows, .n = c->hidden, .b = s->model->gpt.backout_lambda,
                      .factor = -1, .x = x, .y = hidden(s, b->gpt.middle), .out = x});
    plan_call(plan, &op_head,
              &(struct head_args){
                  .n_outputs = s->outputs, .hidden = c->hidden, .eps = c->rms_eps,
                  .batch = s->batch, .x = x, .w = w, .logits = logits});
    plan_call(plan, &op_softcap,
              &(struct softcap_args){
                  .m = s->outputs, .n = logits.cols, .cap = c->gpt.softcap, .x = logits});
}

static const struct buffer_line lines[] = {
    {"embedding", F32, {ROWS, HIDDEN}, EMBED, HEAD, .pointer = AT(at.gpt.x0)},
    {"middle", F32, {ROWS, HIDDEN}, EMBED, HEAD, .pointer = AT(at.gpt.middle)},
    {"normed", F32, {ROWS, HIDDEN}, ATTN_IN, FFN, .pointer = AT(at.normed)},
    {"raw", F32, {ROWS, WIDTH}, ATTN_IN, ATTN_IN, .pointer = AT(at.gpt.raw)},
    {"k", F32, {ROWS, KV_HEADS, HEAD_DIM}, ATTN_IN, ATTN_IN, .pointer = AT(at.gpt.k)},
    {"v", F32, {ROWS, KV_HEADS, HEAD_DIM}, ATTN_IN, ATTN_IN, .pointer = AT(at.gpt.v)},
    {"out", F32, {ROWS, HIDDEN}, ATTN_OUT, FFN, .pointer = AT(at.gpt.out)},
    {"up", F32, {ROWS, INTERMEDIATE}, FFN, FFN, .pointer = AT(at.gpt.up)},
};
/* clang-format on */

static const struct op *const parts[] = {&op_gemm, &op_kv_write, &op_attention, &op_relu2, NULL};
static const struct op *const shared_parts[] = {&op_gemm,  &op_kv_write,       &op_attention,
                                                &op_relu2, &op_all_reduce_add, NULL};

const struct forward forward_gpt = {
    .before = before,
    .layer = layer,
    .head = head,
    .parts = parts,
    .shared_parts = shared_parts,
    .previous = true,
    .n_carried = 3,
    .carried = {offsetof(struct forward_buffers, x), offsetof(struct forward_buffers, gpt.x0),
                offsetof(struct forward_buffers, gpt.middle)},
    .lines = lines,
    .n_lines = sizeof lines / sizeof *lines,
};
