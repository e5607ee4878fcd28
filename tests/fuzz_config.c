/* config.json: whatever is accepted keeps the ranges that the forward pass relies on, and is the
 * same again once written and read. */
#include <string.h>

#include "model/architecture.h"
#include "model/config.h"
#include "support/fuzz.h"

enum { LAYERS_MAX = 64 }; /* of what is written: each has a line */

static void check_gpt_oss(const struct model_config *c)
{
    const struct gpt_oss_config *g = &c->gpt_oss;
    FUZZ_REQUIRE(c->top_k >= 1 && c->top_k <= c->n_experts);
    FUZZ_REQUIRE(g->rope_original_context >= 0 && g->rope_factor >= 1);
    FUZZ_REQUIRE(g->rope_beta_fast > g->rope_beta_slow && g->rope_beta_slow > 0);
    FUZZ_REQUIRE(g->swiglu_limit > 0 && g->swiglu_alpha > 0);
}

static void check_gpt(const struct model_config *c)
{
    size_t length = strnlen(c->gpt.pattern, sizeof c->gpt.pattern);
    FUZZ_REQUIRE(c->n_experts == 0 && c->top_k == 0 && c->hidden == c->n_heads * c->head_dim);
    FUZZ_REQUIRE(c->gpt.softcap > 0 && c->gpt.qk_scale >= 1);
    FUZZ_REQUIRE(length >= 1 && length < sizeof c->gpt.pattern);
    FUZZ_REQUIRE(strspn(c->gpt.pattern, "SL") == length);
    FUZZ_REQUIRE(model_layer_window(c, c->n_layers - 1) == 0);
}

static void check(const struct model_config *c)
{
    FUZZ_REQUIRE(c->n_layers >= 1 && c->hidden >= 1 && c->intermediate >= 1 && c->vocab >= 1);
    FUZZ_REQUIRE(c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0);
    FUZZ_REQUIRE(c->head_dim >= 2 && c->head_dim % 2 == 0);
    FUZZ_REQUIRE(c->window >= 1 && c->context >= 1 && c->rms_eps > 0 && c->rope_theta >= 2);
    if (c->arch == &architecture_gpt_oss)
        check_gpt_oss(c);
    else
        check_gpt(c);
}

static bool same_rope(const struct model_config *a, const struct model_config *b)
{
    bool plain = a->gpt_oss.rope_factor == 1.0f || a->gpt_oss.rope_original_context == 0;
    if (plain) return b->gpt_oss.rope_factor == 1.0f || b->gpt_oss.rope_original_context == 0;
    return a->gpt_oss.rope_factor == b->gpt_oss.rope_factor &&
           a->gpt_oss.rope_beta_fast == b->gpt_oss.rope_beta_fast &&
           a->gpt_oss.rope_beta_slow == b->gpt_oss.rope_beta_slow &&
           a->gpt_oss.rope_truncate == b->gpt_oss.rope_truncate &&
           a->gpt_oss.rope_original_context == b->gpt_oss.rope_original_context;
}

static void check_round_trip(const struct model_config *a)
{
    struct model_config b;
    json_t *root = config_to_json(a, a->n_layers % 2);
    char *text = root ? json_dumps(root, 0) : NULL;
    FUZZ_REQUIRE(text);
    FUZZ_REQUIRE(config_from_json_text("again", text, strlen(text), &b) == SOL_OK);
    FUZZ_REQUIRE(a->n_layers == b.n_layers && a->hidden == b.hidden && a->vocab == b.vocab);
    FUZZ_REQUIRE(a->n_heads == b.n_heads && a->n_kv_heads == b.n_kv_heads);
    FUZZ_REQUIRE(a->head_dim == b.head_dim && a->intermediate == b.intermediate);
    FUZZ_REQUIRE(a->n_experts == b.n_experts && a->top_k == b.top_k);
    FUZZ_REQUIRE(a->window == b.window && a->context == b.context);
    FUZZ_REQUIRE(a->rms_eps == b.rms_eps && a->rope_theta == b.rope_theta);
    FUZZ_REQUIRE(a->arch == b.arch);
    if (a->arch == &architecture_gpt_oss)
        FUZZ_REQUIRE(a->gpt_oss.swiglu_limit == b.gpt_oss.swiglu_limit && same_rope(a, &b));
    else
        FUZZ_REQUIRE(memcmp(&a->gpt, &b.gpt, sizeof a->gpt) == 0);
    free(text);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_config config;
    char *copy = malloc(size ? size : 1); /* exactly as long, for the sanitizer */
    FUZZ_REQUIRE(copy);
    if (size) memcpy(copy, data, size);
    enum sol_status status = config_from_json_text("fuzz", copy, size, &config);
    free(copy);
    if (status == SOL_OK) {
        check(&config);
        if (config.n_layers <= LAYERS_MAX) check_round_trip(&config);
    } else {
        FUZZ_REQUIRE(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED);
    }
    return 0;
}
