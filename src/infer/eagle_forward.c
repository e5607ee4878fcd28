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

static void write_cache(struct plan *plan, const struct eagle *e, const struct batch *batch,
                        struct matrix k, struct matrix v)
{
    plan_call(plan, &op_kv_write,
              &(struct kv_write_args){.m = k.rows, .batch = batch, .k = k, .v = v, .kv = e->at.kv});
}

/* Norms of the tokens' embeddings, and of states x. */
static void embed(struct plan *plan, const struct eagle *e, const struct batch *batch,
                  struct matrix x, struct matrix embeds_normed, struct matrix x_normed)
{
    const struct matrix embeds = matrix_f32(e->at.embeds, x.rows, x.cols);
    plan_call(plan, &op_embed,
              &(struct embed_args){.m = x.rows, .batch = batch, .table = e->embed, .x = embeds});
    norm(plan, e, e->weights.embed_norm, embeds, embeds_normed);
    norm(plan, e, e->weights.hidden_norm, x, x_normed);
}

/* From tokens, and states x, to the cache. */
static void write_keys(struct plan *plan, const struct eagle *e, struct matrix x)
{
    const struct model_config *c = &e->head->layer;
    const struct batch *batch = &e->step.batch;
    const int64_t m = x.rows, width = c->n_kv_heads * c->head_dim;
    const struct matrix both = matrix_f32(e->at.both, m, 2 * c->hidden);
    const struct matrix k = matrix_f32(e->at.k, m, width), v = matrix_f32(e->at.v, m, width);
    embed(plan, e, batch, x, matrix_f32(e->at.normed, m, c->hidden),
          matrix_f32(e->at.normed + m * c->hidden, m, c->hidden));
    join(plan, e->at.normed, 2, both);
    product(plan, both, e->weights.wk, k);
    product(plan, both, e->weights.wv, v);
    rotate(plan, e, batch, c->n_kv_heads, k);
    write_cache(plan, e, batch, k, v);
}

void eagle_build_rows(struct plan *plan, const struct eagle *e, const float *features, int64_t rows,
                      bool carried)
{
    const int64_t hidden = e->head->layer.hidden;
    const struct matrix joined = matrix_f32(e->at.joined, rows, EAGLE_FEATURES * e->target_hidden);
    join(plan, features, EAGLE_FEATURES, joined);
    product(plan, joined, e->weights.fc, matrix_f32(e->at.states + hidden, rows, hidden));
    if (rows + carried > 1)
        write_keys(plan, e,
                   matrix_f32(e->at.states + (carried ? 0 : hidden), rows - 1 + carried, hidden));
}

/* ---- a guess: one row, so what stands side by side is one run of numbers ---- */

/* Products with the same row, by one matrix where they are in one. */
static void products(struct plan *plan, struct matrix a, struct tensor all,
                     const struct tensor *parts, int n, float *c)
{
    if (all.data) {
        product(plan, a, all, matrix_f32(c, 1, all.rows));
        return;
    }
    for (int i = 0; i < n; c += parts[i++].rows)
        product(plan, a, parts[i], matrix_f32(c, 1, parts[i].rows));
}

static void attend(struct plan *plan, const struct eagle *e, struct matrix x)
{
    const struct model_config *c = &e->head->layer;
    const struct eagle_weights *w = &e->weights;
    const struct batch *batch = &e->one.batch;
    const int64_t width = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const int64_t heads = c->n_heads + c->n_kv_heads;
    const struct tensor parts[] = {w->wq, w->wk, w->wv};
    const struct matrix both = matrix_f32(e->at.both, 1, 2 * c->hidden);
    const struct matrix out = matrix_f32(e->at.out, 1, c->hidden);
    const struct matrix mixed = matrix_f32(e->at.attn, 1, width);
    float *qkv = e->at.qkv;
    embed(plan, e, batch, x, matrix_f32(e->at.both, 1, c->hidden),
          matrix_f32(e->at.both + c->hidden, 1, c->hidden));
    products(plan, both, e->qkv, parts, 3, qkv);
    rotate(plan, e, batch, heads, matrix_f32(qkv, 1, heads * c->head_dim));
    write_cache(plan, e, batch, matrix_f32(qkv + width, 1, kv),
                matrix_f32(qkv + width + kv, 1, kv));
    plan_call(plan, &op_attention,
              &(struct attention_args){.m = 1,
                                       .n_heads = c->n_heads,
                                       .outputs = 1,
                                       .batch = batch,
                                       .q = matrix_f32(qkv, 1, width),
                                       .kv = e->at.kv,
                                       .out = mixed});
    product(plan, mixed, w->wo, out);
    plan_call(plan, &op_add_rmsnorm,
              &(struct add_rmsnorm_args){.m = 1,
                                         .n = c->hidden,
                                         .eps = c->rms_eps,
                                         .gain = w->ffn_norm,
                                         .x = x,
                                         .add = out,
                                         .sum = x,
                                         .y = matrix_f32(e->at.ffn, 1, c->hidden)});
}

static void mlp(struct plan *plan, const struct eagle *e, struct matrix x)
{
    const struct model_config *c = &e->head->layer;
    const struct eagle_weights *w = &e->weights;
    const struct tensor parts[] = {w->gate, w->up};
    const struct matrix out = matrix_f32(e->at.out, 1, c->hidden);
    const struct matrix gate = matrix_f32(e->at.gate, 1, c->intermediate);
    const struct matrix up = matrix_f32(e->at.gate + c->intermediate, 1, c->intermediate);
    products(plan, matrix_f32(e->at.ffn, 1, c->hidden), e->gate_up, parts, 2, e->at.gate);
    plan_call(plan, &op_silu_mul,
              &(struct silu_mul_args){.m = 1, .n = c->intermediate, .up = up, .gate = gate});
    product(plan, gate, w->down, out);
    plan_call(plan, &op_add, &(struct add_args){.m = 1, .n = c->hidden, .y = out, .x = x});
}

void eagle_build_guess(struct plan *plan, const struct eagle *e)
{
    const struct model_config *c = &e->head->layer;
    const struct eagle_buffers *b = &e->at;
    const struct matrix x = matrix_f32(b->x, 1, c->hidden);
    const struct matrix logits = matrix_f32(b->logits, 1, e->head->draft_vocab);
    attend(plan, e, x);
    mlp(plan, e, x);
    plan_call(plan, &op_head,
              &(struct head_args){.n_outputs = 1,
                                  .hidden = c->hidden,
                                  .eps = c->rms_eps,
                                  .batch = &e->one.batch,
                                  .x = x,
                                  .norm = e->weights.final_norm,
                                  .w = e->weights.lm_head,
                                  .logits = logits});
    plan_call(plan, &op_sample,
              &(struct sample_args){.n = 1,
                                    .vocab = logits.cols,
                                    .logits = logits,
                                    .draws = &b->turn->draw,
                                    .token = &b->guess->token,
                                    .share = &b->guess->sure,
                                    .ids = b->ids});
}
