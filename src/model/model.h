/* A model of any architecture: configuration, weights and vocabulary, from GGUF or safetensors
 * files, the built-in model, or made up in memory ("synth:"). What only one architecture has is in
 * its own part of each struct. Read-only once open; many engines may share it. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/tensor.h"
#include "sol/status.h"
#include "tok/tokenizer.h"

struct architecture; /* model/architecture.h */

struct gpt_oss_config {
    float rope_factor, rope_beta_fast, rope_beta_slow;
    int64_t rope_original_context; /* 0 or factor 1: plain RoPE */
    bool rope_truncate; /* config.json asks for rounded YaRN bounds; gpt-oss itself does not */
    float swiglu_alpha, swiglu_limit;
};

struct gpt_config {
    char pattern[64]; /* of windows: S or L, a layer each, tiled */
    bool plain;       /* no smear, value embeddings, scales of the residual stream, backout */
    float qk_scale, value_scale, softcap;
};

struct model_config {
    const struct architecture *arch;
    int64_t n_layers, hidden, n_heads, n_kv_heads, head_dim;
    int64_t n_experts, top_k; /* 0: layers have none */
    int64_t intermediate, vocab;
    int64_t window;  /* of the layers that have one: model_layer_window */
    int64_t context; /* longest position count the model was made for */
    float rms_eps, rope_theta;
    /* A rank's part of a model (model/shard.h), whose heads and intermediate are the rank's own.
     * ranks 0: it is whole. */
    int64_t ranks, rank;
    int64_t own_experts, first_expert; /* whole ones that the rank has; 0: a part of each, or all */
    int64_t head_rows; /* of the vocabulary's, that the head has: all ranks the same, more than
                        * there are in all; 0: all */
    bool
        alone; /* the part runs without the others': what it computes is of no use, only its time */
    int64_t all_layers, first_layer; /* of a rank that has n_layers whole ones from the first on;
                                      * 0: all ranks have all layers */
    union {
        struct gpt_oss_config gpt_oss;
        struct gpt_config gpt;
    };
};

/* Of the whole model, where this is a rank's part of it. */
int64_t model_layers(const struct model_config *config);
/* Positions that a layer sees, of those that are here; 0: all earlier ones. */
int64_t model_layer_window(const struct model_config *config, int64_t layer);

struct gpt_oss_layer {
    const float *attn_norm, *ffn_norm; /* [hidden] */
    const float *bq, *bk, *bv, *bo, *sinks;
    struct tensor router;
    const float *router_bias;
    struct tensor gate, up,
        down; /* [n_experts][intermediate][hidden], down [..][hidden][intermediate] */
    const float *gate_bias, *up_bias, *down_bias; /* [n_experts][...] */
};

struct gpt_layer {
    struct tensor fc, proj;        /* [1][intermediate][hidden] and back */
    struct tensor values, ve_gate; /* [1][vocab][kv width], [1][n_kv_heads][channels]; or no data */
};

struct layer_weights {
    struct tensor wq, wk, wv, wo;
    union {
        struct gpt_oss_layer gpt_oss;
        struct gpt_layer gpt;
    };
};

struct gpt_weights {
    struct tensor smear_gate; /* [1][1][channels] */
    /* One number, one a layer; NULL in plain models. */
    const float *smear_lambda, *resid_lambdas, *x0_lambdas, *backout_lambda;
};

struct model {
    struct model_config config;
    struct tensor embed, head; /* [1][vocab][hidden] */
    union {
        const float *final_norm; /* gpt-oss */
        struct gpt_weights gpt;
    };
    struct layer_weights *layers;
    struct tokenizer *tokenizer; /* NULL for a synthetic model */
    const char *name;            /* for reports: path or source string */
    size_t weight_bytes;         /* all tensors */
    int64_t parameters;
    struct model_source *source; /* keeps the memory behind the pointers; private */
    const struct model *whole;   /* that this is a rank's part of; NULL: it is whole */
};

enum model_load {
    MODEL_LOAD_AUTO, /* map what is in the page cache, read the rest from disk */
    MODEL_LOAD_MAP,
    MODEL_LOAD_READ, /* past the page cache, into huge pages */
};

struct model_params {
    enum model_load load;
    size_t reserve; /* bytes that must stay free beside the weights */
    bool later;     /* reads no weights: tensors have shapes and no data, for model_upload */
};

/* `source` is a GGUF file (split files: any part), a safetensors file, index or folder, NULL or
 * "builtin" for the model that comes with sol, or
 * "synth:NAME[,dense=q8_0|bf16|f32][,seed=N][,layers=N]": random weights of the full size with
 * spread routing, for NAME see the architectures' lists (gpt-oss-20b, ...). Every tensor is checked
 * against its expected name, shape and type; what is not in the layout above is converted on the
 * way into its place. Errors name file, tensor and fault. Refuses a model larger than the memory
 * that is free (mapped files: only a warning). Interruptible. `params` NULL: all zero. */
enum sol_status model_open_with(const char *source, const struct model_params *params,
                                struct model **out);
enum sol_status model_open(const char *source, struct model **out);
/* The weights of a model that was opened for later. After an error it is to be closed. */
enum sol_status model_load(struct model *model, const struct model_params *params);
void model_close(struct model *model); /* takes NULL */

/* Frequencies of this configuration: inv_freq[head_dim / 2] and the factor for cos and sin. Bounds
 * of YaRN are not rounded, as in the reference implementation; `rounded` gives ggml's choice. */
void model_rope_frequencies(const struct model_config *config, bool rounded, float *inv_freq,
                            float *attention_factor);

#endif
