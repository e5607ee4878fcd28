#include "model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

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
        *(struct tensor *)field =
            (struct tensor){data, dtype, weight->groups, weight->rows, weight->cols};
    }
}

/* "[2880 x 32]", innermost first as the file has it. */
static const char *shape_text(const int64_t dims[4], int n_dims, char buffer[96])
{
    size_t used = 0;
    for (int d = 0; d < n_dims; d++) {
        used +=
            (size_t)snprintf(buffer + used, 96 - used, d ? " x %lld" : "[%lld", (long long)dims[d]);
    }
    snprintf(buffer + used, 96 - used, "]");
    return buffer;
}

static enum sol_status check_shape(const struct gguf *file, const struct weight *w,
                                   const struct gguf_tensor *t)
{
    /* Innermost first; dimensions of 1 at the end may be written or left out. */
    int64_t want[4] = {w->cols, w->vector ? w->groups : w->rows, w->vector ? 1 : w->groups, 1};
    if (memcmp(want, t->dims, sizeof want) == 0) return SOL_OK;
    int n_dims = want[2] > 1 ? 3 : want[1] > 1 || !w->vector ? 2 : 1;
    char got_text[96], want_text[96];
    return status_set(SOL_E_FORMAT, "%s: tensor '%s' has shape %s, expected %s", gguf_name(file),
                      w->name, shape_text(t->dims, t->n_dims, got_text),
                      shape_text(want, n_dims, want_text));
}

static enum sol_status check_type(const struct gguf *file, const struct weight *w,
                                  const struct gguf_tensor *t)
{
    bool plain =
        t->known_type && (t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_BF16);
    if (plain || (t->known_type && !w->vector)) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s: type %s (%u) of tensor '%s' is not served; %s are",
                      gguf_name(file), gguf_type_name(t->ggml_type), t->ggml_type, w->name,
                      w->vector ? "f32, f16 and bf16" : "f32, f16, bf16, q8_0 and mxfp4");
}

static enum sol_status find_checked(const struct gguf *file, const struct weight *w,
                                    const struct gguf_tensor **out)
{
    *out = gguf_tensor_find(file, w->name);
    if (!*out)
        return status_set(SOL_E_FORMAT, "%s: tensor '%s' is missing", gguf_name(file), w->name);
    SOL_TRY(check_shape(file, w, *out));
    return check_type(file, w, *out);
}

/* All expected tensors are there, so a surplus is found by asking for each one that is. */
static enum sol_status check_surplus(const struct gguf *file, const struct model_config *config)
{
    int64_t count = weight_count(config);
    if (gguf_tensor_count(file) == (size_t)count) return SOL_OK;
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        struct gguf_string name = gguf_tensor_at(file, i)->name;
        int64_t k = 0;
        for (; k < count; k++) {
            struct weight w = weight_at(config, k);
            if (strlen(w.name) == name.length && memcmp(w.name, name.data, name.length) == 0) break;
        }
        if (k == count) {
            return status_set(SOL_E_FORMAT,
                              "%s: unexpected tensor '%.*s' (%zu tensors, %lld expected)",
                              gguf_name(file), (int)name.length, name.data, gguf_tensor_count(file),
                              (long long)count);
        }
    }
    return SOL_OK;
}

enum sol_status weights_check(const struct gguf *file, const struct model_config *config)
{
    for (int64_t i = 0; i < weight_count(config); i++) {
        struct weight w = weight_at(config, i);
        const struct gguf_tensor *t;
        SOL_TRY(find_checked(file, &w, &t));
    }
    return check_surplus(file, config);
}

static const float *convert_vector(struct arena *arena, const struct gguf_tensor *t, int64_t n)
{
    float *out = ARENA_NEW(arena, float, n);
    if (out) dtype_info(t->dtype)->decode(t->data, out, n);
    return out;
}

enum sol_status weights_load(const struct gguf *file, struct arena *arena, struct model *model)
{
    SOL_TRY(weights_check(file, &model->config));
    for (int64_t i = 0; i < weight_count(&model->config); i++) {
        struct weight w = weight_at(&model->config, i);
        const struct gguf_tensor *t = gguf_tensor_find(file, w.name);
        const void *data = t->data;
        enum dtype dtype = t->dtype;
        if (w.vector && dtype != DTYPE_F32) {
            data = convert_vector(arena, t, weight_elements(&w));
            if (!data) return SOL_E_MEMORY;
            dtype = DTYPE_F32;
        }
        weight_bind(model, &w, dtype, data);
        model->weight_bytes += t->size;
        model->parameters += weight_elements(&w);
    }
    return SOL_OK;
}
