/* GPT: the model of karpathy/nanochat. RMSNorm without gain, no biases, QK-norm, squared ReLU,
 * windows by a pattern, softcap on the logits; and, but in plain models: smear, value embeddings,
 * scales of the residual stream, backout. A config.json is the file meta_NNNNNN.json that lies
 * beside a checkpoint, or its "model_config" alone, or what transformers writes (docs/MODELS.md).
 */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/architecture.h"
#include "model/config.h"

/* ---- tensors ---- */

static bool plain(const struct model_config *c, int64_t layer)
{
    (void)layer;
    return c->gpt.plain;
}

/* Every second layer has value embeddings, the last one among them. */
static bool no_values(const struct model_config *c, int64_t layer)
{
    return c->gpt.plain || layer % 2 != (model_layers(c) - 1) % 2;
}

#define VECTOR true
#define MATRIX false

/* nanochat's, and transformers'. */
static const struct dialect dialects[] = {{.parts = "_"}, {.parts = "_"}};

enum { SMEAR_CHANNELS = 24, VALUE_CHANNELS = 12, HEAD_DIM_MAX = 1024 };

/* clang-format off */
static const struct weight_spec global[] = {
    {ROLE_EMBED, MATRIX, ONE, VOCAB_64, HIDDEN, IN_MODEL(embed),
     .names = {"transformer.wte.weight", "model.embed_tokens.weight"}},
    {ROLE_ROUTER, MATRIX, ONE, ONE, FIXED + SMEAR_CHANNELS, IN_MODEL(gpt.smear_gate),
     .names = {"smear_gate.weight"}, .absent = plain},
    {ROLE_SINKS, VECTOR, ONE, ONE, ONE, IN_MODEL(gpt.smear_lambda),
     .names = {"smear_lambda"}, .absent = plain},
    {ROLE_NORM, VECTOR, ONE, ONE, LAYERS, IN_MODEL(gpt.resid_lambdas),
     .names = {"resid_lambdas"}, .absent = plain},
    {ROLE_BIAS, VECTOR, ONE, ONE, LAYERS, IN_MODEL(gpt.x0_lambdas),
     .names = {"x0_lambdas"}, .absent = plain},
    {ROLE_BIAS, VECTOR, ONE, ONE, ONE, IN_MODEL(gpt.backout_lambda),
     .names = {"backout_lambda"}, .absent = plain},
    {ROLE_HEAD, MATRIX, ONE, VOCAB_64, HIDDEN, IN_MODEL(head),
     .names = {"lm_head.weight"}},
};

static const struct weight_spec layered[] = {
    {ROLE_DENSE, MATRIX, ONE, Q_WIDTH, HIDDEN, IN_LAYER(wq),
     .names = {"transformer.h.#.attn.c_q.weight", "model.layers.#.self_attn.q_proj.weight"}},
    {ROLE_DENSE, MATRIX, ONE, KV_WIDTH, HIDDEN, IN_LAYER(wk),
     .names = {"transformer.h.#.attn.c_k.weight", "model.layers.#.self_attn.k_proj.weight"}},
    {ROLE_DENSE, MATRIX, ONE, KV_WIDTH, HIDDEN, IN_LAYER(wv),
     .names = {"transformer.h.#.attn.c_v.weight", "model.layers.#.self_attn.v_proj.weight"}},
    {ROLE_EMBED, MATRIX, ONE, VOCAB_64, KV_WIDTH, IN_LAYER(gpt.values),
     .names = {"value_embeds.#.weight"}, .absent = no_values},
    {ROLE_ROUTER, MATRIX, ONE, KV_HEADS, FIXED + VALUE_CHANNELS, IN_LAYER(gpt.ve_gate),
     .names = {"transformer.h.#.attn.ve_gate.weight"}, .absent = no_values},
    {ROLE_DENSE, MATRIX, ONE, HIDDEN, Q_WIDTH, IN_LAYER(wo),
     .names = {"transformer.h.#.attn.c_proj.weight", "model.layers.#.self_attn.o_proj.weight"}},
    {ROLE_DENSE, MATRIX, ONE, INTER, HIDDEN, IN_LAYER(gpt.fc),
     .names = {"transformer.h.#.mlp.c_fc.weight", "model.layers.#.mlp.fc1.weight"}},
    {ROLE_DENSE, MATRIX, ONE, HIDDEN, INTER, IN_LAYER(gpt.proj),
     .names = {"transformer.h.#.mlp.c_proj.weight", "model.layers.#.mlp.fc2.weight"}},
};
/* clang-format on */

/* ---- configuration ---- */

/* What a model of July or of January 2026 has. */
static void set_preset(struct model_config *c, bool january)
{
    c->gpt.plain = january;
    c->gpt.qk_scale = january ? 1.0f : 1.2f;
    c->rope_theta = january ? 10000.0f : 100000.0f;
}

/* PyTorch's epsilon where none is given: that of float32. */
static void set_constants(struct model_config *c)
{
    *c = (struct model_config){
        .arch = &architecture_gpt, .rms_eps = 0x1p-23f, .gpt = {.value_scale = 3, .softcap = 15}};
}

/* A quarter of the length in whole tiles of 128, and the token itself. */
static enum sol_status complete(const char *name, struct model_config *c)
{
    if (c->hidden % c->n_heads)
        return status_set(SOL_E_FORMAT, "%s: width %lld is no multiple of %lld heads", name,
                          (long long)c->hidden, (long long)c->n_heads);
    if (!c->gpt.plain && c->hidden < SMEAR_CHANNELS)
        return status_set(SOL_E_FORMAT, "%s: width %lld is too small: gates read %d channels of it",
                          name, (long long)c->hidden, SMEAR_CHANNELS);
    c->head_dim = c->hidden / c->n_heads;
    if (c->head_dim > HEAD_DIM_MAX)
        return status_set(SOL_E_UNSUPPORTED, "%s: head dimension %lld, at most %d", name,
                          (long long)c->head_dim, HEAD_DIM_MAX);
    if (!c->intermediate) c->intermediate = 4 * c->hidden;
    c->window = ((c->context + 3) / 4 + 127) / 128 * 128 + 1;
    return config_check_heads(name, c);
}

static enum sol_status get_pattern(const char *path, const json_t *value, struct model_config *c)
{
    const char *text = value ? json_string_value(value) : "L";
    size_t length = text ? strlen(text) : 0;
    if (length == 0 || length >= sizeof c->gpt.pattern || text[strspn(text, "SLsl")])
        return status_set(SOL_E_FORMAT, "%s: 'window_pattern' is no text of 1 to %zu S and L", path,
                          sizeof c->gpt.pattern - 1);
    for (size_t i = 0; i < length; i++) c->gpt.pattern[i] = (char)toupper(text[i]);
    return SOL_OK;
}

/* A configuration without a window pattern is of January, or transformers' of such a model. */
static enum sol_status get_preset(const char *path, const json_t *object, struct model_config *c)
{
    const json_t *preset = json_object_get(object, "preset");
    const json_t *pattern = json_object_get(object, "window_pattern");
    const char *name = preset ? json_string_value(preset) : pattern ? "2026-07" : "2026-01";
    bool january = name && strcmp(name, "2026-01") == 0;
    if (!january && (!name || strcmp(name, "2026-07") != 0))
        return status_set(SOL_E_UNSUPPORTED, "%s: preset '%.40s' is not served (%s)", path,
                          name ? name : "?", "2026-07 and 2026-01 are");
    set_preset(c, january);
    return get_pattern(path, pattern, c);
}

static const struct config_integer integers[] = {
    {{"n_layer", "num_hidden_layers"}, CONFIG_FIELD(n_layers), 1, 1024, true},
    {{"n_embd", "hidden_size"}, CONFIG_FIELD(hidden), 1, 1 << 16, true},
    {{"n_head", "num_attention_heads"}, CONFIG_FIELD(n_heads), 1, 1024, true},
    {{"n_kv_head", "num_key_value_heads"}, CONFIG_FIELD(n_kv_heads), 1, 1024, true},
    {{"vocab_size"}, CONFIG_FIELD(vocab), 1, 1 << 24, true},
    {{"sequence_len", "max_position_embeddings"}, CONFIG_FIELD(context), 1, INT32_MAX - 512, true},
    {{"intermediate_size"}, CONFIG_FIELD(intermediate), 1, 1 << 20, false},
};

static const struct config_float floats[] = {
    {{"rms_norm_eps"}, CONFIG_FIELD(rms_eps), 1e-12, 1.0},
    {{"rope_theta"}, CONFIG_FIELD(rope_theta), 2.0, 1e12},
    {{"final_logit_softcapping"}, CONFIG_FIELD(gpt.softcap), 1e-3, 1e6},
};

/* What transformers can express and the forward pass has fixed. */
static enum sol_status must_be(const char *path, const json_t *object, const char *key,
                               const char *text)
{
    const json_t *value = json_object_get(object, key);
    const char *is = json_string_value(value);
    if (!value || (is && strcmp(is, text) == 0)) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s: %s '%.40s' is not served (%s is)", path, key,
                      is ? is : "?", text);
}

/* transformers', under its name and the older one; null and nothing are plain RoPE. */
static enum sol_status get_rope(const char *path, const json_t *root, struct model_config *c)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *rope = json_object_get(root, names[i]);
        SOL_TRY(must_be(path, rope, "rope_type", "default"));
        SOL_TRY(must_be(path, rope, "type", "default"));
        SOL_TRY(config_get_floats(path, rope, floats, sizeof floats / sizeof *floats, c));
    }
    return SOL_OK;
}

static bool knows(const json_t *root)
{
    return json_object_get(root, "model_config") || json_object_get(root, "n_embd");
}

static enum sol_status from_json(const char *path, const json_t *root, struct model_config *c)
{
    enum { INTEGERS = sizeof integers / sizeof *integers, FLOATS = sizeof floats / sizeof *floats };
    const json_t *inner = json_object_get(root, "model_config");
    if (inner) root = inner;
    set_constants(c);
    SOL_TRY(get_preset(path, root, c));
    SOL_TRY(config_get_integers(path, root, integers, INTEGERS, c));
    SOL_TRY(config_get_floats(path, root, floats, FLOATS, c));
    SOL_TRY(must_be(path, root, "hidden_act", "relu2"));
    SOL_TRY(get_rope(path, root, c));
    return complete(path, c);
}

static json_t *to_json(const struct model_config *c, bool mxfp4)
{
    (void)mxfp4;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:o, s:o}", "sequence_len",
                     (json_int_t)c->context, "vocab_size", (json_int_t)c->vocab, "n_layer",
                     (json_int_t)c->n_layers, "n_head", (json_int_t)c->n_heads, "n_kv_head",
                     (json_int_t)c->n_kv_heads, "n_embd", (json_int_t)c->hidden,
                     "intermediate_size", (json_int_t)c->intermediate, "window_pattern",
                     c->gpt.pattern, "preset", c->gpt.plain ? "2026-01" : "2026-07", "rms_norm_eps",
                     config_json_float(c->rms_eps), "rope_theta", config_json_float(c->rope_theta),
                     "final_logit_softcapping", config_json_float(c->gpt.softcap));
}

/* The last layer always sees everything. */
static int64_t window(const struct model_config *c, int64_t layer)
{
    char kind = c->gpt.pattern[(size_t)layer % strlen(c->gpt.pattern)];
    return kind == 'S' && layer < model_layers(c) - 1 ? c->window : 0;
}

/* Backwards, as its checkpoints were trained; the scale of queries and keys, which stands behind
 * their norm, comes with cosine and sine. */
static void frequencies(const struct model_config *c, bool rounded, float *inv_freq, float *factor)
{
    (void)rounded;
    for (int64_t i = 0; i < c->head_dim / 2; i++)
        inv_freq[i] = (float)-pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim);
    *factor = c->gpt.qk_scale;
}

static void set_size(struct model_config *c, int64_t layers, int64_t hidden, int64_t heads,
                     int64_t kv_heads, int64_t vocab, int64_t context)
{
    set_constants(c);
    set_preset(c, false);
    strcpy(c->gpt.pattern, "SSSL");
    c->n_layers = layers;
    c->hidden = hidden;
    c->n_heads = heads;
    c->n_kv_heads = kv_heads;
    c->vocab = vocab;
    c->context = context;
    complete("synth", c);
}

static void tiny(struct model_config *c)
{
    set_size(c, 4, 128, 4, 2, 500, 1024);
}

static void d12(struct model_config *c)
{
    set_size(c, 12, 768, 6, 6, 32768, 2048);
}

static void d20(struct model_config *c)
{
    set_size(c, 20, 1280, 10, 10, 32768, 2048);
}

/* ---- for people ---- */

static const struct config_field fields[] = {
    {"layers", CONFIG_FIELD(n_layers), false},
    {"hidden", CONFIG_FIELD(hidden), false},
    {"heads", CONFIG_FIELD(n_heads), false},
    {"kv_heads", CONFIG_FIELD(n_kv_heads), false},
    {"head_dim", CONFIG_FIELD(head_dim), false},
    {"intermediate", CONFIG_FIELD(intermediate), false},
    {"vocab", CONFIG_FIELD(vocab), false},
    {"window", CONFIG_FIELD(window), false},
    {"context", CONFIG_FIELD(context), false},
    {"rms_eps", CONFIG_FIELD(rms_eps), true},
    {"rope_theta", CONFIG_FIELD(rope_theta), true},
    {"qk_scale", CONFIG_FIELD(gpt.qk_scale), true},
    {"softcap", CONFIG_FIELD(gpt.softcap), true},
};

static void describe(const struct model_config *c, char *text, size_t size)
{
    snprintf(text, size,
             "attention    %" PRId64 " query and %" PRId64 " key heads of %" PRId64
             ", windows %s, S is %" PRId64 "\n"
             "layers       squared ReLU of %" PRId64 ", %s\n"
             "context      %" PRId64 ", RoPE theta %g\n",
             c->n_heads, c->n_kv_heads, c->head_dim, c->gpt.pattern, c->window, c->intermediate,
             c->gpt.plain ? "plain (2026-01)" : "smear, value embeddings, backout (2026-07)",
             c->context, (double)c->rope_theta);
}

const struct architecture architecture_gpt = {
    .name = "GPT",
    .global = global,
    .n_global = sizeof global / sizeof *global,
    .layered = layered,
    .n_layered = sizeof layered / sizeof *layered,
    .dialects = dialects,
    .n_dialects = sizeof dialects / sizeof *dialects,
    .model_type = "nanochat",
    .knows = knows,
    .from_json = from_json,
    .to_json = to_json,
    .window = window,
    .frequencies = frequencies,
    .fields = fields,
    .n_fields = sizeof fields / sizeof *fields,
    .describe = describe,
    .synthetic = {{"gpt-tiny", tiny}, {"gpt-d12", d12}, {"gpt-d20", d20}},
};
