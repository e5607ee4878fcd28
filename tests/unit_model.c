/* Configuration, weight table, synthetic models, and the errors of files that are well-formed GGUF
 * but not the model that sol runs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/arch_gpt_oss.h"
#include "model/config.h"
#include "model/load.h"
#include "model/model.h"
#include "model/synth.h"
#include "model/weights.h"
#include "support/gguf_writer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- RoPE ---- */

static void test_rope_20b(void **state)
{
    (void)state;
    struct model_config c;
    float inv[32], rounded[32], factor;
    config_gpt_oss_20b(&c);
    model_rope_frequencies(&c, false, inv, &factor);
    assert_true(fabs(factor - 1.34657) < 1e-5);
    const double low = 8.0928, high = 17.3980; /* FACTS */
    for (int i = 0; i < 32; i++) {
        double plain = 1 / pow(150000, i / 32.0);
        double blend = fmin(fmax((i - low) / (high - low), 0), 1);
        double want = plain * (1 - blend) + plain / 32 * blend;
        assert_true(fabs(inv[i] / want - 1) < 1e-4);
    }
    assert_true(inv[0] == 1.0f);
    assert_true(fabs(inv[8] / 0.050813274815461475 - 1) < 1e-6); /* 150000^(-1/4) */
    assert_true(fabs(inv[31] / (1 / pow(150000, 31 / 32.0) / 32) - 1) < 1e-6);

    float same_factor;
    model_rope_frequencies(&c, true, rounded, &same_factor);
    assert_true(same_factor == factor);
    assert_true(rounded[8] == inv[8]); /* both below the ramp */
    double worst = 0;
    int where = -1;
    for (int i = 0; i < 32; i++) {
        double off = fabs(rounded[i] / inv[i] - 1);
        if (off > worst) {
            worst = off;
            where = i;
        }
    }
    assert_int_equal(where, 17); /* FACTS: up to 76 % at dim 17 */
    assert_true(worst > 0.75 && worst < 0.77);
}

static void test_rope_plain_and_clamped(void **state)
{
    (void)state;
    struct model_config c;
    float inv[32], factor;
    config_gpt_oss_20b(&c);
    c.gpt_oss.rope_factor = 1;
    c.head_dim = 32;
    c.rope_theta = 10000;
    model_rope_frequencies(&c, false, inv, &factor);
    assert_true(factor == 1.0f);
    for (int i = 0; i < 16; i++) assert_true(fabs(inv[i] * pow(10000, i / 16.0) - 1) < 1e-6);
    c.gpt_oss.rope_factor = 16;
    c.gpt_oss.rope_original_context = 64; /* beta_fast 32 gives a bound below 0 */
    model_rope_frequencies(&c, false, inv, &factor);
    double high = 16 * log(64 / (2 * 3.14159265358979)) / log(10000);
    double want = (1 - 1 / high + 1 / high / 16) / pow(10000, 1 / 16.0);
    assert_true(inv[0] == 1.0f);
    assert_true(fabs(inv[1] / want - 1) < 1e-6);
    assert_true(fabs(inv[15] * 16 * pow(10000, 15 / 16.0) - 1) < 1e-6);
}

/* ---- the weight table and synthetic models ---- */

static void test_full_size_counts(void **state)
{
    (void)state;
    const struct {
        const char *source;
        int64_t parameters, tensors;
        double gib;
    } cases[] = {
        {"gpt-oss-20b", 20914757184, 3 + 24 * 19, 12.83},
        {"gpt-oss-20b,dense=q8_0", 20914757184, 3 + 24 * 19, 11.26},
        {"gpt-oss-120b", 116829156672, 3 + 36 * 19, 60.8},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct synth synth;
        assert_int_equal(synth_parse(cases[i].source, &synth), SOL_OK);
        int64_t parameters = 0, count = weight_count(&synth.config);
        for (int64_t k = 0; k < count; k++) {
            struct weight w = weight_at(&synth.config, k);
            parameters += weight_elements(&w);
        }
        assert_int_equal(parameters, cases[i].parameters);
        assert_int_equal(count, cases[i].tensors);
        double gib = (double)synth_bytes(&synth) / (1 << 30);
        if (fabs(gib - cases[i].gib) > 0.1) fail_msg("%s: %.2f GiB", cases[i].source, gib);
    }
}

static void assert_sane(const float *values, int64_t n, float bound)
{
    double sum = 0;
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) {
        assert_true(isfinite(values[i]) && fabsf(values[i]) <= bound);
        sum += fabsf(values[i]);
    }
    assert_true(sum > 0);
}

/* Every row of a matrix has finite numbers and a norm near `norm`. */
static void assert_rows(const struct tensor *t, int64_t groups, int64_t rows, int64_t cols,
                        double norm)
{
    float row[256];
    double total = 0;
    assert_true(t->data && (uintptr_t)t->data % 64 == 0);
    assert_int_equal(t->groups, groups);
    assert_int_equal(t->rows, rows);
    assert_int_equal(t->cols, cols);
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t r = 0; r < rows; r++) {
            dtype_info(t->dtype)->decode(tensor_row(t, g, r), row, cols);
            double squares = 0;
            for (int64_t c = 0; c < cols; c++) squares += (double)row[c] * row[c];
            assert_true(isfinite(squares) && squares > 0);
            total += squares;
        }
    }
    double mean = sqrt(total / (double)(groups * rows));
    if (mean < norm * 0.6 || mean > norm * 1.9) fail_msg("norm %g, expected about %g", mean, norm);
}

static void check_tiny(const char *source, enum dtype dense, enum dtype router)
{
    struct model *m;
    assert_int_equal(model_open(source, &m), SOL_OK);
    const struct model_config *c = &m->config;
    assert_null(m->tokenizer);
    assert_string_equal(m->name, source);
    assert_int_equal(m->embed.dtype, dense);
    assert_rows(&m->embed, 1, c->vocab, c->hidden, sqrt((double)c->hidden));
    assert_rows(&m->head, 1, c->vocab, c->hidden, 2);
    assert_sane(m->final_norm, c->hidden, 2);
    for (int64_t l = 0; l < c->n_layers; l++) {
        const struct layer_weights *w = &m->layers[l];
        int64_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
        assert_rows(&w->wq, 1, q, c->hidden, 1);
        assert_rows(&w->wk, 1, kv, c->hidden, 1);
        assert_rows(&w->wv, 1, kv, c->hidden, 1);
        assert_rows(&w->wo, 1, c->hidden, q, 1);
        assert_rows(&w->gpt_oss.router, 1, c->n_experts, c->hidden, 1.5);
        assert_rows(&w->gpt_oss.gate, c->n_experts, c->intermediate, c->hidden, 1.25);
        assert_rows(&w->gpt_oss.up, c->n_experts, c->intermediate, c->hidden, 1.25);
        assert_rows(&w->gpt_oss.down, c->n_experts, c->hidden, c->intermediate, 1.25);
        assert_int_equal(w->wq.dtype, dense);
        assert_int_equal(w->gpt_oss.router.dtype, router);
        assert_int_equal(w->gpt_oss.down.dtype, DTYPE_MXFP4);
        assert_sane(w->gpt_oss.attn_norm, c->hidden, 2);
        assert_sane(w->gpt_oss.ffn_norm, c->hidden, 2);
        assert_sane(w->gpt_oss.bq, q, 1);
        assert_sane(w->gpt_oss.bk, kv, 1);
        assert_sane(w->gpt_oss.bv, kv, 1);
        assert_sane(w->gpt_oss.bo, c->hidden, 1);
        assert_sane(w->gpt_oss.sinks, c->n_heads, 10);
        assert_sane(w->gpt_oss.router_bias, c->n_experts, 1);
        assert_sane(w->gpt_oss.gate_bias, c->n_experts * c->intermediate, 1);
        assert_sane(w->gpt_oss.up_bias, c->n_experts * c->intermediate, 1);
        assert_sane(w->gpt_oss.down_bias, c->n_experts * c->hidden, 1);
    }
    model_close(m);
}

static void test_synth_tiny(void **state)
{
    (void)state;
    check_tiny("synth:tiny", DTYPE_BF16, DTYPE_BF16);
    check_tiny("synth:tiny,dense=q8_0,seed=5", DTYPE_Q8_0, DTYPE_F32);
    check_tiny("synth:tiny,layers=7,dense=f32", DTYPE_F32, DTYPE_F32);
}

static void test_synth_reproducible(void **state)
{
    (void)state;
    const char *const sources[] = {"synth:tiny", "synth:tiny,seed=1", "synth:tiny,seed=2"};
    struct model *m[3];
    for (int i = 0; i < 3; i++) assert_int_equal(model_open(sources[i], &m[i]), SOL_OK);
    for (int64_t l = 0; l < m[0]->config.n_layers; l++) {
        const struct tensor *a = &m[0]->layers[l].gpt_oss.gate, *b = &m[1]->layers[l].gpt_oss.gate;
        assert_memory_equal(a->data, b->data, tensor_bytes(a));
        assert_true(memcmp(a->data, m[2]->layers[l].gpt_oss.gate.data, tensor_bytes(a)) != 0);
        assert_true(memcmp(a->data, m[0]->layers[l].gpt_oss.up.data, tensor_bytes(a)) != 0);
        a = &m[0]->layers[l].gpt_oss.router;
        assert_memory_equal(a->data, m[1]->layers[l].gpt_oss.router.data, tensor_bytes(a));
    }
    for (int i = 0; i < 3; i++) model_close(m[i]);
}

static void test_synth_errors(void **state)
{
    (void)state;
    const struct {
        const char *source, *word;
    } cases[] = {
        {"synth:gpt-os-20b", "did you mean 'gpt-oss-20b'"},
        {"synth:", "unknown model"},
        {"synth:tiny,dense=mxfp4", "dense=mxfp4"},
        {"synth:tiny,layers=0", "layers=0"},
        {"synth:tiny,layers=2x", "layers=2x"},
        {"synth:tiny,color=red", "color=red"},
        {"synth:tiny,seed=-1", "seed=-1"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct model *m;
        assert_int_equal(model_open(cases[i].source, &m), SOL_E_ARGUMENT);
        assert_null(m);
        if (!strstr(sol_last_error(), cases[i].word)) fail_msg("message '%s'", sol_last_error());
    }
}

/* ---- files ---- */

enum { T_F32 = 0, T_F16 = 1, T_Q4_K = 12, T_BF16 = 30, T_MXFP4 = 39 };

/* A whole small model without a vocabulary; `spoil` says what is wrong with it. */
struct spoil {
    const char *architecture, *skip_key, *skip_tensor, *extra_tensor, *reshaped, *retyped;
    uint32_t type;        /* of retyped */
    uint32_t vector_type; /* of all vectors */
    void (*keys)(struct gguf_writer *w);
};

static void write_keys(struct gguf_writer *w, const struct spoil *s, const struct model_config *c)
{
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {"gpt-oss.block_count", c->n_layers},
        {"gpt-oss.embedding_length", c->hidden},
        {"gpt-oss.attention.head_count", c->n_heads},
        {"gpt-oss.attention.head_count_kv", c->n_kv_heads},
        {"gpt-oss.attention.key_length", c->head_dim},
        {"gpt-oss.expert_count", c->n_experts},
        {"gpt-oss.expert_used_count", c->top_k},
        {"gpt-oss.expert_feed_forward_length", c->intermediate},
        {"gpt-oss.attention.sliding_window", c->window},
    };
    gguf_write_string(w, "general.architecture", s->architecture ? s->architecture : "gpt-oss");
    for (size_t i = 0; i < COUNT(integers); i++) {
        if (s->skip_key && strcmp(integers[i].key, s->skip_key) == 0) continue;
        gguf_write_u32(w, integers[i].key, (uint32_t)integers[i].value);
    }
    if (s->keys) s->keys(w);
}

static bool named(const char *name, const char *wanted)
{
    return wanted && strcmp(name, wanted) == 0;
}

static struct gguf_bytes write_model(const struct spoil *s)
{
    struct synth synth;
    struct gguf_writer w;
    const int64_t vector[] = {8};
    assert_int_equal(synth_parse("tiny,layers=2", &synth), SOL_OK);
    gguf_writer_init(&w);
    write_keys(&w, s, &synth.config);
    for (int64_t i = 0; i < weight_count(&synth.config); i++) {
        struct weight t = weight_at(&synth.config, i);
        int64_t dims[3] = {t.cols, t.vector ? t.groups : t.rows, t.groups};
        int n_dims = t.groups > 1 ? 3 : 2;
        if (t.vector) n_dims--;
        uint32_t type = t.role == ROLE_EXPERT ? T_MXFP4 : t.vector ? s->vector_type : T_BF16;
        if (named(t.name, s->skip_tensor)) continue;
        if (named(t.name, s->reshaped)) dims[0] += 32;
        if (named(t.name, s->retyped)) type = s->type;
        gguf_write_tensor(&w, t.name, type, n_dims, dims);
    }
    if (s->extra_tensor) gguf_write_tensor(&w, s->extra_tensor, T_F32, 1, vector);
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    gguf_writer_free(&w);
    return bytes;
}

static void heads_7(struct gguf_writer *w)
{
    gguf_write_u32(w, "gpt-oss.attention.head_count_kv", 4);
}
static void top_k_9(struct gguf_writer *w)
{
    gguf_write_u32(w, "gpt-oss.expert_used_count", 9);
}
static void layers_0(struct gguf_writer *w)
{
    gguf_write_u32(w, "gpt-oss.block_count", 0);
}
static void layers_huge(struct gguf_writer *w)
{
    gguf_write_u32(w, "gpt-oss.block_count", UINT32_MAX);
}
static void eps_nan(struct gguf_writer *w)
{
    gguf_write_f32(w, "gpt-oss.attention.layer_norm_rms_epsilon", NAN);
}
static void linear(struct gguf_writer *w)
{
    gguf_write_string(w, "gpt-oss.rope.scaling.type", "linear");
}
static void yarn_alone(struct gguf_writer *w)
{
    gguf_write_string(w, "gpt-oss.rope.scaling.type", "yarn");
}
static void betas(struct gguf_writer *w)
{
    gguf_write_f32(w, "gpt-oss.rope.scaling.yarn_beta_slow", 64);
}
static void values_16(struct gguf_writer *w)
{
    gguf_write_u32(w, "gpt-oss.attention.value_length", 16);
}
static void text_count(struct gguf_writer *w)
{
    gguf_write_string(w, "gpt-oss.vocab_size", "512");
}
static void vocab_600(struct gguf_writer *w)
{
    gguf_write_u32(w, "gpt-oss.vocab_size", 600);
}
static void split(struct gguf_writer *w)
{
    gguf_write_u32(w, "split.count", 2);
}

static const struct {
    struct spoil spoil;
    enum sol_status status;
    const char *word;
} wrong[] = {
    {{.architecture = "llama"}, SOL_E_UNSUPPORTED, "'llama' is not served"},
    {{.architecture = "gptoss"}, SOL_E_FORMAT, "'gptoss.block_count' is missing"},
    {{.skip_key = "gpt-oss.block_count"}, SOL_E_FORMAT, "'gpt-oss.block_count' is missing"},
    {{.skip_key = "gpt-oss.expert_feed_forward_length"}, SOL_E_FORMAT, "feed_forward_length"},
    {{.skip_key = "gpt-oss.attention.head_count_kv", .keys = heads_7}, SOL_E_FORMAT, "no multiple"},
    {{.skip_key = "gpt-oss.expert_used_count", .keys = top_k_9}, SOL_E_FORMAT, "9 of 8 experts"},
    {{.skip_key = "gpt-oss.block_count", .keys = layers_0}, SOL_E_FORMAT, "outside 1 to 1024"},
    {{.skip_key = "gpt-oss.block_count", .keys = layers_huge}, SOL_E_FORMAT, "outside 1 to 1024"},
    {{.keys = eps_nan}, SOL_E_FORMAT, "epsilon"},
    {{.keys = linear}, SOL_E_UNSUPPORTED, "'linear'"},
    {{.keys = yarn_alone}, SOL_E_FORMAT, "scaled (yarn) by no 'gpt-oss.rope.scaling.factor'"},
    {{.keys = betas}, SOL_E_FORMAT, "yarn_beta_slow"},
    {{.keys = values_16}, SOL_E_UNSUPPORTED, "16 value"},
    {{.keys = text_count}, SOL_E_FORMAT, "has type string"},
    {{.keys = vocab_600},
     SOL_E_FORMAT,
     "'token_embd.weight' has shape [128 x 512], expected [128 x 600]"},
    {{.keys = split}, SOL_E_UNSUPPORTED, "split"},
    {{.skip_tensor = "output.weight"}, SOL_E_FORMAT, "'output.weight' is missing"},
    {{.skip_tensor = "token_embd.weight"}, SOL_E_FORMAT, "'token_embd.weight' is missing"},
    {{.skip_tensor = "blk.1.attn_sinks.weight"},
     SOL_E_FORMAT,
     "'blk.1.attn_sinks.weight' is missing"},
    {{.extra_tensor = "rope_freqs.weight"}, SOL_E_FORMAT, "unexpected tensor 'rope_freqs.weight'"},
    {{.extra_tensor = "blk.2.attn_norm.weight"},
     SOL_E_FORMAT,
     "unexpected tensor 'blk.2.attn_norm"},
    {{.reshaped = "blk.0.ffn_up_exps.weight"},
     SOL_E_FORMAT,
     "[160 x 96 x 8], expected [128 x 96 x 8]"},
    {{.reshaped = "blk.1.attn_q.bias"}, SOL_E_FORMAT, "shape [224], expected [192]"},
    {{.retyped = "blk.0.attn_k.weight", .type = T_Q4_K},
     SOL_E_UNSUPPORTED,
     "type q4_K of tensor 'blk.0.attn_k.weight' is not served"},
    {{.retyped = "blk.0.attn_norm.weight", .type = T_MXFP4}, SOL_E_UNSUPPORTED, "type mxfp4 of"},
};

/* Opened as a file would be, from memory; the caller closes the files and frees the bytes. */
struct opened {
    struct gguf_bytes bytes;
    struct model_files *files;
    struct model model;
    struct arena *arena;
    void *pages;
    size_t size;
};

static enum sol_status load(const struct spoil *spoil, struct opened *o)
{
    struct gguf *file = NULL;
    *o = (struct opened){.bytes = write_model(spoil)};
    assert_int_equal(arena_create(1 << 12, &o->arena), SOL_OK);
    assert_int_equal(gguf_open_memory(o->bytes.data, o->bytes.size, "small.gguf", &file), SOL_OK);
    SOL_TRY(model_files_from_gguf(file, &o->files));
    o->model.config = o->files->config;
    o->model.layers = ARENA_NEW(o->arena, struct layer_weights, o->model.config.n_layers);
    assert_non_null(o->model.layers);
    const struct model_params params = {.load = MODEL_LOAD_MAP};
    return load_weights(o->files, &params, o->arena, &o->model, &o->pages, &o->size);
}

static void unload(struct opened *o)
{
    model_files_close(o->files);
    pages_free(o->pages, o->size);
    arena_destroy(o->arena);
    free(o->bytes.data);
}

static void test_wrong_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct opened o;
        enum sol_status status = load(&wrong[i].spoil, &o);
        if (status != wrong[i].status || !strstr(sol_last_error(), wrong[i].word)) {
            fail_msg("case %zu (%s): status %s, message '%s'", i, wrong[i].word,
                     sol_status_name(status), sol_last_error());
        }
        assert_non_null(strstr(sol_last_error(), "small.gguf"));
        unload(&o);
    }
}

static void test_defaults_and_conversion(void **state)
{
    (void)state;
    const uint32_t types[] = {T_F32, T_F16, T_BF16};
    for (size_t i = 0; i < COUNT(types); i++) {
        struct opened o;
        assert_int_equal(load(&(struct spoil){.vector_type = types[i]}, &o), SOL_OK);
        const struct model *model = &o.model;
        const struct model_config *c = &model->config;
        assert_int_equal(c->n_layers, 2);
        assert_int_equal(c->vocab, 512); /* from token_embd: the key is absent */
        assert_int_equal(c->context, 131072);
        assert_int_equal(c->gpt_oss.rope_original_context, 4096);
        assert_true(c->rope_theta == 150000.0f && c->rms_eps == 1e-5f);
        assert_true(c->gpt_oss.rope_factor == 1); /* nothing is said of scaling */
        assert_true(c->gpt_oss.swiglu_alpha == 1.702f && c->gpt_oss.swiglu_limit == 7.0f);
        assert_int_equal(model->layers[1].gpt_oss.gate.groups, 8);
        assert_int_equal(model->layers[1].gpt_oss.gate.dtype, DTYPE_MXFP4);
        assert_true(model->final_norm[c->hidden - 1] == 0.0f);
        assert_true(model->layers[1].gpt_oss.down_bias[c->n_experts * c->hidden - 1] == 0.0f);
        unload(&o);
    }
}

/* What the golden files say about themselves must be readable; the numbers are checked by
 * golden_*.c. */
static void open_if_there(const char *path, bool *any)
{
    if (path && access(path, R_OK) != 0) return;
    struct model *m;
    enum sol_status status = model_open(path, &m);
    if (!path && status == SOL_E_UNSUPPORTED) {
        assert_non_null(strstr(sol_last_error(), "built without its model"));
        return;
    }
    if (status != SOL_OK) fail_msg("%s: %s", path ? path : "builtin", sol_last_error());
    assert_non_null(m->tokenizer);
    assert_true(tokenizer_vocab(m->tokenizer) <= m->config.vocab);
    assert_true(m->parameters > 0 && m->weight_bytes > 0);
    model_close(m);
    *any = true;
}

static void test_committed_models(void **state)
{
    (void)state;
    static const char *const golden[] = {"base_mxfp4", "odd_bf16", "long_mxfp4", "q8_dense",
                                         "f32_all"};
    bool any = false;
    for (size_t i = 0; i < COUNT(golden); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/tests/golden/%s.gguf", SOL_SOURCE_DIR, golden[i]);
        open_if_there(path, &any);
    }
    open_if_there(NULL, &any);
    if (!any) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_20b),           cmocka_unit_test(test_rope_plain_and_clamped),
        cmocka_unit_test(test_full_size_counts),   cmocka_unit_test(test_synth_tiny),
        cmocka_unit_test(test_synth_reproducible), cmocka_unit_test(test_synth_errors),
        cmocka_unit_test(test_wrong_models),       cmocka_unit_test(test_defaults_and_conversion),
        cmocka_unit_test(test_committed_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
