/* One small model in every form that sol reads: the folder that transformers wrote, and, built from
 * it here, GGUF, split GGUF, the gptoss dialect, fused gate and up, and `original/`. All must give
 * the same numbers, mapped or read; and the logits must be those of transformers. */
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

#include "base/memory.h"
#include "format/output_file.h"
#include "format/safetensors_write.h"
#include "infer/engine.h"
#include "model/architecture.h"
#include "model/check.h"
#include "model/config.h"
#include "model/convert.h"
#include "model/identity.h"
#include "model/rows.h"
#include "support/gguf_writer.h"
#include "support/same_pieces.h"

#define HF_TINY  SOL_SOURCE_DIR "/tests/data/hf_tiny"
#define COUNT(a) (sizeof(a) / sizeof *(a))

static char work[64];

static const char *in_work(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", work, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    strcpy(work, "/tmp/sol-unit-model-files-XXXXXX");
    return mkdtemp(work) ? 0 : -1;
}

static int tear_down(void **state)
{
    char path[256];
    (void)state;
    output_folder_discard(in_work("hf", path));
    output_folder_discard(in_work("original", path));
    output_folder_discard(in_work("plain", path));
    output_folder_discard(work);
    return access(work, F_OK) == 0 ? -1 : 0;
}

/* ---- comparing ---- */

static float *decoded(const struct model_files *files, bool mapped, int64_t index, int64_t *n)
{
    struct weight w = weight_at(&files->config, index);
    const struct place *p = &files->places[index];
    struct weight_shape shape = weight_shape(&w);
    struct row_reader *reader;
    *n = weight_elements(&w);
    unsigned char *raw = malloc(place_model_bytes(&w, p));
    float *out = malloc((size_t)*n * sizeof *out);
    assert_true(raw && out);
    assert_int_equal(row_reader_create(files, mapped, &reader), SOL_OK);
    size_t row = dtype_row_bytes(place_model_dtype(&w, p), shape.cols);
    for (int64_t g = 0; g < shape.groups; g++) { /* in uneven pieces */
        for (int64_t r = 0; r < shape.rows; r += 7) {
            int64_t m = shape.rows - r < 7 ? shape.rows - r : 7;
            if (rows_read(reader, &w, p, g, r, m, raw + (size_t)(g * shape.rows + r) * row) !=
                SOL_OK)
                fail_msg("%s", sol_last_error());
        }
    }
    dtype_info(place_model_dtype(&w, p))->decode(raw, out, *n);
    row_reader_destroy(reader);
    free(raw);
    return out;
}

static void assert_same_import(const char *path, const struct model_files *want)
{
    struct model_files *files;
    if (model_files_open(path, &files) != SOL_OK) fail_msg("%s", sol_last_error());
    assert_memory_equal(&files->config, &want->config, sizeof want->config);
    for (int64_t i = 0; i < weight_count(&want->config); i++) {
        struct weight w = weight_at(&want->config, i);
        int64_t n, m;
        float *b = decoded(want, true, i, &m);
        for (int mapped = 0; mapped < 2; mapped++) {
            float *a = decoded(files, mapped, i, &n);
            assert_int_equal(n, m);
            if (memcmp(a, b, (size_t)n * sizeof *a) != 0)
                fail_msg("%s: %s has other numbers", path, w.name);
            free(a);
        }
        free(b);
    }
    model_files_close(files);
}

/* The model as it is bound in memory. */
static void assert_same_model(const char *path, enum model_load load,
                              const struct model_files *want)
{
    struct model *m;
    const struct model_params params = {.load = load};
    if (model_open_with(path, &params, &m) != SOL_OK) fail_msg("%s", sol_last_error());
    for (int64_t i = 0; i < weight_count(&want->config); i++) {
        struct weight w = weight_at(&want->config, i);
        const char *base = w.layer < 0 ? (const char *)m : (const char *)&m->layers[w.layer];
        const void *field = base + w.offset;
        int64_t n;
        float *b = decoded(want, true, i, &n);
        if (w.vector) {
            assert_memory_equal(*(const float *const *)field, b, (size_t)n * sizeof *b);
        } else {
            const struct tensor *t = field;
            float *a = malloc((size_t)n * sizeof *a);
            assert_non_null(a);
            dtype_info(t->dtype)->decode(t->data, a, n);
            assert_memory_equal(a, b, (size_t)n * sizeof *b);
            free(a);
        }
        free(b);
    }
    assert_non_null(m->tokenizer);
    for (size_t bytes = 1000; bytes <= 100000; bytes *= 10) {
        const char *wrong = pieces_differ(path, load, bytes, 3, m);
        if (wrong) fail_msg("%s in pieces of %zu: %s", path, bytes, wrong);
    }
    model_close(m);
}

static void convert(const char *from, const char *to, bool folder, size_t part)
{
    struct model_files *files;
    struct vocabulary *v;
    struct weight_input input;
    if (model_files_open(from, &files) != SOL_OK) fail_msg("%s", sol_last_error());
    assert_int_equal(files->gguf ? vocabulary_from_gguf(files->gguf, &v)
                                 : vocabulary_from_folder(files->folder, files->config.vocab, &v),
                     SOL_OK);
    assert_int_equal(weight_input_from_files(files, &input), SOL_OK);
    enum sol_status status = folder ? convert_to_folder(&input, v, to, part)
                                    : convert_to_gguf(&input, v, to, part, true);
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
    weight_input_close(&input);
    vocabulary_destroy(v);
    model_files_close(files);
}

static struct model_files *open_tiny(void)
{
    struct model_files *files;
    if (model_files_open(HF_TINY, &files) != SOL_OK) fail_msg("%s", sol_last_error());
    return files;
}

/* ---- forms made by the converter ---- */

/* Loaded and for later. */
static void assert_same_identity(const char *source, const char *wanted)
{
    char id[MODEL_IDENTITY_SIZE], other[MODEL_IDENTITY_SIZE];
    struct model *model;
    assert_int_equal(model_open(wanted, &model), SOL_OK);
    assert_int_equal(model_identity(model, id), SOL_OK);
    model_close(model);
    for (int later = 0; later < 2; later++) {
        const struct model_params params = {.later = later};
        assert_int_equal(model_open_with(source, &params, &model), SOL_OK);
        assert_int_equal(model_identity(model, other), SOL_OK);
        model_close(model);
        assert_string_equal(other, id);
    }
}

static void test_conversions(void **state)
{
    (void)state;
    char gguf[256], split[256], last[256], hf[256];
    struct model_files *want = open_tiny();
    assert_same_model(HF_TINY, MODEL_LOAD_READ, want);
    assert_same_model(HF_TINY, MODEL_LOAD_MAP, want);
    convert(HF_TINY, in_work("a.gguf", gguf), false, 0);
    assert_same_import(gguf, want);
    assert_same_model(gguf, MODEL_LOAD_READ, want);
    assert_same_model(gguf, MODEL_LOAD_MAP, want);
    assert_same_model(gguf, MODEL_LOAD_AUTO, want);
    convert(gguf, in_work("s.gguf", split), false, 20000);
    in_work("s-00001-of-00005.gguf", split);
    in_work("s-00005-of-00005.gguf", last);
    assert_same_import(split, want);
    assert_same_import(last, want);
    assert_same_model(last, MODEL_LOAD_READ, want);
    assert_same_model(split, MODEL_LOAD_MAP, want);
    convert(split, in_work("hf", hf), true, 20000);
    assert_same_import(hf, want);
    assert_same_identity(gguf, HF_TINY);
    assert_same_identity(split, HF_TINY);
    assert_same_identity(hf, HF_TINY);
    char other[256];
    assert_int_equal(unlink(in_work("s-00003-of-00005.gguf", other)), 0);
    struct model_files *files;
    assert_int_equal(model_files_open(split, &files), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "part 3 of 5"));
    model_files_close(want);
}

/* Experts that are not quantised, which HF files have transposed. */
static void test_unquantised(void **state)
{
    (void)state;
    const char *golden = SOL_SOURCE_DIR "/tests/golden/odd_bf16.gguf";
    char plain[256];
    struct model_files *want;
    assert_int_equal(model_files_open(golden, &want), SOL_OK);
    convert(golden, in_work("plain", plain), true, 0);
    assert_same_import(plain, want);
    assert_same_model(plain, MODEL_LOAD_READ, want);
    assert_same_identity(plain, golden);
    model_files_close(want);
}

/* ---- other dialects, written here ---- */

struct rows {
    unsigned char *data;
    size_t size;
};

/* A whole weight in the layout of model.h. */
static struct rows all_rows(const struct model_files *files, const char *name, struct weight *w)
{
    int64_t i = 0;
    while (*w = weight_at(&files->config, i), strcmp(w->name, name) != 0) i++;
    struct weight_shape shape = weight_shape(w);
    struct rows out = {NULL, place_model_bytes(w, &files->places[i])};
    struct row_reader *reader;
    out.data = malloc(out.size);
    assert_non_null(out.data);
    assert_int_equal(row_reader_create(files, true, &reader), SOL_OK);
    size_t group = out.size / (size_t)shape.groups;
    for (int64_t g = 0; g < shape.groups; g++)
        assert_int_equal(
            rows_read(reader, w, &files->places[i], g, 0, shape.rows, out.data + (size_t)g * group),
            SOL_OK);
    row_reader_destroy(reader);
    return out;
}

/* Rows of two weights as one: each group's after each other, or in turn. */
static struct rows fuse(const struct model_files *files, const char *a, const char *b, bool in_turn,
                        struct weight *w)
{
    struct rows x = all_rows(files, a, w), y = all_rows(files, b, w);
    struct weight_shape shape = weight_shape(w);
    struct rows out = {malloc(x.size + y.size), x.size + y.size};
    assert_non_null(out.data);
    size_t row = x.size / (size_t)(shape.groups * shape.rows);
    for (int64_t g = 0; g < shape.groups; g++) {
        for (int64_t r = 0; r < shape.rows; r++) {
            int64_t to = 2 * g * shape.rows + (in_turn ? 2 * r : r);
            int64_t from = g * shape.rows + r;
            memcpy(out.data + (size_t)to * row, x.data + (size_t)from * row, row);
            to += in_turn ? 1 : shape.rows;
            memcpy(out.data + (size_t)to * row, y.data + (size_t)from * row, row);
        }
    }
    free(x.data);
    free(y.data);
    return out;
}

/* To the other order of nibbles, each block for itself. */
static void to_hf_order(struct rows *rows)
{
    for (size_t at = 0; at < rows->size; at += 17) {
        struct block_mxfp4 block;
        memcpy(&block, rows->data + at, sizeof block);
        mxfp4_to_hf(&block, rows->data + at + 1, rows->data + at, 1);
    }
}

static void put_tensor(struct gguf_writer *w, const char *name, uint32_t type, int n, int64_t a,
                       int64_t b, int64_t c, struct rows rows)
{
    const uint64_t dims[] = {(uint64_t)a, (uint64_t)b, (uint64_t)c};
    gguf_put(&w->data, NULL, (32 - w->data.size % 32) % 32);
    gguf_write_entry(w, name, type, (uint32_t)n, dims, w->data.size);
    gguf_put(&w->data, rows.data, rows.size);
    free(rows.data);
}

static void put_weight(struct gguf_writer *out, const struct model_files *files, const char *from,
                       const char *to)
{
    struct weight w;
    struct rows rows = all_rows(files, from, &w);
    int64_t n = w.vector ? 1 : 2;
    bool experts = strstr(from, "_exps.") != NULL;
    put_tensor(out, to,
               w.vector                ? 0
               : w.role == ROLE_EXPERT ? 39
                                       : 30,
               (int)n + experts, w.cols, w.vector ? w.groups : w.rows, w.groups, rows);
}

static void put_config(struct gguf_writer *w, const char *arch, const struct model_config *c)
{
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {
        {"block_count", c->n_layers},
        {"context_length", c->context},
        {"embedding_length", c->hidden},
        {"feed_forward_length", c->intermediate},
        {"attention.head_count", c->n_heads},
        {"attention.head_count_kv", c->n_kv_heads},
        {"attention.key_length", c->head_dim},
        {"attention.value_length", c->head_dim},
        {"attention.sliding_window", c->window},
        {"expert_count", c->n_experts},
        {"expert_used_count", c->top_k},
        {"rope.scaling.original_context_length", c->gpt_oss.rope_original_context},
    };
    char key[96];
    gguf_write_string(w, "general.architecture", arch);
    for (size_t i = 0; i < COUNT(keys); i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
        gguf_write_u32(w, key, (uint32_t)keys[i].value);
    }
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    gguf_write_f32(w, key, c->rope_theta);
    snprintf(key, sizeof key, "%s.rope.scaling.factor", arch);
    gguf_write_f32(w, key, c->gpt_oss.rope_factor);
}

static void put_fused(struct gguf_writer *w, const struct model_files *files, const char *prefix,
                      bool gptoss)
{
    char gate[64], up[64], name[64];
    struct weight t;
    for (int bias = 0; bias < 2; bias++) {
        const char *suffix = bias ? "bias" : "weight";
        snprintf(gate, sizeof gate, "%sffn_gate_exps.%s", prefix, suffix);
        snprintf(up, sizeof up, "%sffn_up_exps.%s", prefix, suffix);
        snprintf(name, sizeof name, "%sffn_gate_up_exps.%s", prefix, suffix);
        struct rows rows = fuse(files, gate, up, gptoss, &t);
        if (gptoss && !bias) to_hf_order(&rows);
        if (bias)
            put_tensor(w, name, 0, 2, 2 * t.cols, t.groups, 1, rows);
        else
            put_tensor(w, name, gptoss ? 4 : 39, 3, t.cols, 2 * t.rows, t.groups, rows);
    }
}

static void put_qkv(struct gguf_writer *out, const struct model_files *files, const char *prefix)
{
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v"};
    for (int bias = 0; bias < 2; bias++) {
        struct rows all = {NULL, 0};
        int64_t rows = 0, cols = 1;
        char name[64];
        for (int p = 0; p < 3; p++) {
            struct weight w;
            snprintf(name, sizeof name, "%s%s.%s", prefix, parts[p], bias ? "bias" : "weight");
            struct rows part = all_rows(files, name, &w);
            all.data = realloc(all.data, all.size + part.size);
            assert_non_null(all.data);
            memcpy(all.data + all.size, part.data, part.size);
            all.size += part.size;
            rows += weight_shape(&w).rows;
            cols = weight_shape(&w).cols;
            free(part.data);
        }
        snprintf(name, sizeof name, "%sattn_qkv.%s", prefix, bias ? "bias" : "weight");
        put_tensor(out, name, bias ? 0 : 30, bias ? 1 : 2, bias ? rows : cols, rows, 1, all);
    }
}

static void write_dialect(const struct model_files *files, bool gptoss, const char *path)
{
    static const char *const globals[] = {"token_embd.weight", "output_norm.weight",
                                          "output.weight"};
    static const struct {
        const char *ours, *theirs;
    } names[] = {
        {"attn_norm.weight", "attn_norm.weight"},
        {"attn_output.weight", "attn_out.weight"},
        {"attn_output.bias", "attn_out.bias"},
        {"attn_sinks.weight", "attn_sinks"},
        {"post_attention_norm.weight", "ffn_norm.weight"},
        {"ffn_gate_inp.weight", "ffn_gate_inp.weight"},
        {"ffn_gate_inp.bias", "ffn_gate_inp.bias"},
        {"ffn_down_exps.bias", "ffn_down_exps.bias"},
    };
    struct gguf_writer w;
    gguf_writer_init(&w);
    put_config(&w, gptoss ? "gptoss" : "gpt-oss", &files->config);
    for (size_t i = 0; i < COUNT(globals); i++) put_weight(&w, files, globals[i], globals[i]);
    for (int64_t l = 0; l < files->config.n_layers; l++) {
        char prefix[16], from[64], to[64];
        struct weight down;
        snprintf(prefix, sizeof prefix, "blk.%d.", (int)l);
        for (size_t i = 0; i < COUNT(names); i++) {
            snprintf(from, sizeof from, "%s%s", prefix, names[i].ours);
            snprintf(to, sizeof to, "%s%s", prefix, gptoss ? names[i].theirs : names[i].ours);
            put_weight(&w, files, from, to);
        }
        put_qkv(&w, files, prefix);
        put_fused(&w, files, prefix, gptoss);
        snprintf(from, sizeof from, "%sffn_down_exps.weight", prefix);
        struct rows rows = all_rows(files, from, &down);
        if (gptoss) to_hf_order(&rows);
        put_tensor(&w, from, gptoss ? 4 : 39, 3, down.cols, down.rows, down.groups, rows);
    }
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    assert_int_equal(output_file_text(path, (const char *)bytes.data, bytes.size), SOL_OK);
    free(bytes.data);
    gguf_writer_free(&w);
}

static void test_dialects(void **state)
{
    (void)state;
    char path[256];
    struct model_files *want = open_tiny();
    write_dialect(want, true, in_work("gptoss.gguf", path));
    assert_same_import(path, want);
    write_dialect(want, false, in_work("fused.gguf", path));
    assert_same_import(path, want);
    model_files_close(want);
}

/* ---- `original/` ---- */

static const struct {
    const char *hf, *original; /* up to their last part, which stays */
} original_names[] = {
    {"self_attn.q_proj.", NULL}, /* fused below */
    {"self_attn.k_proj.", NULL},
    {"self_attn.v_proj.", NULL},
    {"input_layernorm.weight", "attn.norm.scale"},
    {"self_attn.o_proj.", "attn.out."},
    {"self_attn.sinks", "attn.sinks"},
    {"post_attention_layernorm.weight", "mlp.norm.scale"},
    {"mlp.router.", "mlp.gate."},
    {"mlp.experts.gate_up_proj_bias", "mlp.mlp1_bias"},
    {"mlp.experts.gate_up_proj_", "mlp.mlp1_weight."},
    {"mlp.experts.down_proj_bias", "mlp.mlp2_bias"},
    {"mlp.experts.down_proj_", "mlp.mlp2_weight."},
    {"model.embed_tokens.", "embedding."},
    {"model.norm.weight", "norm.scale"},
    {"lm_head.", "unembedding."},
};

struct original {
    char name[128];
    struct rows rows;
};

static void original_tensors(const struct safetensors *set, struct safetensors_out *out,
                             struct rows *data, size_t *count)
{
    for (size_t i = 0; i < safetensors_count(set); i++) {
        const struct safetensors_tensor *t = safetensors_at(set, i);
        const char *rest = t->name;
        char name[160], prefix[32] = "";
        if (strncmp(rest, "model.layers.", 13) == 0) {
            snprintf(prefix, sizeof prefix, "block.%d.", atoi(rest + 13));
            rest = strchr(rest + 13, '.') + 1;
        }
        size_t k = 0;
        while (strncmp(rest, original_names[k].hf, strlen(original_names[k].hf)) != 0) k++;
        if (!original_names[k].original) continue;
        snprintf(name, sizeof name, "%s%s%s", prefix, original_names[k].original,
                 rest + strlen(original_names[k].hf));
        safetensors_out_tensor(out, name, t->type, t->n_dims, t->dims, t->size);
        data[*count] = (struct rows){malloc(t->size), t->size};
        memcpy(data[*count].data, t->data, t->size);
        ++*count;
    }
}

static void original_qkv(const struct model_files *files, struct safetensors_out *out,
                         struct rows *data, size_t *count)
{
    for (int64_t l = 0; l < files->config.n_layers; l++) {
        for (int bias = 0; bias < 2; bias++) {
            struct rows all = {NULL, 0};
            int64_t dims[2] = {0, files->config.hidden};
            char name[96];
            for (int p = 0; p < 3; p++) {
                snprintf(name, sizeof name, "model.layers.%d.self_attn.%c_proj.%s", (int)l,
                         "qkv"[p], bias ? "bias" : "weight");
                const struct safetensors_tensor *t = safetensors_find(files->set, name);
                assert_non_null(t);
                all.data = realloc(all.data, all.size + t->size);
                memcpy(all.data + all.size, t->data, t->size);
                all.size += t->size;
                dims[0] += t->dims[0];
            }
            snprintf(name, sizeof name, "block.%d.attn.qkv.%s", (int)l, bias ? "bias" : "weight");
            safetensors_out_tensor(out, name, "BF16", bias ? 1 : 2, dims, all.size);
            data[(*count)++] = all;
        }
    }
}

static void test_original(void **state)
{
    (void)state;
    static const char config[] =
        "{\"num_hidden_layers\":2,\"num_experts\":4,\"experts_per_token\":2,\"vocab_size\":288,"
        "\"hidden_size\":32,\"intermediate_size\":32,\"swiglu_limit\":7.0,\"head_dim\":16,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"sliding_window\":16,"
        "\"initial_context_length\":32,\"rope_theta\":150000,\"rope_scaling_factor\":32.0,"
        "\"rope_ntk_alpha\":1,\"rope_ntk_beta\":32}";
    char path[256], file[300];
    struct output_folder *made;
    struct model_files *want = open_tiny();
    struct rows data[64];
    size_t count = 0;
    struct safetensors_out *out;
    assert_int_equal(output_folder_create(in_work("original", path), &made), SOL_OK);
    assert_int_equal(output_folder_commit(made), SOL_OK);
    output_folder_destroy(made);
    assert_int_equal(safetensors_out_create(&out), SOL_OK);
    original_tensors(want->set, out, data, &count);
    original_qkv(want, out, data, &count);
    assert_int_equal(safetensors_out_begin(out, path, 0), SOL_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(safetensors_out_data(out, i, 0, data[i].data, data[i].size), SOL_OK);
        free(data[i].data);
    }
    assert_int_equal(safetensors_out_commit(out), SOL_OK);
    safetensors_out_destroy(out);
    snprintf(file, sizeof file, "%s/config.json", path);
    assert_int_equal(output_file_text(file, config, strlen(config)), SOL_OK);
    assert_same_import(path, want);
    model_files_close(want);
}

/* ---- logits ---- */

static float *run_logits(const char *path, const float *tokens, int64_t n, int64_t last,
                         int64_t vocab)
{
    struct model *m;
    struct engine *e;
    struct engine_params params;
    float *out = malloc((size_t)(last * vocab) * sizeof *out);
    assert_non_null(out);
    if (model_open(path, &m) != SOL_OK) fail_msg("%s", sol_last_error());
    engine_params_init(&params);
    params.context = 64;
    params.threads = 1;
    params.kv_dtype = DTYPE_F32;
    params.chooser.loosest = NUMERICS_EXACT;
    assert_int_equal(engine_create(m, &params, &e), SOL_OK);
    for (int64_t i = 0; i < n; i++) {
        const struct engine_row row = {.token = (int32_t)tokens[i], .output = true};
        const float *logits;
        assert_int_equal(engine_eval(e, &row, 1, NULL, NULL, &logits), SOL_OK);
        if (i >= n - last)
            memcpy(out + (i - (n - last)) * vocab, logits, (size_t)vocab * sizeof *out);
    }
    engine_destroy(e);
    model_close(m);
    return out;
}

static void test_logits(void **state)
{
    (void)state;
    struct mapped_file file;
    char gguf[256];
    assert_int_equal(mapped_file_open(HF_TINY "/logits.bin", &file), SOL_OK);
    const float *numbers = file.data;
    int64_t n = (int64_t)numbers[0], vocab = (int64_t)numbers[1];
    const float *want = numbers + 2 + n;
    convert(HF_TINY, in_work("logits.gguf", gguf), false, 0);
    float *hf = run_logits(HF_TINY, numbers + 2, n, 4, vocab);
    float *other = run_logits(gguf, numbers + 2, n, 4, vocab);
    double scale = 0, worst = 0, between = 0;
    for (int64_t i = 0; i < 4 * vocab; i++) {
        scale = fmax(scale, fabs(want[i]));
        worst = fmax(worst, fabs(hf[i] - want[i]));
        between = fmax(between, fabs(hf[i] - other[i]));
    }
    if (worst > 1e-4 * scale || between > 1e-5 * scale)
        fail_msg("off by %g from transformers, by %g between files; scale %g", worst, between,
                 scale);
    free(hf);
    free(other);
    mapped_file_close(&file);
}

/* ---- check and fit ---- */

static void count_problems(void *arg, const char *tensor, bool faulty, const char *what)
{
    int *counts = arg;
    (void)what;
    assert_true(strcmp(tensor, "blk.1.ffn_up_exps.weight") == 0 ||
                strcmp(tensor, "output_norm.weight") == 0 || strcmp(tensor, "output.weight") == 0);
    counts[faulty]++;
}

static void damage(const char *path, size_t offset, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

static size_t offset_of(const struct model_files *files, const char *name)
{
    for (int64_t i = 0;; i++) {
        struct weight w = weight_at(&files->config, i);
        if (strcmp(w.name, name) == 0) return files->places[i].data.offset;
    }
}

static void test_check(void **state)
{
    (void)state;
    char path[256];
    struct model_files *files;
    struct check_summary summary;
    int counts[2] = {0, 0};
    static const unsigned char zeros[288 * 32 * 2];
    convert(HF_TINY, in_work("check.gguf", path), false, 0);
    assert_int_equal(model_files_open(path, &files), SOL_OK);
    assert_int_equal(model_check(files, count_problems, counts, &summary), SOL_OK);
    assert_int_equal(summary.tensors, weight_count(&files->config));
    assert_int_equal(counts[0] + counts[1], 0);
    damage(path, offset_of(files, "blk.1.ffn_up_exps.weight") + 17, "\xff", 1);
    damage(path, offset_of(files, "output_norm.weight") + 8, "\0\0\x80\x7f", 4);
    damage(path, offset_of(files, "output.weight"), zeros, sizeof zeros);
    assert_int_equal(model_check(files, count_problems, counts, &summary), SOL_OK);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 2);
    assert_int_equal(summary.faulty, 2);
    model_files_close(files);
}

/* Refused before anything is read, when there is no room beside the weights. */
static void test_room(void **state)
{
    (void)state;
    struct model *m;
    const struct model_params greedy = {.load = MODEL_LOAD_READ, .reserve = (size_t)1 << 60};
    assert_int_equal(model_open_with(HF_TINY, &greedy, &m), SOL_E_MEMORY);
    assert_non_null(strstr(sol_last_error(), "GiB are free"));
}

/* ---- errors of folders ---- */

static void expect_config(const char *text, const char *word)
{
    char path[256];
    struct model_config c;
    assert_int_equal(output_file_text(in_work("config.json", path), text, strlen(text)), SOL_OK);
    enum sol_status status = config_from_json(path, &c);
    if (status == SOL_OK || !strstr(sol_last_error(), word))
        fail_msg("%s: %s", text, status == SOL_OK ? "accepted" : sol_last_error());
}

static void test_config_errors(void **state)
{
    (void)state;
#define SIZES                                                                                      \
    "\"num_hidden_layers\":2,\"num_local_experts\":4,\"num_experts_per_tok\":2,\"vocab_size\":"    \
    "288,"                                                                                         \
    "\"hidden_size\":32,\"intermediate_size\":32,\"num_attention_heads\":4,"                       \
    "\"num_key_value_heads\":2"
    expect_config("", "no valid JSON");
    expect_config("[]", "no JSON object");
    expect_config("{}", "'num_hidden_layers' is missing");
    expect_config("{\"num_hidden_layers\":-1}", "outside 1 to 1024");
    expect_config("{\"num_hidden_layers\":2.5}", "no integer");
    expect_config("{\"num_hidden_layers\":2,\"num_hidden_layers\":2}", "no valid JSON");
    expect_config("{" SIZES ",\"model_type\":\"llama\"}", "'llama' is not served");
    expect_config("{" SIZES ",\"tie_word_embeddings\":true}", "tied");
    expect_config("{" SIZES ",\"layer_types\":[\"full_attention\",\"full_attention\"]}",
                  "layer_types[0]");
    expect_config("{" SIZES ",\"layer_types\":[\"sliding_attention\"]}", "1 layer_types");
    expect_config("{" SIZES ",\"rope_scaling\":{\"rope_type\":\"linear\"}}", "'linear'");
    expect_config("{" SIZES ",\"rope_theta\":\"x\"}", "no number");
    expect_config("{" SIZES ",\"quantization_config\":{\"quant_method\":\"gptq\"}}", "'gptq'");
    expect_config("{" SIZES ",\"head_dim\":15}", "odd head dimension");
    expect_config("{" SIZES ",\"rope_scaling\":\"yarn\"}", "'rope_scaling' is no object");
    expect_config("{" SIZES ",\"layer_types\":\"all\"}", "'layer_types' is no list");
}

/* null says "none"; no default may stand in for it. */
static void test_config_null(void **state)
{
    static const char *const keys[] = {"head_dim",
                                       "sliding_window",
                                       "max_position_embeddings",
                                       "rms_norm_eps",
                                       "rope_theta",
                                       "swiglu_limit",
                                       "swiglu_alpha",
                                       "rope_scaling_factor",
                                       "rope_ntk_beta",
                                       "initial_context_length"};
    static const struct {
        const char *text;
        float factor;
    } scaling[] = {
        {"{" SIZES "}", 32},
        {"{" SIZES ",\"rope_scaling\":null}", 1},
        {"{" SIZES ",\"rope_parameters\":null}", 1},
        {"{" SIZES ",\"rope_parameters\":null,\"rope_scaling\":{\"rope_type\":\"yarn\","
         "\"factor\":4}}",
         4},
        {"{" SIZES ",\"rope_scaling\":null,\"rope_scaling_factor\":8}", 8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[400], word[64];
        snprintf(text, sizeof text, "{" SIZES ",\"%s\":null}", keys[i]);
        snprintf(word, sizeof word, "'%s' is null", keys[i]);
        expect_config(text, word);
    }
    expect_config("{\"num_hidden_layers\":null}", "'num_hidden_layers' is null");
    for (size_t i = 0; i < sizeof scaling / sizeof *scaling; i++) {
        struct model_config c;
        assert_int_equal(config_from_json_text("c", scaling[i].text, strlen(scaling[i].text), &c),
                         SOL_OK);
        assert_float_equal(c.gpt_oss.rope_factor, scaling[i].factor, 0);
    }
}

/* GPT: what nanochat saves, what transformers writes, and neither. */
#define GPT_SIZES        "\"vocab_size\":50,\"n_layer\":6,\"n_head\":4,\"n_kv_head\":2,\"n_embd\":64"
#define GPT_CONFIG(more) "{\"model_config\":{" GPT_SIZES ",\"sequence_len\":2048" more "}}"

static void read_config(const char *text, struct model_config *c)
{
    if (config_from_json_text("c", text, strlen(text), c) != SOL_OK)
        fail_msg("%s: %s", text, sol_last_error());
}

static void test_config_gpt(void **state)
{
    static const int64_t windows[] = {513, 0, 513, 513, 0, 0};
    struct model_config c;
    (void)state;
    read_config(GPT_CONFIG(",\"window_pattern\":\"SLs\""), &c);
    assert_string_equal(c.arch->name, "GPT");
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.intermediate, 256);
    assert_false(c.gpt.plain);
    for (int i = 0; i < 6; i++) assert_int_equal(model_layer_window(&c, i), windows[i]);
    assert_true(c.rope_theta == 100000 && c.gpt.qk_scale == 1.2f && c.rms_eps == 0x1p-23f);
    read_config(GPT_CONFIG(""), &c); /* January had no windows */
    assert_true(c.gpt.plain && c.rope_theta == 10000 && c.gpt.qk_scale == 1);
    assert_int_equal(model_layer_window(&c, 0), 0);
    read_config("{\"model_type\":\"nanochat\",\"vocab_size\":64,\"num_hidden_layers\":2,"
                "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"hidden_size\":32,"
                "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-6,"
                "\"rope_parameters\":{\"rope_theta\":5000}}",
                &c);
    assert_true(c.gpt.plain && c.rope_theta == 5000 && c.rms_eps == 1e-6f);
    expect_config(GPT_CONFIG(",\"window_pattern\":\"\""), "'window_pattern' is no text");
    expect_config(GPT_CONFIG(",\"window_pattern\":\"SXL\""), "'window_pattern' is no text");
    expect_config(GPT_CONFIG(",\"preset\":\"2025-10\""), "preset '2025-10' is not served");
    expect_config(GPT_CONFIG(",\"rope_parameters\":{\"rope_type\":\"yarn\"}"), "'yarn'");
    expect_config(GPT_CONFIG(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"), "'linear'");
    expect_config("{" GPT_SIZES "}", "'sequence_len' is missing");
    expect_config("{\"model_config\":7}", "'n_layer' is missing");
    expect_config("{\"n_embd\":66,\"n_layer\":1,\"n_head\":4,\"n_kv_head\":4,\"vocab_size\":9,"
                  "\"sequence_len\":9}",
                  "no multiple of 4 heads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversions), cmocka_unit_test(test_unquantised),
        cmocka_unit_test(test_dialects),    cmocka_unit_test(test_original),
        cmocka_unit_test(test_logits),      cmocka_unit_test(test_check),
        cmocka_unit_test(test_room),        cmocka_unit_test(test_config_errors),
        cmocka_unit_test(test_config_null), cmocka_unit_test(test_config_gpt),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
