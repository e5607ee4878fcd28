/* The gpt-oss forward pass as a list of op calls. */
#ifndef INFER_FORWARD_H
#define INFER_FORWARD_H

#include "model/model.h"
#include "ops/args.h"
#include "ops/plan.h"

/* The activations of one step, allocated for the largest batch (see engine.c's table). */
struct forward_buffers {
    float *x;      /* [rows][hidden] residual stream */
    float *q;      /* [rows][n_heads][head_dim] */
    float *attn;   /* [rows][n_heads][head_dim] */
    float *normed; /* [rows][hidden] what router and experts read */
    float *logits; /* [outputs][vocab] */
    struct routing routing;
};

/* Appends the calls for `rows` token rows and `outputs` rows of logits. batch, buffers and caches
 * (kv[n_layers]) are read when the plan runs. */
void forward_build(struct plan *plan, const struct model *model, const struct batch *batch,
                   const struct kv_layer *kv, const float *inv_freq, float rope_scale,
                   const struct forward_buffers *buffers, int64_t rows, int64_t outputs);

#endif
