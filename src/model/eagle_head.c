/* Which stream a head reads is said by the layers that leave it (eagle_aux_hidden_state_layer_ids);
 * where nothing is said, it is what layers 2, n / 2 and n - 3 find, as EAGLE's own code has it. */
#include "model/eagle_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json_file.h"
#include "base/status.h"
#include "format/safetensors.h"
#include "model/config.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct eagle_head_source {
    struct safetensors *set;
    struct arena *arena; /* norms, ids, the name */
};

/* ---- config.json ---- */

static const struct config_integer integers[] = {
    {{"hidden_size"}, CONFIG_FIELD(hidden), 2, 1 << 16, true},
    {{"intermediate_size"}, CONFIG_FIELD(intermediate), 1, 1 << 20, true},
    {{"num_attention_heads"}, CONFIG_FIELD(n_heads), 1, 1024, true},
    {{"num_key_value_heads"}, CONFIG_FIELD(n_kv_heads), 1, 1024, false},
    {{"head_dim"}, CONFIG_FIELD(head_dim), 2, 1024, false},
    {{"vocab_size"}, CONFIG_FIELD(vocab), 1, 1 << 24, true},
    {{"num_hidden_layers"}, CONFIG_FIELD(n_layers), 0, 1024, false},
};
static const struct config_float floats[] = {
    {{"rms_norm_eps"}, CONFIG_FIELD(rms_eps), 1e-12, 1.0},
    {{"rope_theta"}, CONFIG_FIELD(rope_theta), 2.0, 1e12},
};
/* What is the target's or the vocabulary's, read into a configuration of its own. */
static const struct config_integer others[] = {
    {{"draft_vocab_size"}, CONFIG_FIELD(vocab), 1, 1 << 24, false},
    {{"target_hidden_size"}, CONFIG_FIELD(hidden), 1, 1 << 16, false},
};

/* What configurations can say and this forward pass does not do. */
static enum sol_status check_kind(const char *path, const json_t *root,
                                  const struct model_config *c)
{
    static const char *const flags[] = {"attention_bias", "mlp_bias", "bias",
                                        "norm_before_residual", "tie_word_embeddings"};
    const json_t *eagle = json_object_get(root, "eagle_config");
    const char *kind = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    const char *act = json_string_value(json_object_get(root, "hidden_act"));
    const size_t length = kind ? strlen(kind) : 0;
    if ((length < 6 || strcmp(kind + length - 6, "Eagle3") != 0) &&
        (!kind || strncmp(kind, "Eagle3", 6) != 0))
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: architecture '%.60s' is no EAGLE-3 head (LlamaForCausalLMEagle3 is)",
                          path, kind ? kind : "?");
    for (size_t i = 0; i < COUNT(flags); i++)
        if (json_is_true(json_object_get(root, flags[i])))
            return status_set(SOL_E_UNSUPPORTED, "%s: heads with '%s' are not served", path,
                              flags[i]);
    if (json_is_false(json_object_get(eagle, "use_aux_hidden_state")))
        return status_set(SOL_E_UNSUPPORTED, "%s: a head that reads one layer is not served", path);
    if (act && strcmp(act, "silu") != 0)
        return status_set(SOL_E_UNSUPPORTED, "%s: hidden_act '%.40s' is not served (silu is)", path,
                          act);
    if (c->n_layers != 1)
        return status_set(SOL_E_UNSUPPORTED, "%s: a head of %lld layers; those of one are served",
                          path, (long long)c->n_layers);
    return SOL_OK;
}

/* As transformers 4 ("rope_scaling") and 5 ("rope_parameters") write it. */
static enum sol_status get_rope(const char *path, const json_t *root, struct model_config *c)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const json_t *rope = json_object_get(root, names[i]);
        if (!rope || json_is_null(rope)) continue;
        const json_t *type = json_object_get(rope, "rope_type");
        const char *kind = json_string_value(type ? type : json_object_get(rope, "type"));
        if (!kind || strcmp(kind, "default") != 0)
            return status_set(SOL_E_UNSUPPORTED,
                              "%s: RoPE scaling '%.40s' is not served in a head (default is)", path,
                              kind ? kind : "?");
        SOL_TRY(config_get_floats(path, rope, floats + 1, 1, c));
    }
    return SOL_OK;
}

static enum sol_status get_features(const char *path, const json_t *root, int64_t layers,
                                    int64_t out[EAGLE_FEATURES])
{
    const json_t *ids =
        json_object_get(json_object_get(root, "eagle_config"), "eagle_aux_hidden_state_layer_ids");
    const int64_t usual[EAGLE_FEATURES] = {2, layers / 2, layers - 3};
    if (ids && !json_is_null(ids) && json_array_size(ids) != EAGLE_FEATURES)
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: 'eagle_aux_hidden_state_layer_ids' is no list of %d layers", path,
                          (int)EAGLE_FEATURES);
    for (size_t i = 0; i < EAGLE_FEATURES; i++) {
        const json_t *id = json_array_get(ids, i);
        out[i] = json_is_integer(id) ? (int64_t)json_integer_value(id) + 1 : usual[i];
        if ((id && !json_is_integer(id)) || out[i] < 0 || out[i] > layers)
            return status_set(SOL_E_UNSUPPORTED,
                              "%s: the head reads layer %lld of a model that has %lld", path,
                              (long long)out[i] - 1, (long long)layers);
    }
    return SOL_OK;
}

static enum sol_status check_target(const char *path, const struct eagle_head *h,
                                    const struct model_config *said,
                                    const struct model_config *target)
{
    if (said->hidden != target->hidden || h->layer.vocab != target->vocab)
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: a head for a model with hidden size %lld and %lld tokens; this one "
                          "has %lld and %lld",
                          path, (long long)said->hidden, (long long)h->layer.vocab,
                          (long long)target->hidden, (long long)target->vocab);
    if (h->draft_vocab > target->vocab)
        return status_set(SOL_E_FORMAT, "%s: %lld draft tokens of a vocabulary of %lld", path,
                          (long long)h->draft_vocab, (long long)target->vocab);
    return SOL_OK;
}

static enum sol_status read_config(const char *path, const json_t *root,
                                   const struct model_config *target, struct eagle_head *h)
{
    struct model_config *c = &h->layer, said;
    if (!json_is_object(root)) return status_set(SOL_E_FORMAT, "%s: no JSON object", path);
    *c = (struct model_config){.rms_eps = 1e-6f, .rope_theta = 10000.0f, .n_layers = 1};
    SOL_TRY(config_get_integers(path, root, integers, COUNT(integers), c));
    SOL_TRY(config_get_floats(path, root, floats, COUNT(floats), c));
    if (!c->n_kv_heads) c->n_kv_heads = c->n_heads;
    if (!c->head_dim) c->head_dim = c->hidden / c->n_heads;
    said = *c;
    SOL_TRY(config_get_integers(path, root, others, COUNT(others), &said));
    h->draft_vocab = said.vocab;
    SOL_TRY(check_kind(path, root, c));
    SOL_TRY(get_rope(path, root, c));
    SOL_TRY(config_check_heads(path, c));
    SOL_TRY(check_target(path, h, &said, target));
    return get_features(path, root, model_layers(target), h->features);
}

/* ---- tensors ---- */

enum size { HIDDEN, TWICE, JOINED, Q_WIDTH, KV_WIDTH, INTER, VOCAB, DRAFT_VOCAB };

static int64_t size_of(const struct eagle_head *h, const struct model_config *target,
                       enum size size)
{
    const struct model_config *c = &h->layer;
    const int64_t sizes[] = {
        [HIDDEN] = c->hidden,
        [TWICE] = 2 * c->hidden,
        [JOINED] = EAGLE_FEATURES * target->hidden,
        [Q_WIDTH] = c->n_heads * c->head_dim,
        [KV_WIDTH] = c->n_kv_heads * c->head_dim,
        [INTER] = c->intermediate,
        [VOCAB] = c->vocab,
        [DRAFT_VOCAB] = h->draft_vocab,
    };
    return sizes[size];
}

#define FIELD(name) offsetof(struct eagle_weights, name)

/* # is "midlayer", or "layers.0" as some write it. */
static const struct {
    const char *name;
    size_t offset;
    enum size rows, cols;
} matrices[] =
    {
        {"embed_tokens.weight", FIELD(embed), VOCAB, HIDDEN},
        {"fc.weight", FIELD(fc), HIDDEN, JOINED},
        {"#.self_attn.q_proj.weight", FIELD(wq), Q_WIDTH, TWICE},
        {"#.self_attn.k_proj.weight", FIELD(wk), KV_WIDTH, TWICE},
        {"#.self_attn.v_proj.weight", FIELD(wv), KV_WIDTH, TWICE},
        {"#.self_attn.o_proj.weight", FIELD(wo), HIDDEN, Q_WIDTH},
        {"#.mlp.gate_proj.weight", FIELD(gate), INTER, HIDDEN},
        {"#.mlp.up_proj.weight", FIELD(up), INTER, HIDDEN},
        {"#.mlp.down_proj.weight", FIELD(down), HIDDEN, INTER},
        {"lm_head.weight", FIELD(lm_head), DRAFT_VOCAB, HIDDEN},
},
  norms[] = {
      {"#.input_layernorm.weight", FIELD(embed_norm), HIDDEN, HIDDEN},
      {"#.hidden_norm.weight", FIELD(hidden_norm), HIDDEN, HIDDEN},
      {"#.post_attention_layernorm.weight", FIELD(ffn_norm), HIDDEN, HIDDEN},
      {"norm.weight", FIELD(final_norm), HIDDEN, HIDDEN},
};

struct tensor *eagle_head_tensor(struct eagle_weights *w, int i)
{
    return i < (int)COUNT(matrices) ? (struct tensor *)(void *)((char *)w + matrices[i].offset)
                                    : NULL;
}

const float **eagle_head_norm(struct eagle_weights *w, int i)
{
    return i < (int)COUNT(norms) ? (const float **)(void *)((char *)w + norms[i].offset) : NULL;
}

/* Whether a tensor of the file is called so: "model." may stand before it. */
static bool is_called(const char *name, const char *pattern)
{
    static const char *const layers[] = {"midlayer", "layers.0"};
    if (strncmp(name, "model.", 6) == 0) name += 6;
    if (pattern[0] != '#') return strcmp(name, pattern) == 0;
    for (size_t i = 0; i < COUNT(layers); i++) {
        const size_t n = strlen(layers[i]);
        if (strncmp(name, layers[i], n) == 0 && strcmp(name + n, pattern + 1) == 0) return true;
    }
    return false;
}

static const struct safetensors_tensor *find(const struct safetensors *set, const char *pattern)
{
    for (size_t i = 0; i < safetensors_count(set); i++)
        if (is_called(safetensors_at(set, i)->name, pattern)) return safetensors_at(set, i);
    return NULL;
}

static enum sol_status get(const struct eagle_head *h, const char *pattern, int dims, int64_t rows,
                           int64_t cols, const struct safetensors_tensor **out)
{
    const struct safetensors_tensor *t = *out = find(h->source->set, pattern);
    const bool layers = pattern[0] == '#';
    if (!t)
        return status_set(SOL_E_FORMAT, "%s: '%s%s' is missing", h->name, layers ? "midlayer" : "",
                          pattern + layers);
    if (!t->known_type)
        return status_set(SOL_E_UNSUPPORTED, "%s: '%s' is in %s; F32, F16 and BF16 are served",
                          h->name, safetensors_printable(t->name).text, t->type);
    if (t->n_dims == dims && t->dims[0] == rows && (dims == 1 || t->dims[1] == cols)) return SOL_OK;
    return status_set(SOL_E_FORMAT,
                      "%s: '%s' has %d dimensions, %lld and %lld; by config.json they are %lld "
                      "and %lld",
                      h->name, safetensors_printable(t->name).text, t->n_dims,
                      (long long)t->dims[0], (long long)t->dims[1], (long long)rows,
                      (long long)(dims == 1 ? 1 : cols));
}

static enum sol_status bind_matrix(struct eagle_head *h, const struct model_config *target,
                                   size_t i)
{
    const int64_t rows = size_of(h, target, matrices[i].rows);
    const int64_t cols = size_of(h, target, matrices[i].cols);
    struct tensor *to = eagle_head_tensor(&h->weights, (int)i);
    const struct safetensors_tensor *t;
    if (to == &h->weights.embed && !find(h->source->set, matrices[i].name)) {
        if (h->layer.hidden == target->hidden) return SOL_OK;
        return status_set(SOL_E_FORMAT,
                          "%s: '%s' is missing, and the target's has rows of %lld, not "
                          "%lld",
                          h->name, matrices[i].name, (long long)target->hidden,
                          (long long)h->layer.hidden);
    }
    SOL_TRY(get(h, matrices[i].name, 2, rows, cols, &t));
    *to = (struct tensor){
        .data = t->data, .dtype = t->dtype, .groups = 1, .rows = rows, .cols = cols};
    h->weight_bytes += tensor_bytes(to);
    return SOL_OK;
}

static enum sol_status bind_norm(struct eagle_head *h, size_t i)
{
    const int64_t n = h->layer.hidden;
    const struct safetensors_tensor *t;
    SOL_TRY(get(h, norms[i].name, 1, n, 1, &t));
    float *values = ARENA_NEW(h->source->arena, float, n);
    if (!values) return SOL_E_MEMORY;
    dtype_info(t->dtype)->decode(t->data, values, n);
    *eagle_head_norm(&h->weights, (int)i) = values;
    return SOL_OK;
}

/* d2t says how far a draft token's id is from the target's. */
static enum sol_status bind_ids(struct eagle_head *h)
{
    const struct safetensors_tensor *t = find(h->source->set, "d2t");
    int32_t *ids = ARENA_NEW(h->source->arena, int32_t, h->draft_vocab);
    if (!ids) return SOL_E_MEMORY;
    h->ids = ids;
    if (!t && h->draft_vocab < h->layer.vocab)
        return status_set(SOL_E_FORMAT, "%s: 'd2t' is missing, with %lld draft tokens of %lld",
                          h->name, (long long)h->draft_vocab, (long long)h->layer.vocab);
    if (t && (strcmp(t->type, "I64") != 0 || t->n_dims != 1 || t->dims[0] != h->draft_vocab))
        return status_set(SOL_E_FORMAT, "%s: 'd2t' is no list of %lld numbers of type I64", h->name,
                          (long long)h->draft_vocab);
    for (int64_t i = 0; i < h->draft_vocab; i++) {
        int64_t more = 0;
        if (t) memcpy(&more, (const char *)t->data + (size_t)i * sizeof more, sizeof more);
        if (more < -i || more >= h->layer.vocab - i)
            return status_set(SOL_E_FORMAT,
                              "%s: 'd2t' makes draft token %lld one that is outside the "
                              "vocabulary of %lld",
                              h->name, (long long)i, (long long)h->layer.vocab);
        ids[i] = (int32_t)(i + more);
    }
    return SOL_OK;
}

/* A tensor that is left over means arithmetic that is left out. */
static enum sol_status check_known(const struct eagle_head *h)
{
    for (size_t k = 0; k < safetensors_count(h->source->set); k++) {
        const char *name = safetensors_at(h->source->set, k)->name;
        bool known = is_called(name, "d2t") || is_called(name, "t2d");
        for (size_t i = 0; i < COUNT(matrices); i++) known |= is_called(name, matrices[i].name);
        for (size_t i = 0; i < COUNT(norms); i++) known |= is_called(name, norms[i].name);
        if (!known)
            return status_set(SOL_E_UNSUPPORTED,
                              "%s: the head has '%s', of which this forward pass knows nothing",
                              h->name, safetensors_printable(name).text);
    }
    return SOL_OK;
}

/* ---- life ---- */

static enum sol_status load(struct eagle_head *h, const char *folder,
                            const struct model_config *target)
{
    struct eagle_head_source *s = h->source;
    json_t *root;
    SOL_TRY(arena_create(1 << 16, &s->arena));
    const size_t n = strlen(folder) + sizeof "/config.json";
    char *path = arena_alloc(s->arena, n, 1);
    h->name = arena_strndup(s->arena, folder, strlen(folder));
    if (!path || !h->name) return SOL_E_MEMORY;
    snprintf(path, n, "%s/config.json", folder);
    SOL_TRY(json_file_read(path, &root));
    const enum sol_status status = read_config(path, root, target, h);
    json_decref(root);
    if (status != SOL_OK) return status;
    SOL_TRY(safetensors_open(folder, &s->set));
    SOL_TRY(check_known(h));
    for (size_t i = 0; i < COUNT(matrices); i++) SOL_TRY(bind_matrix(h, target, i));
    for (size_t i = 0; i < COUNT(norms); i++) SOL_TRY(bind_norm(h, i));
    return bind_ids(h);
}

enum sol_status eagle_head_open(const char *folder, const struct model_config *target,
                                struct eagle_head **out)
{
    *out = NULL;
    struct eagle_head *h = calloc(1, sizeof *h);
    if (h) h->source = calloc(1, sizeof *h->source);
    enum sol_status status =
        h && h->source ? load(h, folder, target) : status_set(SOL_E_MEMORY, "no memory for a head");
    if (status == SOL_OK)
        *out = h;
    else
        eagle_head_close(h);
    return status;
}

void eagle_head_close(struct eagle_head *h)
{
    if (!h) return;
    if (h->source) {
        safetensors_close(h->source->set);
        arena_destroy(h->source->arena);
    }
    free(h->source);
    free(h);
}
