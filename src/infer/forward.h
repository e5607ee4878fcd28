/* The forward pass as a list of op calls. What is called before the layers, in one and behind them
 * is the architecture's (forward_<name>.c); beside its calls stand the buffers that only it has. */
#ifndef INFER_FORWARD_H
#define INFER_FORWARD_H

#include "model/model.h"
#include "ops/args.h"
#include "ops/plan.h"

/* What the ops of a step read and write, for the largest batch (see the table in buffers.c). */
struct forward_buffers {
    float *x;            /* [rows][hidden] residual stream */
    float *part;         /* [rows][hidden] of what is added to it, where ranks share the model */
    float *q;            /* [rows][n_heads][head_dim] */
    float *attn;         /* [rows][n_heads][head_dim] */
    float *normed;       /* [rows][hidden] what the next products read */
    float *logits;       /* [outputs][vocab] */
    float *parts;        /* [ranks][outputs][head_rows] logits of all ranks, where there are some */
    float *features;     /* [n_features][rows][hidden] the stream as some layers found it */
    struct kv_layer *kv; /* [n_layers] */
    float *inv_freq;     /* [head_dim / 2] */
    float rope_scale;
    uint32_t *banned, *lists; /* as in sample_args, on a GPU */
    struct sample_draw *draws;
    int32_t *token;
    struct routing routing; /* gpt-oss */
    struct routing own;     /* what of it is for the rank's experts; the same where it has all */
    struct {
        float *x0;     /* [rows][hidden] the embedding */
        float *middle; /* [rows][hidden] what the middle layer left */
        float *raw;    /* [rows][n_heads * head_dim] queries or keys as they are projected */
        float *k, *v;  /* [rows][n_kv_heads * head_dim] */
        float *out;    /* [rows][hidden] what a block adds to the stream */
        float *up;     /* [rows][intermediate] */
    } gpt;
};

/* Some rows of a step, as the plan reads them; batch.host is `host`. */
struct forward_piece {
    struct batch batch, host;
};

/* Whether a token is drawn from each row of logits: from what is not banned, or also from lists. */
enum forward_draw { FORWARD_NO_DRAW, FORWARD_DRAW, FORWARD_DRAW_LISTS };

struct forward_step {
    const struct model *model;
    const struct batch *batch; /* read when the plan runs, as buffers and caches are */
    const struct forward_buffers *buffers;
    int64_t rows, outputs; /* of tokens, and of logits; no rows: only the draw */
    enum forward_draw draw;
    bool feeds;       /* what row i draws becomes the batch's token i, for a step right behind */
    const bool *skip; /* [n_layers] not called, to see what others need; or NULL */
    const int64_t *features; /* [n_features] before which of the layers, n_layers for behind the */
    int64_t n_features;      /* last, the stream is kept: buffers->features */
    /* Rows that pass at once (forward_piece_rows); 0: all. Of several pieces the plan reads
     * `pieces`, which it fills: room for FORWARD_PIECES_MAX, to last as long. */
    int64_t piece_rows;
    struct forward_piece *pieces;
};

/* Appends the calls of a step. */
void forward_build(struct plan *plan, const struct forward_step *step);

/* ---- several ranks ---- */

/* Ranks of which each has a part of the model (model/shard.h) run the same steps. Where each has
 * a part of every layer, each has the whole residual stream x. What is added to x each has a part
 * of: products add it to a matrix apart, zeros before, and forward_add_up adds the sum of all
 * ranks' to x, which leaves zeros again. Where a model is whole that matrix is x, and these add no
 * calls. */
bool forward_is_shared(const struct model_config *config);
/* Or else each has some layers, and passes the stream on to the one with those that follow. A step
 * passes in pieces, so that a rank works on one while the next has the one before; rank 0, which
 * has the last layers and the head, then puts out all rows. */
bool forward_is_pipeline(const struct model_config *config);
bool forward_puts_out(const struct model_config *config);
enum { FORWARD_PIECES_MAX = 32 };
int64_t forward_piece_rows(const struct model_config *config, int64_t rows, bool gpu);
bool forward_deals_experts(const struct model_config *config); /* each rank has some, whole */
struct matrix forward_part(const struct forward_step *step);
void forward_clear_part(struct plan *plan, const struct forward_step *step); /* before the layers */
/* A part that is alone (model_config.alone) adds nothing up. */
void forward_add_up(struct plan *plan, const struct forward_step *step, struct matrix part,
                    struct matrix x);
/* Where a head puts its logits; behind it those of all ranks are joined. */
struct matrix forward_logits(const struct forward_step *step);

/* ---- an architecture's ---- */

struct buffer_line; /* infer/buffer_table.h */

struct forward {
    void (*before)(struct plan *plan, const struct forward_step *step);
    void (*layer)(struct plan *plan, const struct forward_step *step, int64_t n);
    void (*head)(struct plan *plan, const struct forward_step *step); /* where outputs are wanted */
    /* What each layer has, fused or not; behind them NULL. Where ranks share it: the second. */
    const struct op *const *parts, *const *shared_parts;
    bool previous; /* its ops read batch->previous */
    /* What one layer hands to the next: [rows][hidden] each, in struct forward_buffers. */
    int n_carried;
    size_t carried[3];
    const struct buffer_line *lines;
    int n_lines;
};

const struct forward *forward_of(const struct model_config *config);
const struct op *const *forward_parts(const struct model_config *config);

#endif
