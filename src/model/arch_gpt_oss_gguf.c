/* gpt-oss: configuration from GGUF keys, and back. The keys stand in two tables with their ranges;
 * the ranges keep every later product of sizes far from overflow. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "model/arch_gpt_oss.h"

#define FIELD(name) offsetof(struct model_config, name)

static const struct {
    const char *name;
    size_t offset;
    int64_t min, max;
    bool required; /* otherwise gpt-oss's value stays */
} integers[] = {
    {"block_count", FIELD(n_layers), 1, 1024, true},
    {"embedding_length", FIELD(hidden), 1, 1 << 16, true},
    {"attention.head_count", FIELD(n_heads), 1, 1024, true},
    {"attention.head_count_kv", FIELD(n_kv_heads), 1, 1024, true},
    {"attention.key_length", FIELD(head_dim), 2, 1024, false},
    {"expert_count", FIELD(n_experts), 1, 1024, true},
    {"expert_used_count", FIELD(top_k), 1, 64, true},
    {"attention.sliding_window", FIELD(window), 1, INT32_MAX, false},
    {"context_length", FIELD(context), 1, INT32_MAX, false},
    {"rope.scaling.original_context_length", FIELD(gpt_oss.rope_original_context), 0, INT32_MAX,
     false},
};

static const struct {
    const char *name;
    size_t offset;
    double min, max;
} floats[] = {
    {"attention.layer_norm_rms_epsilon", FIELD(rms_eps), 1e-12, 1.0},
    {"rope.freq_base", FIELD(rope_theta), 2.0, 1e12},
    {"rope.scaling.factor", FIELD(gpt_oss.rope_factor), 1.0, 1e6},
    {"rope.scaling.yarn_beta_fast", FIELD(gpt_oss.rope_beta_fast), 1e-3, 1e6},
    {"rope.scaling.yarn_beta_slow", FIELD(gpt_oss.rope_beta_slow), 1e-3, 1e6},
};

enum { KEY_MAX = 96 };

static bool same(struct gguf_string string, const char *text)
{
    return string.length == strlen(text) && memcmp(string.data, text, string.length) == 0;
}

/* Keys begin with the architecture, as the file spells it. */
static const char *full_key(const struct gguf *file, char buffer[KEY_MAX], const char *name)
{
    struct gguf_string arch = {"", 0};
    gguf_get_string(file, "general.architecture", &arch, NULL);
    snprintf(buffer, KEY_MAX, "%.*s.%s", (int)arch.length, arch.data, name);
    return buffer;
}

static enum sol_status get_integer(const struct gguf *file, const char *name, int64_t min,
                                   int64_t max, int64_t *out, bool *found)
{
    char key[KEY_MAX];
    uint64_t value = (uint64_t)*out;
    SOL_TRY(gguf_get_u64(file, full_key(file, key, name), &value, found));
    if (found && !*found) return SOL_OK;
    if (value > (uint64_t)max || (int64_t)value < min) {
        return status_set(SOL_E_FORMAT, "%s: key '%s' is %llu, outside %lld to %lld",
                          gguf_name(file), key, (unsigned long long)value, (long long)min,
                          (long long)max);
    }
    *out = (int64_t)value;
    return SOL_OK;
}

static enum sol_status get_float(const struct gguf *file, const char *name, double min, double max,
                                 float *out)
{
    char key[KEY_MAX];
    double value = *out;
    bool found;
    SOL_TRY(gguf_get_f64(file, full_key(file, key, name), &value, &found));
    if (!found) return SOL_OK;
    if (!(value >= min && value <= max)) { /* NaN too */
        return status_set(SOL_E_FORMAT, "%s: key '%s' is %g, outside %g to %g", gguf_name(file),
                          key, value, min, max);
    }
    *out = (float)value;
    return SOL_OK;
}

static int shown(struct gguf_string string) /* for "%.*s" */
{
    return string.length < 64 ? (int)string.length : 64;
}

/* Expert width and vocabulary, which files spell in more than one way. */
static enum sol_status get_sizes(const struct gguf *file, struct model_config *c)
{
    bool found;
    SOL_TRY(get_integer(file, "expert_feed_forward_length", 1, 1 << 20, &c->intermediate, &found));
    if (!found)
        SOL_TRY(get_integer(file, "feed_forward_length", 1, 1 << 20, &c->intermediate, NULL));
    SOL_TRY(get_integer(file, "vocab_size", 1, 1 << 24, &c->vocab, &found));
    if (found) return SOL_OK;
    const struct gguf_tensor *embed = gguf_tensor_find(file, "token_embd.weight");
    if (!embed)
        return status_set(SOL_E_FORMAT, "%s: tensor 'token_embd.weight' is missing",
                          gguf_name(file));
    if (embed->dims[1] > 1 << 24) {
        return status_set(SOL_E_FORMAT, "%s: tensor 'token_embd.weight' has %lld rows, beyond %d",
                          gguf_name(file), (long long)embed->dims[1], 1 << 24);
    }
    c->vocab = embed->dims[1];
    return SOL_OK;
}

static enum sol_status get_rope_kind(const struct gguf *file, struct model_config *c)
{
    struct gguf_string type = {0};
    bool found;
    char key[KEY_MAX];
    SOL_TRY(gguf_get_string(file, full_key(file, key, "rope.scaling.type"), &type, &found));
    if (!found) return SOL_OK;
    if (same(type, "yarn")) {
        double factor;
        SOL_TRY(gguf_get_f64(file, full_key(file, key, "rope.scaling.factor"), &factor, &found));
        if (found) return SOL_OK;
        return status_set(SOL_E_FORMAT, "%s: RoPE is scaled (yarn) by no '%s'", gguf_name(file),
                          key);
    }
    if (!same(type, "none")) {
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: RoPE scaling '%.*s' is not served (yarn and none are)",
                          gguf_name(file), shown(type), type.data ? type.data : "");
    }
    c->gpt_oss.rope_factor = 1.0f;
    return SOL_OK;
}

static enum sol_status check_head_lengths(const struct gguf *file, const struct model_config *c)
{
    int64_t value_length = c->head_dim, rotated = c->head_dim;
    bool found;
    SOL_TRY(get_integer(file, "attention.value_length", 1, 1024, &value_length, &found));
    SOL_TRY(get_integer(file, "rope.dimension_count", 1, 1024, &rotated, &found));
    if (value_length == c->head_dim && rotated == c->head_dim) return SOL_OK;
    return status_set(
        SOL_E_UNSUPPORTED,
        "%s: heads of %lld with %lld value and %lld rotated dimensions are not served "
        "(they must be equal)",
        gguf_name(file), (long long)c->head_dim, (long long)value_length, (long long)rotated);
}

enum sol_status gpt_oss_from_gguf(const struct gguf *file, struct model_config *out)
{
    config_gpt_oss_20b(out);
    out->gpt_oss.rope_factor = 1.0f; /* where the file says nothing of scaling there is none */
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int64_t *field = (int64_t *)((char *)out + integers[i].offset);
        bool found;
        SOL_TRY(get_integer(file, integers[i].name, integers[i].min, integers[i].max, field,
                            integers[i].required ? NULL : &found));
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        float *field = (float *)((char *)out + floats[i].offset);
        SOL_TRY(get_float(file, floats[i].name, floats[i].min, floats[i].max, field));
    }
    SOL_TRY(get_sizes(file, out));
    SOL_TRY(get_rope_kind(file, out));
    SOL_TRY(check_head_lengths(file, out));
    return gpt_oss_check(gguf_name(file), out);
}

void gpt_oss_to_gguf(const struct model_config *c, const char *name, struct gguf_out *out)
{
    const char *slash = strrchr(name, '/');
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"gpt-oss.block_count", c->n_layers},
        {"gpt-oss.context_length", c->context},
        {"gpt-oss.embedding_length", c->hidden},
        {"gpt-oss.feed_forward_length", c->intermediate},
        {"gpt-oss.attention.head_count", c->n_heads},
        {"gpt-oss.attention.head_count_kv", c->n_kv_heads},
        {"gpt-oss.attention.key_length", c->head_dim},
        {"gpt-oss.attention.value_length", c->head_dim},
        {"gpt-oss.attention.sliding_window", c->window},
        {"gpt-oss.expert_count", c->n_experts},
        {"gpt-oss.expert_used_count", c->top_k},
        {"gpt-oss.expert_feed_forward_length", c->intermediate},
        {"gpt-oss.vocab_size", c->vocab},
    };
    gguf_out_string(out, "general.architecture", "gpt-oss");
    gguf_out_string(out, "general.type", "model");
    gguf_out_string(out, "general.name", slash ? slash + 1 : name);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        gguf_out_u32(out, sizes[i].key, (uint32_t)sizes[i].value);
    gguf_out_f32(out, "gpt-oss.attention.layer_norm_rms_epsilon", c->rms_eps);
    gguf_out_f32(out, "gpt-oss.rope.freq_base", c->rope_theta);
    bool yarn = c->gpt_oss.rope_factor != 1.0f && c->gpt_oss.rope_original_context;
    gguf_out_string(out, "gpt-oss.rope.scaling.type", yarn ? "yarn" : "none");
    if (yarn) {
        gguf_out_f32(out, "gpt-oss.rope.scaling.factor", c->gpt_oss.rope_factor);
        gguf_out_u32(out, "gpt-oss.rope.scaling.original_context_length",
                     (uint32_t)c->gpt_oss.rope_original_context);
        gguf_out_f32(out, "gpt-oss.rope.scaling.yarn_beta_fast", c->gpt_oss.rope_beta_fast);
        gguf_out_f32(out, "gpt-oss.rope.scaling.yarn_beta_slow", c->gpt_oss.rope_beta_slow);
    }
    gguf_out_u32(out, "general.quantization_version", 2);
    if (c->gpt_oss.swiglu_limit != 7.0f || c->gpt_oss.rope_truncate)
        LOG_WARN("%s: GGUF has no key for swiglu_limit %g%s; gpt-oss's own value will be used",
                 name, (double)c->gpt_oss.swiglu_limit,
                 c->gpt_oss.rope_truncate ? " and truncate" : "");
}
