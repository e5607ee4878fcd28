/* gpt-oss: mixture of experts, grouped-query attention with sinks, a sliding window in even layers,
 * YaRN. Its configuration in GGUF files and in config.json: arch_gpt_oss_gguf.c, _json.c. */
#include "model/arch_gpt_oss.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "model/config.h"

#define VECTOR true
#define MATRIX false

/* ---- tensors ---- */

/* llama.cpp's names; other names in GGUF files, where some are fused; transformers; `original/`. */
static const struct dialect dialects[] = {
    {.gguf = "gpt-oss"},
    {.gguf = "gptoss", .in_turn = true},
    {.parts = "_", .columns = true, .in_turn = true},
    {.parts = ".", .in_turn = true},
};
enum { GGUF, OTHER, HF, ORIGINAL };

#define FUSED_QKV(share) .shares = {[OTHER] = (share), [ORIGINAL] = (share)}
#define FUSED(share)     .shares = {[OTHER] = (share), [HF] = (share), [ORIGINAL] = (share)}

/* clang-format off */
static const struct weight_spec global[] = {
    {ROLE_EMBED, MATRIX, ONE, VOCAB, HIDDEN, IN_MODEL(embed),
     .names = {"token_embd.weight", NULL,
               "model.embed_tokens.weight", "embedding.weight"}},
    {ROLE_NORM, VECTOR, ONE, ONE, HIDDEN, IN_MODEL(final_norm),
     .names = {"output_norm.weight", NULL,
               "model.norm.weight", "norm.scale"}},
    {ROLE_HEAD, MATRIX, ONE, VOCAB, HIDDEN, IN_MODEL(head),
     .names = {"output.weight", NULL,
               "lm_head.weight", "unembedding.weight"}},
};

static const struct weight_spec layered[] = {
    {ROLE_NORM, VECTOR, ONE, ONE, HIDDEN, IN_LAYER(gpt_oss.attn_norm),
     .names = {"blk.#.attn_norm.weight", NULL,
               "model.layers.#.input_layernorm.weight", "block.#.attn.norm.scale"}},
    {ROLE_DENSE, MATRIX, ONE, Q_WIDTH, HIDDEN, IN_LAYER(wq), FUSED_QKV(SHARE_Q),
     .names = {"blk.#.attn_q.weight", "blk.#.attn_qkv.weight",
               "model.layers.#.self_attn.q_proj.weight", "block.#.attn.qkv.weight"}},
    {ROLE_BIAS, VECTOR, ONE, ONE, Q_WIDTH, IN_LAYER(gpt_oss.bq), FUSED_QKV(SHARE_Q),
     .names = {"blk.#.attn_q.bias", "blk.#.attn_qkv.bias",
               "model.layers.#.self_attn.q_proj.bias", "block.#.attn.qkv.bias"}},
    {ROLE_DENSE, MATRIX, ONE, KV_WIDTH, HIDDEN, IN_LAYER(wk), FUSED_QKV(SHARE_K),
     .names = {"blk.#.attn_k.weight", "blk.#.attn_qkv.weight",
               "model.layers.#.self_attn.k_proj.weight", "block.#.attn.qkv.weight"}},
    {ROLE_BIAS, VECTOR, ONE, ONE, KV_WIDTH, IN_LAYER(gpt_oss.bk), FUSED_QKV(SHARE_K),
     .names = {"blk.#.attn_k.bias", "blk.#.attn_qkv.bias",
               "model.layers.#.self_attn.k_proj.bias", "block.#.attn.qkv.bias"}},
    {ROLE_DENSE, MATRIX, ONE, KV_WIDTH, HIDDEN, IN_LAYER(wv), FUSED_QKV(SHARE_V),
     .names = {"blk.#.attn_v.weight", "blk.#.attn_qkv.weight",
               "model.layers.#.self_attn.v_proj.weight", "block.#.attn.qkv.weight"}},
    {ROLE_BIAS, VECTOR, ONE, ONE, KV_WIDTH, IN_LAYER(gpt_oss.bv), FUSED_QKV(SHARE_V),
     .names = {"blk.#.attn_v.bias", "blk.#.attn_qkv.bias",
               "model.layers.#.self_attn.v_proj.bias", "block.#.attn.qkv.bias"}},
    {ROLE_DENSE, MATRIX, ONE, HIDDEN, Q_WIDTH, IN_LAYER(wo),
     .names = {"blk.#.attn_output.weight", "blk.#.attn_out.weight",
               "model.layers.#.self_attn.o_proj.weight", "block.#.attn.out.weight"}},
    {ROLE_BIAS, VECTOR, ONE, ONE, HIDDEN, IN_LAYER(gpt_oss.bo),
     .names = {"blk.#.attn_output.bias", "blk.#.attn_out.bias",
               "model.layers.#.self_attn.o_proj.bias", "block.#.attn.out.bias"}},
    {ROLE_SINKS, VECTOR, ONE, ONE, HEADS, IN_LAYER(gpt_oss.sinks),
     .names = {"blk.#.attn_sinks.weight", "blk.#.attn_sinks",
               "model.layers.#.self_attn.sinks", "block.#.attn.sinks"}},
    {ROLE_NORM, VECTOR, ONE, ONE, HIDDEN, IN_LAYER(gpt_oss.ffn_norm),
     .names = {"blk.#.post_attention_norm.weight", "blk.#.ffn_norm.weight",
               "model.layers.#.post_attention_layernorm.weight", "block.#.mlp.norm.scale"}},
    {ROLE_ROUTER, MATRIX, ONE, EXPERTS, HIDDEN, IN_LAYER(gpt_oss.router),
     .names = {"blk.#.ffn_gate_inp.weight", NULL,
               "model.layers.#.mlp.router.weight", "block.#.mlp.gate.weight"}},
    {ROLE_BIAS, VECTOR, ONE, ONE, EXPERTS, IN_LAYER(gpt_oss.router_bias),
     .names = {"blk.#.ffn_gate_inp.bias", NULL,
               "model.layers.#.mlp.router.bias", "block.#.mlp.gate.bias"}},
    {ROLE_EXPERT, MATRIX, EXPERTS, INTER, HIDDEN, IN_LAYER(gpt_oss.gate), FUSED(SHARE_GATE),
     .names = {"blk.#.ffn_gate_exps.weight", "blk.#.ffn_gate_up_exps.weight",
               "model.layers.#.mlp.experts.gate_up_proj", "block.#.mlp.mlp1_weight"}},
    {ROLE_BIAS, VECTOR, EXPERTS, ONE, INTER, IN_LAYER(gpt_oss.gate_bias), FUSED(SHARE_GATE),
     .names = {"blk.#.ffn_gate_exps.bias", "blk.#.ffn_gate_up_exps.bias",
               "model.layers.#.mlp.experts.gate_up_proj_bias", "block.#.mlp.mlp1_bias"}},
    {ROLE_EXPERT, MATRIX, EXPERTS, INTER, HIDDEN, IN_LAYER(gpt_oss.up), FUSED(SHARE_UP),
     .names = {"blk.#.ffn_up_exps.weight", "blk.#.ffn_gate_up_exps.weight",
               "model.layers.#.mlp.experts.gate_up_proj", "block.#.mlp.mlp1_weight"}},
    {ROLE_BIAS, VECTOR, EXPERTS, ONE, INTER, IN_LAYER(gpt_oss.up_bias), FUSED(SHARE_UP),
     .names = {"blk.#.ffn_up_exps.bias", "blk.#.ffn_gate_up_exps.bias",
               "model.layers.#.mlp.experts.gate_up_proj_bias", "block.#.mlp.mlp1_bias"}},
    {ROLE_EXPERT, MATRIX, EXPERTS, HIDDEN, INTER, IN_LAYER(gpt_oss.down),
     .names = {"blk.#.ffn_down_exps.weight", NULL,
               "model.layers.#.mlp.experts.down_proj", "block.#.mlp.mlp2_weight"}},
    {ROLE_BIAS, VECTOR, EXPERTS, ONE, HIDDEN, IN_LAYER(gpt_oss.down_bias),
     .names = {"blk.#.ffn_down_exps.bias", NULL,
               "model.layers.#.mlp.experts.down_proj_bias", "block.#.mlp.mlp2_bias"}},
};
/* clang-format on */

/* ---- configuration ---- */

void config_gpt_oss_20b(struct model_config *config)
{
    *config = (struct model_config){
        .arch = &architecture_gpt_oss,
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
        .gpt_oss.rope_factor = 32.0f,
        .gpt_oss.rope_beta_fast = 32.0f,
        .gpt_oss.rope_beta_slow = 1.0f,
        .gpt_oss.rope_original_context = 4096,
        .gpt_oss.swiglu_alpha = 1.702f,
        .gpt_oss.swiglu_limit = 7.0f,
    };
}

static void config_120b(struct model_config *c)
{
    config_gpt_oss_20b(c);
    c->n_layers = 36;
    c->n_experts = 128;
}

/* Small, with no two sizes equal, so that a mixed-up dimension shows. */
static void config_tiny(struct model_config *c)
{
    config_gpt_oss_20b(c);
    c->n_layers = 4;
    c->hidden = 128;
    c->n_heads = 6;
    c->n_kv_heads = 2;
    c->head_dim = 32;
    c->n_experts = 8;
    c->intermediate = 96;
    c->vocab = 512;
    c->window = 16;
    c->context = 4096;
}

/* The same for ranks: four of them have unequal shares of all that is shared. */
static void config_small(struct model_config *c)
{
    config_tiny(c);
    c->n_heads = 10;
    c->n_kv_heads = 5;
    c->intermediate = 224;
    c->vocab = 600;
}

enum sol_status gpt_oss_check(const char *name, const struct model_config *c)
{
    SOL_TRY(config_check_heads(name, c));
    if (c->top_k > c->n_experts) {
        return status_set(SOL_E_FORMAT, "%s: %lld of %lld experts used", name, (long long)c->top_k,
                          (long long)c->n_experts);
    }
    if (!(c->gpt_oss.rope_beta_fast > c->gpt_oss.rope_beta_slow)) {
        return status_set(SOL_E_FORMAT, "%s: yarn_beta_fast %g is not above yarn_beta_slow %g",
                          name, (double)c->gpt_oss.rope_beta_fast,
                          (double)c->gpt_oss.rope_beta_slow);
    }
    return SOL_OK;
}

static int64_t window(const struct model_config *config, int64_t layer)
{
    return layer % 2 == 0 ? config->window : 0;
}

/* The (fractional) dimension that turns `rotations` times within the original context. */
static double yarn_bound(const struct model_config *c, double rotations)
{
    const double pi = 3.14159265358979323846;
    return (double)c->head_dim / 2 *
           log((double)c->gpt_oss.rope_original_context / (rotations * 2 * pi)) /
           log((double)c->rope_theta);
}

static void frequencies(const struct model_config *config, bool rounded, float *inv_freq,
                        float *attention_factor)
{
    int64_t half = config->head_dim / 2;
    double factor = config->gpt_oss.rope_factor;
    bool plain = factor == 1.0 || config->gpt_oss.rope_original_context == 0;
    double low = 0, high = 1;
    if (!plain) {
        low = yarn_bound(config, config->gpt_oss.rope_beta_fast);
        high = yarn_bound(config, config->gpt_oss.rope_beta_slow);
        if (rounded || config->gpt_oss.rope_truncate) {
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

/* ---- for people ---- */

static const struct config_field fields[] = {
    {"layers", CONFIG_FIELD(n_layers), false},
    {"hidden", CONFIG_FIELD(hidden), false},
    {"heads", CONFIG_FIELD(n_heads), false},
    {"kv_heads", CONFIG_FIELD(n_kv_heads), false},
    {"head_dim", CONFIG_FIELD(head_dim), false},
    {"experts", CONFIG_FIELD(n_experts), false},
    {"top_k", CONFIG_FIELD(top_k), false},
    {"intermediate", CONFIG_FIELD(intermediate), false},
    {"vocab", CONFIG_FIELD(vocab), false},
    {"window", CONFIG_FIELD(window), false},
    {"context", CONFIG_FIELD(context), false},
    {"rope_original_context", CONFIG_FIELD(gpt_oss.rope_original_context), false},
    {"rms_eps", CONFIG_FIELD(rms_eps), true},
    {"rope_theta", CONFIG_FIELD(rope_theta), true},
    {"rope_factor", CONFIG_FIELD(gpt_oss.rope_factor), true},
    {"rope_beta_fast", CONFIG_FIELD(gpt_oss.rope_beta_fast), true},
    {"rope_beta_slow", CONFIG_FIELD(gpt_oss.rope_beta_slow), true},
    {"swiglu_alpha", CONFIG_FIELD(gpt_oss.swiglu_alpha), true},
    {"swiglu_limit", CONFIG_FIELD(gpt_oss.swiglu_limit), true},
};

static void describe(const struct model_config *c, char *text, size_t size)
{
    const struct gpt_oss_config *g = &c->gpt_oss;
    char yarn[128] = "";
    if (g->rope_factor != 1.0f && g->rope_original_context)
        snprintf(yarn, sizeof yarn, ", YaRN factor %g over %" PRId64 " (beta %g to %g)",
                 (double)g->rope_factor, g->rope_original_context, (double)g->rope_beta_fast,
                 (double)g->rope_beta_slow);
    snprintf(text, size,
             "attention    %" PRId64 " query and %" PRId64 " key heads of %" PRId64
             ", window %" PRId64 " on even layers\n"
             "experts      %" PRId64 " of %" PRId64 " a token, intermediate %" PRId64 "\n"
             "context      %" PRId64 ", RoPE theta %g%s\n",
             c->n_heads, c->n_kv_heads, c->head_dim, c->window, c->top_k, c->n_experts,
             c->intermediate, c->context, (double)c->rope_theta, yarn);
}

const struct architecture architecture_gpt_oss = {
    .name = "gpt-oss",
    .global = global,
    .n_global = sizeof global / sizeof *global,
    .layered = layered,
    .n_layered = sizeof layered / sizeof *layered,
    .dialects = dialects,
    .n_dialects = sizeof dialects / sizeof *dialects,
    .folder_dialect = HF,
    .from_gguf = gpt_oss_from_gguf,
    .to_gguf = gpt_oss_to_gguf,
    .model_type = "gpt_oss",
    .from_json = gpt_oss_from_json,
    .to_json = gpt_oss_to_json,
    .window = window,
    .frequencies = frequencies,
    .fields = fields,
    .n_fields = sizeof fields / sizeof *fields,
    .describe = describe,
    .synthetic = {{"gpt-oss-20b", config_gpt_oss_20b},
                  {"gpt-oss-120b", config_120b},
                  {"tiny", config_tiny},
                  {"small", config_small}},
};
