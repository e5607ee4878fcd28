#include "support/eagle_file.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/rng.h"
#include "format/safetensors_write.h"

enum { HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, INTER = 48, TENSORS = 17 };

static void must(bool well)
{
    if (well) return;
    fprintf(stderr, "no head for a test: %s\n", sol_last_error());
    abort();
}

struct tensor_file {
    char name[64];
    const char *type;
    int n_dims;
    int64_t dims[2];
};

static size_t bytes_of(const struct tensor_file *t)
{
    const size_t each = strcmp(t->type, "I64") == 0    ? 8
                        : strcmp(t->type, "F32") == 0  ? 4
                        : strcmp(t->type, "BF16") == 0 ? 2
                                                       : 1;
    return (size_t)(t->dims[0] * (t->n_dims == 2 ? t->dims[1] : 1)) * each;
}

static void add(const struct eagle_file *f, struct tensor_file *all, int *n, const char *name,
                const char *type, int64_t rows, int64_t cols)
{
    struct tensor_file t = {.type = type, .n_dims = cols ? 2 : 1, .dims = {rows, cols}};
    if (f->without && strcmp(f->without, name) == 0) return;
    if (f->longer && strcmp(f->longer, name) == 0) t.dims[0]++;
    snprintf(t.name, sizeof t.name, "%s%s",
             name[0] == '.' ? (f->layer ? f->layer : "midlayer") : "", name);
    all[(*n)++] = t;
}

static int list(const struct eagle_file *f, struct tensor_file all[TENSORS])
{
    const int64_t hidden = f->hidden ? f->hidden : f->target->hidden;
    const char *type = f->type ? f->type : "BF16";
    const int64_t q = HEADS * HEAD_DIM, kv = KV_HEADS * HEAD_DIM;
    int n = 0;
    add(f, all, &n, "fc.weight", type, hidden, 3 * f->target->hidden);
    add(f, all, &n, ".input_layernorm.weight", "F32", hidden, 0);
    add(f, all, &n, ".hidden_norm.weight", "BF16", hidden, 0);
    add(f, all, &n, ".post_attention_layernorm.weight", "F32", hidden, 0);
    add(f, all, &n, ".self_attn.q_proj.weight", type, q, 2 * hidden);
    add(f, all, &n, ".self_attn.k_proj.weight", type, kv, 2 * hidden);
    add(f, all, &n, ".self_attn.v_proj.weight", type, kv, 2 * hidden);
    add(f, all, &n, ".self_attn.o_proj.weight", type, hidden, q);
    add(f, all, &n, ".mlp.gate_proj.weight", type, INTER, hidden);
    add(f, all, &n, ".mlp.up_proj.weight", type, INTER, hidden);
    add(f, all, &n, ".mlp.down_proj.weight", type, hidden, INTER);
    add(f, all, &n, "norm.weight", "F32", hidden, 0);
    add(f, all, &n, "lm_head.weight", type, f->draft_vocab, hidden);
    add(f, all, &n, "d2t", "I64", f->draft_vocab, 0);
    add(f, all, &n, "t2d", "BOOL", f->target->vocab, 0);
    if (f->hidden) add(f, all, &n, "embed_tokens.weight", type, f->target->vocab, hidden);
    if (f->more) add(f, all, &n, f->more, "F32", 3, 0);
    return n;
}

/* Matrices so that rows keep about their size, norms near 1; tokens three apart. */
static void fill(const struct eagle_file *f, const struct tensor_file *t, struct rng *rng,
                 void *data)
{
    const size_t size = bytes_of(t);
    const float width = t->n_dims == 2 ? 1.7f / sqrtf((float)t->dims[1]) : 0.2f;
    if (strcmp(t->type, "I64") == 0)
        for (int64_t i = 0; i < t->dims[0]; i++)
            ((int64_t *)data)[i] = 2 * i + (i + 1 == t->dims[0] ? f->far : 0);
    else if (strcmp(t->type, "F32") == 0)
        for (size_t i = 0; i < size / 4; i++)
            ((float *)data)[i] = (t->n_dims == 1) + width * (2 * (float)rng_uniform(rng) - 1);
    else if (strcmp(t->type, "BF16") == 0)
        for (size_t i = 0; i < size / 2; i++)
            ((uint16_t *)data)[i] =
                bf16_from_f32((t->n_dims == 1) + width * (2 * (float)rng_uniform(rng) - 1));
}

static void write_config(const char *folder, const struct eagle_file *f)
{
    char path[300];
    const int64_t hidden = f->hidden ? f->hidden : f->target->hidden;
    json_t *c = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:f, s:f, s:I, s:I, s:{s:[i,i,i]}}",
        "architectures", "LlamaForCausalLMEagle3", "hidden_act", "silu", "hidden_size",
        (json_int_t)hidden, "target_hidden_size", (json_int_t)f->target->hidden,
        "intermediate_size", (json_int_t)INTER, "num_attention_heads", HEADS, "num_key_value_heads",
        KV_HEADS, "head_dim", HEAD_DIM, "num_hidden_layers", 1, "rms_norm_eps", 1e-5, "rope_theta",
        1e4, "vocab_size", (json_int_t)f->target->vocab, "draft_vocab_size",
        (json_int_t)f->draft_vocab, "eagle_config", "eagle_aux_hidden_state_layer_ids", -1, 0,
        (int)f->target->n_layers - 1);
    must(c);
    if (f->config) {
        json_t *over = json_loads(f->config, 0, NULL);
        must(over);
        json_object_update(c, over);
        json_decref(over);
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    must(json_dump_file(c, path, 0) == 0);
    json_decref(c);
}

void eagle_file_write(const char *folder, const struct eagle_file *f)
{
    struct tensor_file all[TENSORS];
    struct safetensors_out *out;
    struct rng rng;
    const int n = list(f, all);
    rng_seed(&rng, 11);
    write_config(folder, f);
    must(safetensors_out_create(&out) == SOL_OK);
    for (int i = 0; i < n; i++)
        safetensors_out_tensor(out, all[i].name, all[i].type, all[i].n_dims, all[i].dims,
                               bytes_of(&all[i]));
    must(safetensors_out_begin(out, folder, 0) == SOL_OK);
    for (int i = 0; i < n; i++) {
        void *data = calloc(1, bytes_of(&all[i]));
        must(data);
        fill(f, &all[i], &rng, data);
        must(safetensors_out_data(out, (size_t)i, 0, data, bytes_of(&all[i])) == SOL_OK);
        free(data);
    }
    must(safetensors_out_commit(out) == SOL_OK);
    safetensors_out_destroy(out);
}
