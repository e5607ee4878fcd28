/* Opening a model: where it comes from, and what keeps its memory. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/config.h"
#include "model/source.h"
#include "model/synth.h"
#include "model/weights.h"

struct model_source {
    struct arena *arena; /* layers, name, converted vectors */
    struct gguf *file;
    void *pages; /* synthetic weights */
    size_t pages_size;
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
    if (source && strcmp(source, "builtin") != 0) return gguf_open(source, out);
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

static enum sol_status load_tokenizer(struct model *model, const struct gguf *file)
{
    SOL_TRY(tokenizer_from_gguf(file, &model->tokenizer));
    if (tokenizer_vocab(model->tokenizer) > model->config.vocab) {
        return status_set(
            SOL_E_FORMAT, "%s: %d tokens in the vocabulary, %lld rows in the embedding",
            gguf_name(file), tokenizer_vocab(model->tokenizer), (long long)model->config.vocab);
    }
    return SOL_OK;
}

static enum sol_status load_gguf(struct model *model, const char *source)
{
    SOL_TRY(source_open_gguf(source, &model->source->file));
    const struct gguf *file = model->source->file;
    SOL_TRY(config_from_gguf(file, &model->config));
    SOL_TRY(make_layers(model));
    SOL_TRY(weights_load(file, model->source->arena, model));
    size_t available = memory_available();
    if (available && gguf_file_size(file) > available) {
        LOG_WARN(
            "%s: %.1f GiB, but only %.1f GiB of memory are free: weights will be read from disk "
            "again and again",
            gguf_name(file), (double)gguf_file_size(file) / (1 << 30),
            (double)available / (1 << 30));
    }
    return load_tokenizer(model, file);
}

static enum sol_status load_synth(struct model *model, const char *text)
{
    struct synth synth;
    SOL_TRY(synth_parse(text, &synth));
    model->config = synth.config;
    SOL_TRY(make_layers(model));
    model->source->pages_size = synth_bytes(&synth);
    return synth_fill(&synth, model, &model->source->pages);
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

enum sol_status model_open(const char *source, struct model **out)
{
    struct model *model = NULL;
    *out = NULL;
    const char *synth = source_synth(source);
    enum sol_status status = model_create(source ? source : "builtin", &model);
    if (status != SOL_OK) return status;
    status = synth ? load_synth(model, synth) : load_gguf(model, source);
    if (status != SOL_OK) {
        model_close(model);
        return status;
    }
    *out = model;
    return SOL_OK;
}

void model_close(struct model *model)
{
    if (!model) return;
    struct model_source *source = model->source;
    tokenizer_destroy(model->tokenizer);
    gguf_close(source->file);
    pages_free(source->pages, source->pages_size);
    arena_destroy(source->arena); /* and with it model and source */
}
