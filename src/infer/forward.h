/* The gpt-oss forward pass as a list of op calls. */
#ifndef INFER_FORWARD_H
#define INFER_FORWARD_H

#include "model/model.h"
#include "ops/args.h"
#include "ops/plan.h"

/* What the ops of a step read and write, for the largest batch (see the table in buffers.c). */
struct forward_buffers {
    float *x;      /* [rows][hidden] residual stream */
    float *q;      /* [rows][n_heads][head_dim] */
    float *attn;   /* [rows][n_heads][head_dim] */
    float *normed; /* [rows][hidden] what router and experts read */
    float *logits; /* [outputs][vocab] */
    struct routing routing;
    struct kv_layer *kv; /* [n_layers] */
    float *inv_freq;     /* [head_dim / 2] */
    float rope_scale;
    uint32_t *banned; /* as in sample_args, on a GPU */
    struct sample_draw *draws;
    int32_t *token;
};

/* Appends the calls for `rows` token rows and `outputs` rows of logits, from each of which `draws`
 * takes a token. The contents of batch, buffers and caches are read when the plan runs. */
void forward_build(struct plan *plan, const struct model *model, const struct batch *batch,
                   const struct forward_buffers *buffers, int64_t rows, int64_t outputs,
                   bool draws);

#endif
