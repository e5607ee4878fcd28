/* Configuration from config.json: as transformers writes it, or the shorter one beside the weights
 * of `original/`. Tables of names with ranges, as in config.c; a value may go by several names, the
 * first that is there counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/config.h"

enum { CONFIG_MAX = 1 << 20, ALIASES = 4 };
#define FIELD(name) offsetof(struct model_config, name)

static const struct {
    const char *names[ALIASES];
    size_t offset;
    int64_t min, max;
    bool required;
} integers[] = {
    {{"num_hidden_layers"}, FIELD(n_layers), 1, 1024, true},
    {{"hidden_size"}, FIELD(hidden), 1, 1 << 16, true},
    {{"num_attention_heads"}, FIELD(n_heads), 1, 1024, true},
    {{"num_key_value_heads"}, FIELD(n_kv_heads), 1, 1024, true},
    {{"head_dim"}, FIELD(head_dim), 2, 1024, false},
    {{"num_local_experts", "num_experts"}, FIELD(n_experts), 1, 1024, true},
    {{"num_experts_per_tok", "experts_per_token"}, FIELD(top_k), 1, 64, true},
    {{"intermediate_size"}, FIELD(intermediate), 1, 1 << 20, true},
    {{"vocab_size"}, FIELD(vocab), 1, 1 << 24, true},
    {{"sliding_window"}, FIELD(window), 1, INT32_MAX, false},
    {{"max_position_embeddings"}, FIELD(context), 1, INT32_MAX, false},
};

static const struct {
    const char *names[ALIASES];
    size_t offset;
    double min, max;
} floats[] = {
    {{"rms_norm_eps"}, FIELD(rms_eps), 1e-12, 1.0},
    {{"rope_theta"}, FIELD(rope_theta), 2.0, 1e12},
    {{"swiglu_limit"}, FIELD(swiglu_limit), 1e-3, 1e6},
    {{"swiglu_alpha"}, FIELD(swiglu_alpha), 1e-3, 1e3},
    {{"rope_scaling_factor"}, FIELD(rope_factor), 1.0, 1e6},
    {{"rope_ntk_beta"}, FIELD(rope_beta_fast), 1e-3, 1e6},
    {{"rope_ntk_alpha"}, FIELD(rope_beta_slow), 1e-3, 1e6},
};

/* Within "rope_scaling" (transformers 4) or "rope_parameters" (5). */
static const struct {
    const char *names[ALIASES];
    size_t offset;
    double min, max;
} scaling_floats[] = {
    {{"factor"}, FIELD(rope_factor), 1.0, 1e6},
    {{"beta_fast"}, FIELD(rope_beta_fast), 1e-3, 1e6},
    {{"beta_slow"}, FIELD(rope_beta_slow), 1e-3, 1e6},
    {{"rope_theta"}, FIELD(rope_theta), 2.0, 1e12},
};

/* *value is NULL where none of the names is there. null says that there is none, which is not the
 * same as saying nothing: no default may take its place. */
static enum sol_status get(const char *path, const json_t *object, const char *const *names,
                           const char **name, const json_t **value)
{
    const char *null = NULL;
    *name = names[0];
    *value = NULL;
    for (int i = 0; i < ALIASES && names[i] && !*value; i++) {
        *value = json_object_get(object, names[i]);
        if (*value) *name = names[i];
        if (!json_is_null(*value)) continue;
        null = names[i];
        *value = NULL;
    }
    if (*value || !null) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s: '%s' is null; sol runs no model without it", path,
                      null);
}

static enum sol_status get_integer(const char *path, const json_t *object, const char *const *names,
                                   int64_t min, int64_t max, bool required, int64_t *out)
{
    const char *name;
    const json_t *value;
    SOL_TRY(get(path, object, names, &name, &value));
    if (!value && required) return status_set(SOL_E_FORMAT, "%s: '%s' is missing", path, name);
    if (!value) return SOL_OK;
    if (!json_is_integer(value))
        return status_set(SOL_E_FORMAT, "%s: '%s' is no integer", path, name);
    json_int_t number = json_integer_value(value);
    if (number < min || number > max)
        return status_set(SOL_E_FORMAT, "%s: '%s' is %lld, outside %lld to %lld", path, name,
                          (long long)number, (long long)min, (long long)max);
    *out = (int64_t)number;
    return SOL_OK;
}

static enum sol_status get_float(const char *path, const json_t *object, const char *const *names,
                                 double min, double max, float *out)
{
    const char *name;
    const json_t *value;
    SOL_TRY(get(path, object, names, &name, &value));
    if (!value) return SOL_OK;
    if (!json_is_number(value))
        return status_set(SOL_E_FORMAT, "%s: '%s' is no number", path, name);
    double number = json_number_value(value);
    if (!(number >= min && number <= max))
        return status_set(SOL_E_FORMAT, "%s: '%s' is %g, outside %g to %g", path, name, number, min,
                          max);
    *out = (float)number;
    return SOL_OK;
}

/* The object of "rope_parameters" or "rope_scaling"; NULL, and *none set, where both that are there
 * are null. */
static enum sol_status find_scaling(const char *path, const json_t *root, const json_t **out,
                                    bool *none)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    *out = NULL;
    *none = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !*out; i++) {
        const json_t *value = json_object_get(root, names[i]);
        if (json_is_null(value)) *none = true;
        if (!value || json_is_null(value)) continue;
        if (!json_is_object(value))
            return status_set(SOL_E_FORMAT, "%s: '%s' is no object", path, names[i]);
        *out = value;
    }
    if (*out) *none = false;
    return SOL_OK;
}

static enum sol_status get_scaling(const char *path, const json_t *root, struct model_config *c)
{
    static const char *const original[ALIASES] = {"original_max_position_embeddings"};
    const json_t *scaling;
    bool none;
    SOL_TRY(find_scaling(path, root, &scaling, &none));
    if (none && !json_object_get(root, "rope_scaling_factor")) c->rope_factor = 1.0f;
    if (!scaling) return SOL_OK;
    const json_t *kind = json_object_get(scaling, "rope_type");
    if (!kind) kind = json_object_get(scaling, "type");
    const char *type = kind ? json_string_value(kind) : "yarn";
    if (!type) return status_set(SOL_E_FORMAT, "%s: 'rope_type' is no text", path);
    for (size_t i = 0; i < sizeof scaling_floats / sizeof *scaling_floats; i++)
        SOL_TRY(get_float(path, scaling, scaling_floats[i].names, scaling_floats[i].min,
                          scaling_floats[i].max,
                          (float *)(void *)((char *)c + scaling_floats[i].offset)));
    SOL_TRY(get_integer(path, scaling, original, 0, INT32_MAX, false, &c->rope_original_context));
    c->rope_truncate = json_is_true(json_object_get(scaling, "truncate"));
    if (strcmp(type, "yarn") == 0) return SOL_OK;
    if (strcmp(type, "default") != 0)
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: RoPE scaling '%.40s' is not served (yarn and default are)", path,
                          type);
    c->rope_factor = 1.0f;
    return SOL_OK;
}

/* What transformers can express and sol's forward pass has fixed. */
static enum sol_status check_fixed(const char *path, const json_t *root,
                                   const struct model_config *c)
{
    const json_t *type = json_object_get(root, "model_type");
    const json_t *layers = json_object_get(root, "layer_types");
    const json_t *quantised = json_object_get(root, "quantization_config");
    const json_t *method = quantised ? json_object_get(quantised, "quant_method") : NULL;
    if (layers && !json_is_null(layers) && !json_is_array(layers))
        return status_set(SOL_E_FORMAT, "%s: 'layer_types' is no list", path);
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "gpt_oss") != 0))
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: model_type '%.40s' is not served; sol runs gpt_oss", path,
                          json_is_string(type) ? json_string_value(type) : "?");
    for (size_t i = 0; json_is_array(layers) && i < json_array_size(layers); i++) {
        const char *kind = json_string_value(json_array_get(layers, i));
        const char *want = i % 2 ? "full_attention" : "sliding_attention";
        if (!kind || strcmp(kind, want) != 0)
            return status_set(SOL_E_UNSUPPORTED,
                              "%s: layer_types[%zu] is '%.40s'; gpt-oss has '%s' there", path, i,
                              kind ? kind : "?", want);
    }
    if (json_is_array(layers) && json_array_size(layers) != (size_t)c->n_layers)
        return status_set(SOL_E_FORMAT, "%s: %zu layer_types for %lld layers", path,
                          json_array_size(layers), (long long)c->n_layers);
    if (json_is_true(json_object_get(root, "tie_word_embeddings")))
        return status_set(SOL_E_UNSUPPORTED, "%s: tied embeddings are not served", path);
    if (method && (!json_is_string(method) || strcmp(json_string_value(method), "mxfp4") != 0))
        return status_set(SOL_E_UNSUPPORTED, "%s: quantisation '%.40s' is not served (mxfp4 is)",
                          path, json_is_string(method) ? json_string_value(method) : "?");
    return SOL_OK;
}

static enum sol_status read_config(const char *path, const json_t *root, struct model_config *c)
{
    static const char *const initial[ALIASES] = {"initial_context_length"};
    if (!json_is_object(root)) return status_set(SOL_E_FORMAT, "%s: no JSON object", path);
    config_gpt_oss_20b(c);
    c->context = 0;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        SOL_TRY(get_integer(path, root, integers[i].names, integers[i].min, integers[i].max,
                            integers[i].required,
                            (int64_t *)(void *)((char *)c + integers[i].offset)));
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        SOL_TRY(get_float(path, root, floats[i].names, floats[i].min, floats[i].max,
                          (float *)(void *)((char *)c + floats[i].offset)));
    SOL_TRY(get_integer(path, root, initial, 1, INT32_MAX, false, &c->rope_original_context));
    SOL_TRY(get_scaling(path, root, c));
    if (c->context == 0) { /* `original/` gives the two factors */
        double product = (double)c->rope_original_context * (double)c->rope_factor;
        c->context = product >= 1 && product < INT32_MAX ? (int64_t)product : 131072;
    }
    SOL_TRY(check_fixed(path, root, c));
    return config_check(path, c);
}

enum sol_status config_from_json_text(const char *name, const char *text, size_t size,
                                      struct model_config *out)
{
    json_error_t error;
    if (size > CONFIG_MAX)
        return status_set(SOL_E_FORMAT, "%s: %zu bytes are no configuration", name, size);
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return status_set(SOL_E_FORMAT, "%s: no valid JSON (line %d, column %d)", name, error.line,
                          error.column);
    enum sol_status status = read_config(name, root, out);
    json_decref(root);
    return status;
}

enum sol_status config_from_json(const char *path, struct model_config *out)
{
    struct mapped_file map;
    SOL_TRY(mapped_file_open(path, &map));
    enum sol_status status = config_from_json_text(path, map.data ? map.data : "", map.size, out);
    mapped_file_close(&map);
    return status;
}

/* A float32 as the shortest decimal that gives it back: 1e-05 and not 9.99999974e-06. */
static json_t *json_float(float value)
{
    for (int digits = 1; digits <= 9; digits++) {
        char text[40];
        snprintf(text, sizeof text, "%.*e", digits - 1, (double)value);
        if (strtof(text, NULL) == value) return json_real(strtod(text, NULL));
    }
    return json_real((double)value);
}

static json_t *scaling_json(const struct model_config *c)
{
    if (c->rope_factor == 1.0f || c->rope_original_context == 0)
        return json_pack("{s:s, s:o}", "rope_type", "default", "rope_theta",
                         json_float(c->rope_theta));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:I, s:b}", "rope_type", "yarn", "rope_theta",
                     json_float(c->rope_theta), "factor", json_float(c->rope_factor), "beta_fast",
                     json_float(c->rope_beta_fast), "beta_slow", json_float(c->rope_beta_slow),
                     "original_max_position_embeddings", (json_int_t)c->rope_original_context,
                     "truncate", (int)c->rope_truncate);
}

json_t *config_to_json(const struct model_config *c, bool mxfp4)
{
    json_t *layers = json_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        json_array_append_new(layers, json_string(i % 2 ? "full_attention" : "sliding_attention"));
    json_t *root = json_pack("{s:[s], s:s, s:b, s:s, s:o, s:b}", "architectures",
                             "GptOssForCausalLM", "model_type", "gpt_oss", "attention_bias", 1,
                             "hidden_act", "silu", "layer_types", layers, "tie_word_embeddings", 0);
    if (!root) {
        status_set(SOL_E_MEMORY, "no memory for config.json");
        return NULL;
    }
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        json_object_set_new(
            root, integers[i].names[0],
            json_integer(*(const int64_t *)(const void *)((const char *)c + integers[i].offset)));
    json_object_set_new(root, "experts_per_token", json_integer(c->top_k));
    if (c->rope_original_context) /* 0, for plain RoPE, is none that could be read again */
        json_object_set_new(root, "initial_context_length", json_integer(c->rope_original_context));
    json_object_set_new(root, "rms_norm_eps", json_float(c->rms_eps));
    json_object_set_new(root, "swiglu_limit", json_float(c->swiglu_limit));
    json_object_set_new(root, "rope_theta", json_float(c->rope_theta));
    json_object_set_new(root, "rope_scaling", scaling_json(c));
    json_object_set_new(root, "torch_dtype", json_string("bfloat16"));
    if (mxfp4)
        json_object_set_new(root, "quantization_config",
                            json_pack("{s:s, s:[s,s,s,s]}", "quant_method", "mxfp4",
                                      "modules_to_not_convert", "model.layers.*.self_attn",
                                      "model.layers.*.mlp.router", "model.embed_tokens",
                                      "lm_head"));
    return root;
}
