/* Configuration from GGUF keys, and what follows from it. The keys stand in two tables with their
 * ranges; the ranges keep every later product of sizes far from overflow. config_hf.c does the same
 * for config.json. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define ARCHITECTURE       "gpt-oss"
#define OTHER_ARCHITECTURE "gptoss" /* the other dialect: model/files.c */

void config_gpt_oss_20b(struct model_config *config)
{
    *config = (struct model_config){
        .n_layers = 24,
        .hidden = 2880,
        .n_heads = 64,
        .n_kv_heads = 8,
        .head_dim = 64,
        .n_experts = 32,
        .top_k = 4,
        .intermediate = 2880,
        .vocab = 201088,
        .window = 128,
        .context = 131072,
        .rms_eps = 1e-5f,
        .rope_theta = 150000.0f,
        .rope_factor = 32.0f,
        .rope_beta_fast = 32.0f,
        .rope_beta_slow = 1.0f,
        .rope_original_context = 4096,
        .swiglu_alpha = 1.702f,
        .swiglu_limit = 7.0f,
    };
}

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
    {"rope.scaling.original_context_length", FIELD(rope_original_context), 0, INT32_MAX, false},
};

static const struct {
    const char *name;
    size_t offset;
    double min, max;
} floats[] = {
    {"attention.layer_norm_rms_epsilon", FIELD(rms_eps), 1e-12, 1.0},
    {"rope.freq_base", FIELD(rope_theta), 2.0, 1e12},
    {"rope.scaling.factor", FIELD(rope_factor), 1.0, 1e6},
    {"rope.scaling.yarn_beta_fast", FIELD(rope_beta_fast), 1e-3, 1e6},
    {"rope.scaling.yarn_beta_slow", FIELD(rope_beta_slow), 1e-3, 1e6},
};

enum { KEY_MAX = 96 };

static bool same(struct gguf_string string, const char *text)
{
    return string.length == strlen(text) && memcmp(string.data, text, string.length) == 0;
}

bool config_other_dialect(const struct gguf *file)
{
    struct gguf_string name = {"", 0};
    bool found;
    return gguf_get_string(file, "general.architecture", &name, &found) == SOL_OK && found &&
           same(name, OTHER_ARCHITECTURE);
}

/* Keys begin with the architecture. */
static const char *full_key(const struct gguf *file, char buffer[KEY_MAX], const char *name)
{
    snprintf(buffer, KEY_MAX, "%s.%s",
             config_other_dialect(file) ? OTHER_ARCHITECTURE : ARCHITECTURE, name);
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

static enum sol_status check_architecture(const struct gguf *file)
{
    struct gguf_string name = {0};
    SOL_TRY(gguf_get_string(file, "general.architecture", &name, NULL));
    if (!same(name, ARCHITECTURE) && !same(name, OTHER_ARCHITECTURE)) {
        return status_set(SOL_E_UNSUPPORTED, "%s: architecture '%.*s' is not served; sol runs %s",
                          gguf_name(file), shown(name), name.data ? name.data : "", ARCHITECTURE);
    }
    uint64_t parts = 1;
    bool found;
    SOL_TRY(gguf_get_u64(file, "split.count", &parts, &found));
    if (parts > 1 && parts != (uint64_t)gguf_part_count(file)) {
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: one of %llu parts of a split model without the others",
                          gguf_name(file), (unsigned long long)parts);
    }
    return SOL_OK;
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
    c->rope_factor = 1.0f;
    return SOL_OK;
}

enum sol_status config_check(const char *name, const struct model_config *c)
{
    if (c->head_dim % 2) {
        return status_set(SOL_E_UNSUPPORTED, "%s: odd head dimension %lld", name,
                          (long long)c->head_dim);
    }
    if (c->n_heads % c->n_kv_heads) {
        return status_set(SOL_E_FORMAT, "%s: %lld query heads are no multiple of %lld key heads",
                          name, (long long)c->n_heads, (long long)c->n_kv_heads);
    }
    if (c->top_k > c->n_experts) {
        return status_set(SOL_E_FORMAT, "%s: %lld of %lld experts used", name, (long long)c->top_k,
                          (long long)c->n_experts);
    }
    if (!(c->rope_beta_fast > c->rope_beta_slow)) {
        return status_set(SOL_E_FORMAT, "%s: yarn_beta_fast %g is not above yarn_beta_slow %g",
                          name, (double)c->rope_beta_fast, (double)c->rope_beta_slow);
    }
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

enum sol_status config_from_gguf(const struct gguf *file, struct model_config *out)
{
    SOL_TRY(check_architecture(file));
    config_gpt_oss_20b(out);
    out->rope_factor = 1.0f; /* where the file says nothing of scaling there is none */
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
    return config_check(gguf_name(file), out);
}

/* The (fractional) dimension that turns `rotations` times within the original context. */
static double yarn_bound(const struct model_config *c, double rotations)
{
    const double pi = 3.14159265358979323846;
    return (double)c->head_dim / 2 * log((double)c->rope_original_context / (rotations * 2 * pi)) /
           log((double)c->rope_theta);
}

void model_rope_frequencies(const struct model_config *config, bool rounded, float *inv_freq,
                            float *attention_factor)
{
    int64_t half = config->head_dim / 2;
    double factor = config->rope_factor;
    bool plain = factor == 1.0 || config->rope_original_context == 0;
    double low = 0, high = 1;
    if (!plain) {
        low = yarn_bound(config, config->rope_beta_fast);
        high = yarn_bound(config, config->rope_beta_slow);
        if (rounded || config->rope_truncate) {
            low = floor(low);
            high = ceil(high);
        }
        /* Outside gpt-oss's own numbers the bounds may leave the head; transformers clamps like
         * this. */
        low = fmax(low, 0.0);
        high = fmin(high, (double)config->head_dim - 1);
        if (high - low < 0.001) high = low + 0.001;
    }
    for (int64_t i = 0; i < half; i++) {
        double f = pow(config->rope_theta, 2.0 * (double)i / (double)config->head_dim);
        double mask = 1.0 - fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
        inv_freq[i] = (float)(plain ? 1.0 / f : (1.0 - mask) / (factor * f) + mask / f);
    }
    *attention_factor = plain ? 1.0f : (float)(0.1 * log(factor) + 1.0);
}
