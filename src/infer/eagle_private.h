/* What the files of a running head share. */
#ifndef INFER_EAGLE_PRIVATE_H
#define INFER_EAGLE_PRIVATE_H

#include "infer/eagle.h"

/* What the host says of a guess: its row, and how the token is drawn. */
struct eagle_turn {
    struct sample_draw draw;
    int32_t row[3]; /* token, position, sequence */
    uint32_t pad;
};

/* What its ops read and write; R is the engine's max_batch. */
struct eagle_buffers {
    float *joined; /* [R][3 * target's hidden] */
    float *states; /* [1 + R][hidden] what fc makes of that; the first is from the step before */
    float *embeds; /* [R][hidden] */
    float *normed; /* [2 R][hidden] of embeddings, behind them of states */
    float *both;   /* [R][2 * hidden] the same side by side */
    float *k, *v;  /* [R][n_kv_heads * head_dim] */
    float *qkv;    /* of a guess: queries, then key, then value */
    float *attn;
    float *x, *out; /* [1][hidden] the stream of a guess, and what is added to it */
    float *ffn;     /* [1][hidden] what the MLP reads */
    float *gate;    /* [2][intermediate] gate, then up */
    float *logits;  /* [1][draft_vocab] */
    float *inv_freq;
    int32_t *ids;              /* [draft_vocab] the target's */
    int32_t *first;            /* 0: the row that logits are of */
    struct eagle_guess *guess; /* of a GPU, on the host */
    struct eagle_turn *turn;
    int32_t *rows; /* [3][R] token, position, sequence */
    struct kv_layer kv;
};

/* Rows as the ops read them, and as the host writes them. */
struct eagle_rows {
    struct batch batch, host;
};

/* A step's rows, of which a plan is made once. `carried`: the row before them is there too. */
struct eagle_plan {
    struct plan *plan;
    int64_t rows;
    bool carried;
};
enum { EAGLE_PLANS = 24 }; /* steps that check guesses have 17 shapes at most */

struct eagle {
    struct engine *engine;
    const struct eagle_head *head;
    struct eagle_weights weights; /* where the ops read them */
    struct tensor qkv, gate_up;   /* the same in one, for a guess; without data: as they are */
    struct tensor embed;          /* its own, or the target's */
    struct gpu *gpu;
    int64_t target_hidden, most_rows;
    struct eagle_buffers at;
    struct eagle_rows step, one; /* of a step, of a guess */
    struct eagle_turn *turn;     /* as the host writes it */
    struct gpu_event *sent;      /* behind the copy of the step's rows, on a GPU */
    bool sends;                  /* that there was one */
    void *memory, *pinned, *uploaded;
    size_t size, uploaded_bytes;
    int64_t first, n; /* the engine's positions whose states there are */
    struct eagle_plan plans[EAGLE_PLANS];
    int next_plan; /* the place of the next one */
    struct plan *guessing;
};

/* Copies to where the ops read, and waits: `from` may be gone behind it. Not for what is done
 * often. */
enum sol_status eagle_put(const struct eagle *e, void *to, const void *from, size_t bytes);
enum sol_status eagle_place_weights(struct eagle *e);

/* Appends the calls: keys and values of a step's rows, from its features on; a guess from x, which
 * it leaves for the next. */
void eagle_build_rows(struct plan *plan, const struct eagle *e, const float *features, int64_t rows,
                      bool carried);
void eagle_build_guess(struct plan *plan, const struct eagle *e);

#endif
