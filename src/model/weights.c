#include "model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum dim { ONE, HIDDEN, HEADS, Q_WIDTH, KV_WIDTH, EXPERTS, INTER, VOCAB };

#define VECTOR          true
#define MATRIX          false
#define IN_MODEL(field) offsetof(struct model, field)
#define IN_LAYER(field) offsetof(struct layer_weights, field)

struct spec {
    const char *name;
    enum weight_role role;
    bool vector;
    enum dim groups, rows, cols;
    size_t offset;
};

static const struct spec global[] = {
    {"token_embd.weight", ROLE_EMBED, MATRIX, ONE, VOCAB, HIDDEN, IN_MODEL(embed)},
    {"output_norm.weight", ROLE_NORM, VECTOR, ONE, ONE, HIDDEN, IN_MODEL(final_norm)},
    {"output.weight", ROLE_HEAD, MATRIX, ONE, VOCAB, HIDDEN, IN_MODEL(head)},
};

static const struct spec layered[] = {
    {"attn_norm.weight", ROLE_NORM, VECTOR, ONE, ONE, HIDDEN, IN_LAYER(attn_norm)},
    {"attn_q.weight", ROLE_DENSE, MATRIX, ONE, Q_WIDTH, HIDDEN, IN_LAYER(wq)},
    {"attn_q.bias", ROLE_BIAS, VECTOR, ONE, ONE, Q_WIDTH, IN_LAYER(bq)},
    {"attn_k.weight", ROLE_DENSE, MATRIX, ONE, KV_WIDTH, HIDDEN, IN_LAYER(wk)},
    {"attn_k.bias", ROLE_BIAS, VECTOR, ONE, ONE, KV_WIDTH, IN_LAYER(bk)},
    {"attn_v.weight", ROLE_DENSE, MATRIX, ONE, KV_WIDTH, HIDDEN, IN_LAYER(wv)},
    {"attn_v.bias", ROLE_BIAS, VECTOR, ONE, ONE, KV_WIDTH, IN_LAYER(bv)},
    {"attn_output.weight", ROLE_DENSE, MATRIX, ONE, HIDDEN, Q_WIDTH, IN_LAYER(wo)},
    {"attn_output.bias", ROLE_BIAS, VECTOR, ONE, ONE, HIDDEN, IN_LAYER(bo)},
    {"attn_sinks.weight", ROLE_SINKS, VECTOR, ONE, ONE, HEADS, IN_LAYER(sinks)},
    {"post_attention_norm.weight", ROLE_NORM, VECTOR, ONE, ONE, HIDDEN, IN_LAYER(ffn_norm)},
    {"ffn_gate_inp.weight", ROLE_ROUTER, MATRIX, ONE, EXPERTS, HIDDEN, IN_LAYER(router)},
    {"ffn_gate_inp.bias", ROLE_BIAS, VECTOR, ONE, ONE, EXPERTS, IN_LAYER(router_bias)},
    {"ffn_gate_exps.weight", ROLE_EXPERT, MATRIX, EXPERTS, INTER, HIDDEN, IN_LAYER(gate)},
    {"ffn_gate_exps.bias", ROLE_BIAS, VECTOR, EXPERTS, ONE, INTER, IN_LAYER(gate_bias)},
    {"ffn_up_exps.weight", ROLE_EXPERT, MATRIX, EXPERTS, INTER, HIDDEN, IN_LAYER(up)},
    {"ffn_up_exps.bias", ROLE_BIAS, VECTOR, EXPERTS, ONE, INTER, IN_LAYER(up_bias)},
    {"ffn_down_exps.weight", ROLE_EXPERT, MATRIX, EXPERTS, HIDDEN, INTER, IN_LAYER(down)},
    {"ffn_down_exps.bias", ROLE_BIAS, VECTOR, EXPERTS, ONE, HIDDEN, IN_LAYER(down_bias)},
};

enum { N_GLOBAL = sizeof global / sizeof *global, N_LAYERED = sizeof layered / sizeof *layered };

static int64_t dim_size(const struct model_config *c, enum dim dim)
{
    switch (dim) {
    case HIDDEN:
        return c->hidden;
    case HEADS:
        return c->n_heads;
    case Q_WIDTH:
        return c->n_heads * c->head_dim;
    case KV_WIDTH:
        return c->n_kv_heads * c->head_dim;
    case EXPERTS:
        return c->n_experts;
    case INTER:
        return c->intermediate;
    case VOCAB:
        return c->vocab;
    default:
        return 1;
    }
}

int64_t weight_count(const struct model_config *config)
{
    return N_GLOBAL + config->n_layers * N_LAYERED;
}

struct weight weight_at(const struct model_config *config, int64_t index)
{
    assert(index >= 0 && index < weight_count(config));
    int64_t layer = index < N_GLOBAL ? -1 : (index - N_GLOBAL) / N_LAYERED;
    const struct spec *spec = layer < 0 ? &global[index] : &layered[(index - N_GLOBAL) % N_LAYERED];
    struct weight out = {
        .layer = layer,
        .role = spec->role,
        .vector = spec->vector,
        .groups = dim_size(config, spec->groups),
        .rows = dim_size(config, spec->rows),
        .cols = dim_size(config, spec->cols),
        .offset = spec->offset,
    };
    if (layer < 0)
        snprintf(out.name, sizeof out.name, "%s", spec->name);
    else
        snprintf(out.name, sizeof out.name, "blk.%lld.%s", (long long)layer, spec->name);
    return out;
}

int64_t weight_elements(const struct weight *weight)
{
    return weight->groups * weight->rows * weight->cols;
}

void weight_bind(struct model *model, const struct weight *weight, enum dtype dtype,
                 const void *data)
{
    char *base = weight->layer < 0 ? (char *)model : (char *)&model->layers[weight->layer];
    void *field = base + weight->offset;
    if (weight->vector) {
        assert(dtype == DTYPE_F32);
        *(const float **)field = data;
    } else {
        *(struct tensor *)field = (struct tensor){.data = data,
                                                  .dtype = dtype,
                                                  .groups = weight->groups,
                                                  .rows = weight->rows,
                                                  .cols = weight->cols};
    }
}
