/* The forward and the backward pass of training as lists of op calls. Which kernels serve them, on
 * which device and in which types, is the plan's business. */
#ifndef TRAIN_PASS_H
#define TRAIN_PASS_H

#include "ops/args.h"
#include "ops/plan.h"
#include "train/params.h"

/* What is made again for the backward pass instead of being kept from the forward pass. */
enum recompute {
    RECOMPUTE_NOTHING,
    RECOMPUTE_NORMS, /* norms, and a layer's input with its scales */
    RECOMPUTE_WIDE,  /* and the wide activation */
    RECOMPUTE_LEVELS
};

/* What a layer leaves for its backward pass. */
struct layer_buffers {
    void *stream;           /* [rows][hidden] what comes in */
    void *mid;              /* [rows][hidden] behind attention */
    void *mix;              /* [rows][hidden] what came in with its scales */
    void *attn_in, *mlp_in; /* [rows][hidden] normed: what products read */
    void *q, *k, *v, *attn, *act;
    float *lse, *q_rstd, *k_rstd;
};

/* What the ops of a micro-step read and write: places in one memory (activations.h). */
struct pass_buffers {
    struct layer_buffers *layers; /* [n_layers + 1]; the last has only `stream`, the result */
    void *embedding, *x0;         /* [rows][hidden] normed; smeared */
    void *raw;                    /* [rows][hidden] embeddings as they are stored */
    void *normed;                 /* [rows][hidden] what the head's product reads */
    void *final;                  /* [rows][hidden] behind backout */
    float *nll;                   /* [rows] */
    /* gradients */
    void *dstream, *dx0, *dmiddle, *dnormed, *dattn, *dact, *dq, *dk, *dv;
    /* what the host writes before a step, and reads behind it */
    int32_t *token, *target, *order, *position, *sequence, *previous;
    float *scale; /* of each nll in the loss: one number */
    float *loss;  /* one number, accumulated */
    float *inv_freq;
    float rope_scale;
};

struct pass {
    const struct params *params;
    const struct pass_buffers *buffers;
    const struct batch *batch; /* token, position, sequence, previous of the rows */
    int64_t sequences, length; /* rows = sequences * length */
    int64_t loss_chunk;        /* rows of logits at a time, 0: all */
    enum dtype dtype;          /* of activations */
    bool evaluate;             /* no gradients: nll alone */
    enum recompute recompute;
    bool rounded_rotation; /* 2026-01 */
};

void pass_forward(struct plan *plan, const struct pass *pass);
void pass_backward(struct plan *plan, const struct pass *pass);

/* ---- what both lists are written with ---- */

struct matrix pass_rows(const struct pass *pass, void *data, int64_t cols);
/* y = x W^T (+ add, where it has data) */
void pass_linear(struct plan *plan, struct matrix x, struct matrix w, struct matrix add,
                 struct matrix y);
void pass_norm(struct plan *plan, const struct pass *pass, struct matrix x, struct matrix y);
/* What a layer works on: resid_lambda * stream + x0_lambda * x0, made there; of plain models the
 * stream itself. */
struct matrix pass_mixed(const struct pass *pass, int64_t n);
void pass_mix(struct plan *plan, const struct pass *pass, int64_t n);
/* act = max(0, normed W^T)^2 */
void pass_mlp_up(struct plan *plan, const struct pass *pass, int64_t n);
/* Weights of a layer, as products read them. */
struct matrix pass_weight(const struct tensor *w);

#endif
