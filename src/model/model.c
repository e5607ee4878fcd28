/* Opening a model: where it comes from, and what keeps its memory. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/files.h"
#include "model/load.h"
#include "model/source.h"
#include "model/synth.h"
#include "model/weights.h"

struct model_source {
    struct arena *arena;       /* layers, name, converted vectors */
    struct model_files *files; /* the files */
    void *pages;               /* synthetic, read or converted weights */
    size_t pages_size;
    struct synth *synth; /* a synthetic model's description */
    bool mapped;         /* for later: whether to read from the mapping */
};

/* From builtin.S. */
extern const unsigned char sol_builtin_model[], sol_builtin_model_end[];

const char *source_synth(const char *source)
{
    return source && strncmp(source, "synth:", 6) == 0 ? source + 6 : NULL;
}

enum sol_status source_open_gguf(const char *source, struct gguf **out)
{
    *out = NULL;
    if (source && strcmp(source, "builtin") != 0) return gguf_open_parts(source, out);
    size_t size = (size_t)((uintptr_t)sol_builtin_model_end - (uintptr_t)sol_builtin_model);
    if (size == 0) {
        return status_set(SOL_E_UNSUPPORTED,
                          "this sol was built without its model (models/builtin.gguf); name a file "
                          "with -m FILE");
    }
    return gguf_open_memory(sol_builtin_model, size, "builtin", out);
}

static enum sol_status make_layers(struct model *model)
{
    model->layers = ARENA_NEW(model->source->arena, struct layer_weights, model->config.n_layers);
    return model->layers ? SOL_OK : SOL_E_MEMORY;
}

/* Beside safetensors there is a tokenizer.json, beside `original/` one folder up. */
static enum sol_status folder_tokenizer(const struct model_files *files, struct tokenizer **out)
{
    static const char *const places[] = {"", "../"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%s%stokenizer.json", files->folder, places[i]);
        if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0)
            return tokenizer_open(path, out);
    }
    LOG_WARN("%s: there is no tokenizer.json; the model knows token ids, but no text", files->name);
    return SOL_OK;
}

enum sol_status model_vocabulary(const struct model_files *files, struct tokenizer **out)
{
    *out = NULL;
    SOL_TRY(files->gguf ? tokenizer_from_gguf(files->gguf, out) : folder_tokenizer(files, out));
    int32_t rows = *out ? tokenizer_vocab(*out) : 0;
    if (rows <= files->config.vocab) return SOL_OK;
    tokenizer_destroy(*out);
    *out = NULL;
    return status_set(SOL_E_FORMAT, "%s: %d tokens in the vocabulary, %lld rows in the embedding",
                      files->name, rows, (long long)files->config.vocab);
}

/* Shapes and sizes alone. */
static void bind_nothing(struct model *model)
{
    const struct model_source *s = model->source;
    for (int64_t i = 0; i < weight_count(&model->config); i++) {
        struct weight w = weight_at(&model->config, i);
        enum dtype dtype =
            s->files ? place_model_dtype(&w, &s->files->places[i]) : synth_dtype(s->synth, &w);
        weight_bind(model, &w, dtype, NULL);
        model->parameters += weight_elements(&w);
        model->weight_bytes +=
            (size_t)(w.groups * w.rows) * dtype_row_bytes(w.vector ? DTYPE_F32 : dtype, w.cols);
    }
}

static enum sol_status open_files(struct model *model, const char *source)
{
    struct model_source *s = model->source;
    SOL_TRY(model_files_open(source, &s->files));
    model->config = s->files->config;
    SOL_TRY(make_layers(model));
    return model_vocabulary(s->files, &model->tokenizer);
}

static enum sol_status open_synth(struct model *model, const char *text)
{
    struct model_source *s = model->source;
    s->synth = ARENA_NEW(s->arena, struct synth, 1);
    if (!s->synth) return SOL_E_MEMORY;
    SOL_TRY(synth_parse(text, s->synth));
    model->config = s->synth->config;
    return make_layers(model);
}

enum sol_status model_load(struct model *model, const struct model_params *params)
{
    struct model_source *s = model->source;
    model->parameters = 0;
    model->weight_bytes = 0;
    if (s->files) return load_weights(s->files, params, s->arena, model, &s->pages, &s->pages_size);
    s->pages_size = synth_bytes(s->synth);
    return synth_fill(s->synth, model, &s->pages);
}

const struct model_files *model_files_of(const struct model *model, bool *mapped)
{
    *mapped = model->source && model->source->mapped;
    return model->source ? model->source->files : NULL; /* none: a model in training */
}

const struct synth *model_synth(const struct model *model)
{
    return model->source->synth;
}

static enum sol_status model_create(const char *name, struct model **out)
{
    struct arena *arena;
    SOL_TRY(arena_create((size_t)1 << 16, &arena));
    struct model *model = ARENA_NEW(arena, struct model, 1);
    struct model_source *source = ARENA_NEW(arena, struct model_source, 1);
    const char *copy = arena_strndup(arena, name, strlen(name));
    if (!model || !source || !copy) {
        arena_destroy(arena);
        return SOL_E_MEMORY;
    }
    source->arena = arena;
    model->source = source;
    model->name = copy;
    *out = model;
    return SOL_OK;
}

enum sol_status model_open_with(const char *source, const struct model_params *params,
                                struct model **out)
{
    struct model *model = NULL;
    static const struct model_params defaults = {.load = MODEL_LOAD_AUTO};
    *out = NULL;
    const char *synth = source_synth(source);
    enum sol_status status = model_create(source ? source : "builtin", &model);
    if (status != SOL_OK) return status;
    if (!params) params = &defaults;
    status = synth ? open_synth(model, synth) : open_files(model, source);
    if (status == SOL_OK && params->later) {
        if (!synth) model->source->mapped = load_is_mapped(model->source->files, params);
        bind_nothing(model);
    } else if (status == SOL_OK) {
        status = model_load(model, params);
    }
    if (status != SOL_OK) {
        model_close(model);
        return status;
    }
    *out = model;
    return SOL_OK;
}

enum sol_status model_open(const char *source, struct model **out)
{
    return model_open_with(source, NULL, out);
}

void model_close(struct model *model)
{
    if (!model) return;
    struct model_source *source = model->source;
    tokenizer_destroy(model->tokenizer);
    model_files_close(source->files);
    pages_free(source->pages, source->pages_size);
    arena_destroy(source->arena); /* and with it model and source */
}
