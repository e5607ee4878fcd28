#include "model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/architecture.h"

static int64_t dim_size(const struct model_config *c, enum dim dim)
{
    /* clang-format off */
    switch (dim) {
    case LAYERS: return c->n_layers;
    case HIDDEN: return c->hidden;
    case HEADS: return c->n_heads;
    case KV_HEADS: return c->n_kv_heads;
    case Q_WIDTH: return c->n_heads * c->head_dim;
    case KV_WIDTH: return c->n_kv_heads * c->head_dim;
    case EXPERTS: return c->n_experts;
    case INTER: return c->intermediate;
    case VOCAB: return c->vocab;
    case VOCAB_64: return (c->vocab + 63) / 64 * 64;
    default: return dim >= FIXED ? (int64_t)dim - FIXED : 1;
    }
    /* clang-format on */
}

/* In the whole model. */
static int64_t layer_number(const struct model_config *c, int64_t layer)
{
    return layer < 0 ? layer : c->first_layer + layer;
}

/* Of ranks that have layers each, the first layer's has the embedding, the last one's the head. */
static bool is_there(const struct model_config *c, const struct weight_spec *spec, int64_t layer)
{
    if (layer < 0 && spec->role == ROLE_EMBED && c->first_layer > 0) return false;
    if (layer < 0 && spec->role == ROLE_HEAD && c->first_layer + c->n_layers < model_layers(c))
        return false;
    return !spec->absent || !spec->absent(c, layer_number(c, layer));
}

/* The tensor that is number `index` of those that a layer (-1: the model) has, or NULL and their
 * count in *count. */
static const struct weight_spec *spec_at(const struct model_config *c, int64_t layer, int64_t index,
                                         int64_t *count)
{
    const struct weight_spec *specs = layer < 0 ? c->arch->global : c->arch->layered;
    int n = layer < 0 ? c->arch->n_global : c->arch->n_layered;
    *count = 0;
    for (const struct weight_spec *spec = specs; spec < specs + n; spec++)
        if (is_there(c, spec, layer) && (*count)++ == index) return spec;
    return NULL;
}

int64_t weight_count(const struct model_config *config)
{
    int64_t total = 0, count;
    for (int64_t layer = -1; layer < config->n_layers; layer++) {
        spec_at(config, layer, -1, &count);
        total += count;
    }
    return total;
}

/* "blk.#.attn_q.weight" of layer 3 is "blk.3.attn_q.weight". */
static void put_name(const char *pattern, int64_t layer, char *out, size_t size)
{
    const char *mark = strchr(pattern, '#');
    int before = (int)(mark ? mark - pattern : (ptrdiff_t)strlen(pattern));
    if (mark)
        snprintf(out, size, "%.*s%lld%s", before, pattern, (long long)layer, mark + 1);
    else
        snprintf(out, size, "%s", pattern);
}

const char *weight_name(const struct weight *w, int dialect, char buffer[WEIGHT_NAME_MAX])
{
    const char *pattern = w->spec->names[dialect];
    put_name(pattern ? pattern : w->spec->names[0], w->layer, buffer, WEIGHT_NAME_MAX);
    return buffer;
}

struct weight weight_at(const struct model_config *config, int64_t index)
{
    const struct weight_spec *spec;
    int64_t layer = -1, count;
    assert(index >= 0 && index < weight_count(config));
    while (!(spec = spec_at(config, layer, index, &count))) {
        index -= count;
        layer++;
    }
    struct weight out = {
        .layer = layer,
        .role = spec->role,
        .vector = spec->vector,
        .groups = dim_size(config, spec->groups),
        .rows = dim_size(config, spec->rows),
        .cols = dim_size(config, spec->cols),
        .offset = spec->offset,
        .spec = spec,
    };
    if (spec->role == ROLE_HEAD && config->head_rows) out.rows = config->head_rows;
    if (spec->groups == EXPERTS && config->own_experts) out.groups = config->own_experts;
    put_name(spec->names[0], layer_number(config, layer), out.name, sizeof out.name);
    return out;
}

int64_t weight_of_whole(const struct model_config *part, const struct model_config *whole,
                        int64_t index)
{
    const struct weight w = weight_at(part, index);
    const int64_t layer = layer_number(part, w.layer);
    int64_t before = 0, count, at = 0;
    for (int64_t n = -1; n < layer; n++) {
        spec_at(whole, n, -1, &count);
        before += count;
    }
    while (spec_at(whole, layer, at, &count) != w.spec) at++;
    return before + at;
}

int64_t weight_elements(const struct weight *weight)
{
    return weight->groups * weight->rows * weight->cols;
}

bool weight_per_expert(const struct weight *weight)
{
    return weight->spec->groups == EXPERTS;
}

const void *weight_field(const struct model *model, const struct weight *w)
{
    const char *base = w->layer < 0 ? (const char *)model : (const char *)&model->layers[w->layer];
    return base + w->offset;
}

void weight_bind(struct model *model, const struct weight *weight, enum dtype dtype,
                 const void *data)
{
    void *field = (void *)(uintptr_t)weight_field(model, weight);
    if (weight->vector) {
        assert(dtype == DTYPE_F32);
        *(const float **)field = data;
    } else {
        *(struct tensor *)field = (struct tensor){.data = data,
                                                  .dtype = dtype,
                                                  .groups = weight->groups,
                                                  .rows = weight->rows,
                                                  .cols = weight->cols};
    }
}
