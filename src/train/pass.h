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
    /* In FP8: transposed codes of what products read, for dW; NULL: they are made again. */
    void *attn_in_turned, *attn_turned, *mlp_in_turned, *act_turned;
    float *lse, *q_rstd, *k_rstd;
    /* gpt-oss */
    struct routing routing;
    float *logits;   /* [rows][n_experts] of the router */
    void *gate, *up; /* [rows * top_k][intermediate] before they are clamped; grouped rows */
    void *y;         /* [rows * top_k][hidden] what experts make of them */
};

/* What the ops of a micro-step read and write: places in one memory (activations.h). */
struct pass_buffers {
    struct layer_buffers *layers; /* [n_layers + 1]; the last has only `stream`, the result */
    void *embedding, *x0;         /* [rows][hidden] normed; smeared */
    void *raw;                    /* [rows][hidden] embeddings as they are stored */
    void *normed;                 /* [rows][hidden] what the head's product reads */
    void *final;                  /* [rows][hidden] behind backout */
    void *attn_out, *mlp_out;     /* [rows][hidden] what the last layer adds to the stream */
    float *wide;                  /* [rows][hidden] the stream, where nothing else keeps it exact */
    float *nll;                   /* [rows] */
    /* gradients */
    void *dstream, *dx0, *dmiddle, *dnormed, *dattn, *dact, *dq, *dk, *dv;
    /* gpt-oss: of experts, grouped rows */
    void *gathered;           /* [rows * top_k][hidden] what they read */
    void *act;                /* [rows * top_k][intermediate] */
    void *dy, *dup;           /* gradients of y, then of what was gathered; of up */
    float *dweight, *dlogits; /* [rows][top_k], [rows][n_experts] */
    /* in a small format: what products read, [rows][widest], or transposed */
    void *small_x, *small_dy, *small_dy_turned;
    /* what the host writes before a step, and reads behind it */
    struct random_key *key;
    int32_t *token, *target, *order, *position, *sequence;
    float *scale;                /* of each nll in the loss: one number */
    float *loss;                 /* one number, accumulated */
    float *inv_freq, *back_freq; /* back: of the other sign */
    float rope_scale;
};

struct pass {
    const struct params *params;
    const struct pass_buffers *buffers;
    const struct batch *batch; /* token, position, sequence of the rows */
    int64_t sequences, length; /* rows = sequences * length */
    enum dtype dtype;          /* of activations */
    bool evaluate;             /* no gradients: nll alone */
    enum recompute recompute;
    bool rounded_rotation; /* 2026-01 */
    float balance;         /* of experts' shares in the loss */
    float dropout;         /* 0 where nothing is left out */
    enum train_precision precision;
    /* Called where the backward pass has left a layer, from the last to the first, and -1 at its
     * end: gradients of what it has are whole then. NULL: nobody asks. */
    void (*left)(void *arg, struct plan *plan, int64_t layer);
    void *left_arg;
};

/* Streams of random bits, by what they are for; one for each place follows. */
enum random_stream { STREAM_QUANTISE = 0, STREAM_DROPOUT = 1 << 20 };

void pass_forward(struct plan *plan, const struct pass *pass);
void pass_backward(struct plan *plan, const struct pass *pass);
/* Of architectures' lists: what lies behind layer n. */
void pass_leave(struct plan *plan, const struct pass *pass, int64_t n);

/* ---- an architecture's ---- */

struct activation_line; /* train/activation_lines.h */

/* Its lists, and the buffers that they use beside those that every model has. */
struct pass_entry {
    void (*forward)(struct plan *plan, const struct pass *pass);
    void (*backward)(struct plan *plan, const struct pass *pass);
    const struct activation_line *lines;
    int n_lines;
};

const struct pass_entry *pass_entry_of(const struct model_config *config);

/* ---- what all lists are written with ---- */

struct matrix pass_rows(const struct pass *pass, void *data, int64_t cols);
struct matrix pass_hidden(const struct pass *pass, void *data);
/* A tensor, all its groups one behind the other, as products read it. */
struct matrix pass_weight(const struct tensor *w);
/* The gradient of what a field of the model is. */
struct matrix pass_grad_of(const struct pass *pass, const void *field);
float *pass_vector_grad_of(const struct pass *pass, const void *field);
/* What products with weights read: x and, where the weights are small, x in their format. It is
 * there until the next one is made. */
struct linear_input {
    struct matrix x;
    void *small;
    const float *factor;
};
/* For y = x W^T of w and of others like it that read the same x. `turned`: where FP8 keeps what
 * their dW reads; NULL: nowhere. */
struct linear_input pass_input(struct plan *plan, const struct pass *pass, struct matrix x,
                               const struct tensor *w, void *turned);
/* For their dW. `turned`: what pass_input kept; x itself is not read then. */
struct linear_input pass_input_backward(struct plan *plan, const struct pass *pass, struct matrix x,
                                        const struct tensor *w, void *turned);
/* x = max(x, 0)^2 in place, and what products with w read of it; made again for dW, where it was
 * not kept. */
struct linear_input pass_relu2(struct plan *plan, const struct pass *pass, struct matrix x,
                               const struct tensor *w, void *turned);
struct linear_input pass_relu2_backward(struct plan *plan, const struct pass *pass, struct matrix x,
                                        const struct tensor *w);
/* y = x W^T (+ add, where it has data) */
void pass_linear(struct plan *plan, const struct pass *pass, struct linear_input x,
                 const struct tensor *w, struct matrix add, struct matrix y);
/* Of y = x W^T: dW += dy^T x, and dx = dy W (+ add, where it has data). */
void pass_linear_backward(struct plan *plan, const struct pass *pass, struct matrix dy,
                          struct linear_input x, const struct tensor *w, struct matrix add,
                          struct matrix dx);
/* The same behind y = max(x W^T, 0)^2: dy becomes the gradient of x W^T. */
void pass_relu2_linear_backward(struct plan *plan, const struct pass *pass, struct matrix y,
                                struct matrix dy, struct linear_input x, const struct tensor *w,
                                struct matrix add, struct matrix dx);
/* `gain`: the field of the model; NULL: there is none. */
void pass_norm(struct plan *plan, const struct pass *pass, struct matrix x,
               const float *const *gain, struct matrix y);
/* sum = x + add, copy = the same where it has data, y = its norm before it is rounded. */
void pass_add_norm(struct plan *plan, const struct pass *pass, struct matrix x, struct matrix add,
                   const float *const *gain, struct matrix sum, struct matrix copy,
                   struct matrix y);
/* The stream in float32, of architectures whose layers only add to it: begins as layer 0's, then
 * each `add` goes into it. copy: it, rounded; y: its norm. Both as pass_add_norm has them. */
void pass_wide_begin(struct plan *plan, const struct pass *pass);
void pass_wide_add(struct plan *plan, const struct pass *pass, void *add, const float *const *gain,
                   void *copy, void *y);
/* dx += */
void pass_norm_backward(struct plan *plan, const struct pass *pass, struct matrix x,
                        const float *const *gain, struct matrix dy, struct matrix dx);
/* Logits and loss of what `normed` has; in training also the gradients of what they read. */
void pass_loss(struct plan *plan, const struct pass *pass, float cap);

#endif
