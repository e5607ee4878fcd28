/* gpt-oss: configuration from config.json, as transformers writes it, or the shorter one beside the
 * weights of `original/`; and back. A value may go by several names. */
#include <string.h>

#include "base/status.h"
#include "model/arch_gpt_oss.h"
#include "model/config.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct config_integer integers[] = {
    {{"num_hidden_layers"}, CONFIG_FIELD(n_layers), 1, 1024, true},
    {{"hidden_size"}, CONFIG_FIELD(hidden), 1, 1 << 16, true},
    {{"num_attention_heads"}, CONFIG_FIELD(n_heads), 1, 1024, true},
    {{"num_key_value_heads"}, CONFIG_FIELD(n_kv_heads), 1, 1024, true},
    {{"head_dim"}, CONFIG_FIELD(head_dim), 2, 1024, false},
    {{"num_local_experts", "num_experts"}, CONFIG_FIELD(n_experts), 1, 1024, true},
    {{"num_experts_per_tok", "experts_per_token"}, CONFIG_FIELD(top_k), 1, 64, true},
    {{"intermediate_size"}, CONFIG_FIELD(intermediate), 1, 1 << 20, true},
    {{"vocab_size"}, CONFIG_FIELD(vocab), 1, 1 << 24, true},
    {{"sliding_window"}, CONFIG_FIELD(window), 1, INT32_MAX, false},
    {{"max_position_embeddings"}, CONFIG_FIELD(context), 1, INT32_MAX, false},
};

static const struct config_float floats[] = {
    {{"rms_norm_eps"}, CONFIG_FIELD(rms_eps), 1e-12, 1.0},
    {{"rope_theta"}, CONFIG_FIELD(rope_theta), 2.0, 1e12},
    {{"swiglu_limit"}, CONFIG_FIELD(gpt_oss.swiglu_limit), 1e-3, 1e6},
    {{"swiglu_alpha"}, CONFIG_FIELD(gpt_oss.swiglu_alpha), 1e-3, 1e3},
    {{"rope_scaling_factor"}, CONFIG_FIELD(gpt_oss.rope_factor), 1.0, 1e6},
    {{"rope_ntk_beta"}, CONFIG_FIELD(gpt_oss.rope_beta_fast), 1e-3, 1e6},
    {{"rope_ntk_alpha"}, CONFIG_FIELD(gpt_oss.rope_beta_slow), 1e-3, 1e6},
};

/* Within "rope_scaling" (transformers 4) or "rope_parameters" (5). */
static const struct config_float scaling_floats[] = {
    {{"factor"}, CONFIG_FIELD(gpt_oss.rope_factor), 1.0, 1e6},
    {{"beta_fast"}, CONFIG_FIELD(gpt_oss.rope_beta_fast), 1e-3, 1e6},
    {{"beta_slow"}, CONFIG_FIELD(gpt_oss.rope_beta_slow), 1e-3, 1e6},
    {{"rope_theta"}, CONFIG_FIELD(rope_theta), 2.0, 1e12},
};

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
    static const struct config_integer original = {{"original_max_position_embeddings"},
                                                   CONFIG_FIELD(gpt_oss.rope_original_context),
                                                   0,
                                                   INT32_MAX,
                                                   false};
    const json_t *scaling;
    bool none;
    SOL_TRY(find_scaling(path, root, &scaling, &none));
    if (none && !json_object_get(root, "rope_scaling_factor")) c->gpt_oss.rope_factor = 1.0f;
    if (!scaling) return SOL_OK;
    const json_t *kind = json_object_get(scaling, "rope_type");
    if (!kind) kind = json_object_get(scaling, "type");
    const char *type = kind ? json_string_value(kind) : "yarn";
    if (!type) return status_set(SOL_E_FORMAT, "%s: 'rope_type' is no text", path);
    SOL_TRY(config_get_floats(path, scaling, scaling_floats, COUNT(scaling_floats), c));
    SOL_TRY(config_get_integers(path, scaling, &original, 1, c));
    c->gpt_oss.rope_truncate = json_is_true(json_object_get(scaling, "truncate"));
    if (strcmp(type, "yarn") == 0) return SOL_OK;
    if (strcmp(type, "default") != 0)
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: RoPE scaling '%.40s' is not served (yarn and default are)", path,
                          type);
    c->gpt_oss.rope_factor = 1.0f;
    return SOL_OK;
}

/* What transformers can express and sol's forward pass has fixed. */
static enum sol_status check_fixed(const char *path, const json_t *root,
                                   const struct model_config *c)
{
    const json_t *layers = json_object_get(root, "layer_types");
    const json_t *quantised = json_object_get(root, "quantization_config");
    const json_t *method = quantised ? json_object_get(quantised, "quant_method") : NULL;
    if (layers && !json_is_null(layers) && !json_is_array(layers))
        return status_set(SOL_E_FORMAT, "%s: 'layer_types' is no list", path);
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

enum sol_status gpt_oss_from_json(const char *path, const json_t *root, struct model_config *c)
{
    static const struct config_integer initial = {{"initial_context_length"},
                                                  CONFIG_FIELD(gpt_oss.rope_original_context),
                                                  1,
                                                  INT32_MAX,
                                                  false};
    config_gpt_oss_20b(c);
    c->context = 0;
    SOL_TRY(config_get_integers(path, root, integers, COUNT(integers), c));
    SOL_TRY(config_get_floats(path, root, floats, COUNT(floats), c));
    SOL_TRY(config_get_integers(path, root, &initial, 1, c));
    SOL_TRY(get_scaling(path, root, c));
    if (c->context == 0) { /* `original/` gives the two factors */
        double product = (double)c->gpt_oss.rope_original_context * (double)c->gpt_oss.rope_factor;
        c->context = product >= 1 && product < INT32_MAX ? (int64_t)product : 131072;
    }
    SOL_TRY(check_fixed(path, root, c));
    return gpt_oss_check(path, c);
}

static json_t *scaling_json(const struct model_config *c)
{
    if (c->gpt_oss.rope_factor == 1.0f || c->gpt_oss.rope_original_context == 0)
        return json_pack("{s:s, s:o}", "rope_type", "default", "rope_theta",
                         config_json_float(c->rope_theta));
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:I, s:b}", "rope_type", "yarn", "rope_theta",
        config_json_float(c->rope_theta), "factor", config_json_float(c->gpt_oss.rope_factor),
        "beta_fast", config_json_float(c->gpt_oss.rope_beta_fast), "beta_slow",
        config_json_float(c->gpt_oss.rope_beta_slow), "original_max_position_embeddings",
        (json_int_t)c->gpt_oss.rope_original_context, "truncate", (int)c->gpt_oss.rope_truncate);
}

json_t *gpt_oss_to_json(const struct model_config *c, bool mxfp4)
{
    json_t *layers = json_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        json_array_append_new(layers, json_string(i % 2 ? "full_attention" : "sliding_attention"));
    json_t *root = json_pack("{s:[s], s:s, s:b, s:s, s:o, s:b}", "architectures",
                             "GptOssForCausalLM", "model_type", "gpt_oss", "attention_bias", 1,
                             "hidden_act", "silu", "layer_types", layers, "tie_word_embeddings", 0);
    if (!root) return NULL;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        json_object_set_new(
            root, integers[i].names[0],
            json_integer(*(const int64_t *)(const void *)((const char *)c + integers[i].offset)));
    json_object_set_new(root, "experts_per_token", json_integer(c->top_k));
    if (c->gpt_oss.rope_original_context) /* 0, for plain RoPE, is none that could be read again */
        json_object_set_new(root, "initial_context_length",
                            json_integer(c->gpt_oss.rope_original_context));
    json_object_set_new(root, "rms_norm_eps", config_json_float(c->rms_eps));
    json_object_set_new(root, "swiglu_limit", config_json_float(c->gpt_oss.swiglu_limit));
    json_object_set_new(root, "rope_theta", config_json_float(c->rope_theta));
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
