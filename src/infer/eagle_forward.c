/* The forward pass of an EAGLE-3 head. */
#include "infer/eagle_private.h"
#include "ops/ops.h"

static void norm(struct plan *plan, const struct eagle *e, const float *gain, struct matrix x,
                 struct matrix y)
{
    plan_call(
        plan, &op_rmsnorm,
        &(struct rmsnorm_args){
            .m = x.rows, .n = x.cols, .eps = e->head->layer.rms_eps, .x = x, .gain = gain, .y = y});
}

static void product(struct plan *plan, struct matrix a, struct tensor w, struct matrix c)
{
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a.rows, .n = w.rows, .k = w.cols, .a = a, .w = w, .c = c});
}

static void join(struct plan *plan, const float *blocks, int64_t n, struct matrix y)
{
    const int64_t part = y.cols / n;
    plan_call(
        plan, &op_join_columns,
        &(struct join_columns_args){.m = y.rows,
                                    .n = y.cols,
                                    .ranks = n,
                                    .x = matrix_f32((void *)(uintptr_t)blocks, n * y.rows, part),
                                    .y = y});
}

static void rotate(struct plan *plan, const struct eagle *e, const struct batch *batch,
                   int64_t heads, struct matrix x)
{
    plan_call(plan, &op_rope,
              &(struct rope_args){.m = x.rows,
                                  .n_heads = heads,
                                  .head_dim = e->head->layer.head_dim,
                                  .batch = batch,
                                  .inv_freq = e->at.inv_freq,
                                  .scale = 1,
                                  .x = x});
}

static void add(struct plan *plan, struct matrix y, struct matrix x)
{
    plan_call(plan, &op_add, &(struct add_args){.m = x.rows, .n = x.cols, .y = y, .x = x});
}

/* From tokens, and states x, to the cache. Returns what queries are made of. */
static struct matrix write_keys(struct plan *plan, const struct eagle *e, const struct batch *batch,
                                struct matrix x)
{
    const struct model_config *c = &e->head->layer;
    const struct eagle_weights *w = &e->weights;
    const int64_t m = x.rows, width = c->n_kv_heads * c->head_dim;
    const struct matrix embeds = matrix_f32(e->at.embeds, m, c->hidden);
    const struct matrix both = matrix_f32(e->at.both, m, 2 * c->hidden);
    const struct matrix k = matrix_f32(e->at.k, m, width), v = matrix_f32(e->at.v, m, width);
    plan_call(plan, &op_embed,
              &(struct embed_args){.m = m, .batch = batch, .table = e->embed, .x = embeds});
    norm(plan, e, w->embed_norm, embeds, matrix_f32(e->at.normed, m, c->hidden));
    norm(plan, e, w->hidden_norm, x, matrix_f32(e->at.normed + m * c->hidden, m, c->hidden));
    join(plan, e->at.normed, 2, both);
    product(plan, both, w->wk, k);
    product(plan, both, w->wv, v);
    rotate(plan, e, batch, c->n_kv_heads, k);
    plan_call(plan, &op_kv_write,
              &(struct kv_write_args){.m = m, .batch = batch, .k = k, .v = v, .kv = e->at.kv});
    return both;
}

void eagle_build_rows(struct plan *plan, const struct eagle *e, const float *features, int64_t rows,
                      bool carried)
{
    const int64_t hidden = e->head->layer.hidden;
    const struct matrix joined = matrix_f32(e->at.joined, rows, EAGLE_FEATURES * e->target_hidden);
    join(plan, features, EAGLE_FEATURES, joined);
    product(plan, joined, e->weights.fc, matrix_f32(e->at.states + hidden, rows, hidden));
    if (rows + carried > 1)
        write_keys(plan, e, &e->step.batch,
                   matrix_f32(e->at.states + (carried ? 0 : hidden), rows - 1 + carried, hidden));
}

void eagle_build_guess(struct plan *plan, const struct eagle *e)
{
    const struct model_config *c = &e->head->layer;
    const struct eagle_weights *w = &e->weights;
    const struct eagle_buffers *b = &e->at;
    const struct batch *batch = &e->one.batch;
    const int64_t width = c->n_heads * c->head_dim;
    const struct matrix x = matrix_f32(b->x, 1, c->hidden), out = matrix_f32(b->out, 1, c->hidden);
    const struct matrix q = matrix_f32(b->q, 1, width), attn = matrix_f32(b->attn, 1, width);
    const struct matrix ffn = matrix_f32(b->ffn, 1, c->hidden);
    const struct matrix gate = matrix_f32(b->gate, 1, c->intermediate);
    const struct matrix up = matrix_f32(b->up, 1, c->intermediate);
    const struct matrix logits = matrix_f32(b->logits, 1, e->head->draft_vocab);

    product(plan, write_keys(plan, e, batch, x), w->wq, q);
    rotate(plan, e, batch, c->n_heads, q);
    plan_call(plan, &op_attention,
              &(struct attention_args){
                  .m = 1, .n_heads = c->n_heads, .batch = batch, .q = q, .kv = b->kv, .out = attn});
    product(plan, attn, w->wo, out);
    add(plan, out, x);

    norm(plan, e, w->ffn_norm, x, ffn);
    product(plan, ffn, w->gate, gate);
    product(plan, ffn, w->up, up);
    plan_call(plan, &op_silu_mul,
              &(struct silu_mul_args){.m = 1, .n = c->intermediate, .up = up, .gate = gate});
    product(plan, gate, w->down, out);
    add(plan, out, x);

    norm(plan, e, w->final_norm, x, ffn);
    product(plan, ffn, w->lm_head, logits);
    plan_call(plan, &op_sample,
              &(struct sample_args){.n = 1,
                                    .vocab = logits.cols,
                                    .logits = logits,
                                    .draws = b->draw,
                                    .token = &b->guess->token,
                                    .probability = &b->guess->sure});
}
