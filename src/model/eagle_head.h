/* A draft head in the EAGLE-3 layout (Li et al., arXiv:2503.01840), as it is published for gpt-oss:
 * a folder with config.json and safetensors. Its one layer reads what three layers of a target
 * model leave of a token, joined by `fc`, beside the embedding of the token that follows, and
 * foresees the token after that, among `draft_vocab` of the target's vocabulary. infer/eagle.h runs
 * it. */
#ifndef MODEL_EAGLE_HEAD_H
#define MODEL_EAGLE_HEAD_H

#include "model/model.h"

enum { EAGLE_FEATURES = 3 };

struct eagle_weights {
    struct tensor embed;      /* [1][vocab][hidden]; no data: the target's */
    struct tensor fc;         /* [1][hidden][3 * target's hidden] */
    struct tensor wq, wk, wv; /* [1][heads * head_dim][2 * hidden], embedding first */
    struct tensor wo;         /* [1][hidden][n_heads * head_dim] */
    struct tensor gate, up;   /* [1][intermediate][hidden] */
    struct tensor down;       /* [1][hidden][intermediate] */
    struct tensor lm_head;    /* [1][draft_vocab][hidden] */
    const float *embed_norm, *hidden_norm, *ffn_norm, *final_norm; /* [hidden] */
};

struct eagle_head {
    /* Of its layer: hidden, n_heads, n_kv_heads, head_dim, intermediate, vocab (the target's),
     * rms_eps, rope_theta, and no more. */
    struct model_config layer;
    int64_t draft_vocab;
    int64_t features[EAGLE_FEATURES]; /* it reads what the target's layers from this one on would */
    struct eagle_weights weights;
    const int32_t *ids;  /* [draft_vocab] in the target's vocabulary */
    const char *name;    /* the folder, for messages */
    size_t weight_bytes; /* of the matrices */
    struct eagle_head_source *source;
};

/* Both are checked against each other and against the target: every tensor has its shape, and none
 * is there that this forward pass does not know (other heads have more norms, or biases). Matrices
 * stay in the files' mapping. SOL_E_UNSUPPORTED: a head of another kind, or for another
 * model. */
enum sol_status eagle_head_open(const char *folder, const struct model_config *target,
                                struct eagle_head **out);
void eagle_head_close(struct eagle_head *head); /* takes NULL */

/* Its matrices, for who puts them elsewhere; NULL behind the last. One may be without data. */
struct tensor *eagle_head_tensor(struct eagle_weights *weights, int index);
const float **eagle_head_norm(struct eagle_weights *weights, int index);

#endif
