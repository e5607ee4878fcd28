/* See activations.h. Buffers that are never needed at the same time share memory. */
#include "train/activations.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/places.h"
#include "base/status.h"
#include "train/activation_lines.h"

/* clang-format off */
static const struct activation_line common[] = {
    {"token", I32, ROWS, ONE, INPUT, RESULT, false, AT(token)}, /* these five are one copy */
    {"target", I32, ROWS, ONE, INPUT, RESULT, false, AT(target)},
    {"order", I32, ROWS, ONE, INPUT, RESULT, false, AT(order)},
    {"scale", F32, ONE, ONE, INPUT, RESULT, false, AT(scale)},
    {"random key", I32, KEY, ONE, INPUT, RESULT, false, AT(key)},
    {"position", I32, ROWS, ONE, INPUT, RESULT, false, AT(position)},
    {"sequence", I32, ROWS, ONE, INPUT, RESULT, false, AT(sequence)},
    {"frequencies", F32, FREQUENCIES, ONE, INPUT, RESULT, false, AT(inv_freq)},
    {"frequencies back", F32, FREQUENCIES, ONE, INPUT, RESULT, false, AT(back_freq)},
    {"loss", F32, ONE, ONE, INPUT, RESULT, false, AT(loss)},
    {"nll", F32, ROWS, ONE, INPUT, RESULT, false, AT(nll)},
    {"stream", ACT, ROWS, HIDDEN, EMBED, BACK_EMBED, true, LAYER(stream)},
    {"mid", ACT, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER(mid)},
    {"q", ACT, ROWS, Q_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(q)},
    {"k", ACT, ROWS, KV_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(k)},
    {"v", ACT, ROWS, KV_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(v)},
    {"attn", ACT, ROWS, Q_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(attn)},
    {"lse", F32, ROWS, HEADS, ATTENTION, BACK_ATTENTION, true, LAYER(lse)},
    {"attn in turned", TURNED, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER(attn_in_turned)},
    {"attn turned", TURNED, ROWS, Q_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(attn_turned)},
    {"small x", SMALL, ROWS, WIDEST, ATTENTION, BACK_ATTENTION, false, AT(small_x)},
    {"small dy", SMALL, ROWS, WIDEST, BACK_MLP, BACK_ATTENTION, false, AT(small_dy)},
    {"small dy turned", SMALL, ROWS, WIDEST, BACK_MLP, BACK_ATTENTION, false, AT(small_dy_turned)},
};
/* clang-format on */

enum { COMMON = sizeof common / sizeof *common, INPUTS = 5, LINES_MAX = 64, ALIGN = 256 };

static int line_count(const struct activations *a)
{
    return COMMON + pass_entry_of(&a->recipe->config)->n_lines;
}

static const struct activation_line *line_at(const struct activations *a, int i)
{
    return i < COMMON ? &common[i] : &pass_entry_of(&a->recipe->config)->lines[i - COMMON];
}

static int64_t widest(const struct model_config *c)
{
    const int64_t q = c->n_heads * c->head_dim;
    const int64_t most = c->hidden > c->intermediate ? c->hidden : c->intermediate;
    return q > most ? q : most;
}

static int64_t extent_of(const struct activations *a, enum extent extent)
{
    const struct model_config *c = &a->recipe->config;
    /* clang-format off */
    switch (extent) {
    case ROWS: return a->sequences * a->recipe->length;
    case HIDDEN: return c->hidden;
    case Q_WIDTH: return c->n_heads * c->head_dim;
    case KV_WIDTH: return c->n_kv_heads * c->head_dim;
    case INTER: return c->intermediate;
    case HEADS: return c->n_heads;
    case KV_HEADS: return c->n_kv_heads;
    case FREQUENCIES: return c->head_dim / 2;
    case EXPERTS: return c->n_experts;
    case TOP_K: return c->top_k;
    case SLOTS: return a->sequences * a->recipe->length * c->top_k;
    case GROUP_ENDS: return c->n_experts + 1;
    case WIDEST: return widest(c);
    case KEY: return sizeof(struct random_key) / sizeof(uint32_t);
    default: return 1;
    }
    /* clang-format on */
}

static size_t line_bytes(const struct activations *a, const struct activation_line *line)
{
    const bool fp8 = a->recipe->precision == PRECISION_FP8;
    size_t element =
        line->type == ACT || line->type == SMALL ? dtype_info(a->dtype)->block_bytes : 4;
    if (line->type == TURNED || (line->type == SMALL && fp8)) element = 1;
    size_t bytes = element * (size_t)(extent_of(a, line->rows) * extent_of(a, line->cols));
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_in_layers(const struct activation_line *line, size_t pointer)
{
    return line->in_layers && line->pointer == pointer;
}

/* With FP8, unless memory counts for more. */
static bool keeps_turned(const struct activations *a)
{
    return a->recipe->precision == PRECISION_FP8 && a->recompute == RECOMPUTE_NOTHING;
}

static bool is_wide_stream(const struct activation_line *line)
{
    return !line->in_layers && line->pointer == offsetof(struct pass_buffers, wide);
}

/* How many of it there are. Behind the last layer there is one more stream; norms that are made
 * again share one place, those of attention and of the MLP. */
static int64_t copies(const struct activations *a, const struct activation_line *line)
{
    const int64_t layers = a->recipe->config.n_layers;
    if (line->type == SMALL && a->recipe->precision == PRECISION_PLAIN) return 0;
    if (line->type == TURNED && !keeps_turned(a)) return 0;
    if (is_wide_stream(line) && !a->recipe->gpt_oss && !a->recipe->config.gpt.plain) return 0;
    if (!line->per_layer) return 1;
    if (line->again && a->recompute >= line->again) return 1;
    if (line->until_turned && keeps_turned(a)) return 1;
    if (is_in_layers(line, offsetof(struct layer_buffers, mix)) && a->recipe->config.gpt.plain)
        return 1; /* for embeddings alone */
    if (is_in_layers(line, offsetof(struct layer_buffers, mlp_in)) &&
        a->recompute >= RECOMPUTE_NORMS)
        return 0;
    return layers + is_in_layers(line, offsetof(struct layer_buffers, stream));
}

static void point(struct activations *a, const struct activation_line *line, int64_t layer,
                  char *to)
{
    char *in = line->in_layers ? (char *)&a->at.layers[layer] : (char *)&a->at;
    memcpy(in + line->pointer, &to, sizeof to);
}

static void point_all(struct activations *a, const struct activation_line *line, char *to)
{
    const int64_t n = copies(a, line), layers = a->recipe->config.n_layers;
    if (!line->in_layers) {
        point(a, line, 0, to);
        return;
    }
    for (int64_t i = 0; n > 0 && i < (n == 1 ? layers : n); i++)
        point(a, line, i, to + (n == 1 ? 0 : (size_t)i * line_bytes(a, line)));
}

static bool lasts(const struct activation_line *line)
{
    return line->first == INPUT;
}

void activations_place(struct activations *a, void *memory)
{
    struct place places[LINES_MAX];
    char *base = memory;
    size_t top = 0, inputs = 0, shared = 0;
    int n = 0;
    assert(line_count(a) <= LINES_MAX);
    for (int i = 0; i < COMMON; i++) {
        if (!lasts(&common[i])) continue;
        point_all(a, &common[i], base + top);
        top += line_bytes(a, &common[i]);
        if (i < INPUTS) inputs = top;
    }
    for (int i = 0; i < line_count(a); i++) {
        const struct activation_line *line = line_at(a, i);
        if (lasts(line)) continue;
        size_t bytes = line_bytes(a, line) * (size_t)copies(a, line);
        size_t at = places_add(places, n++, (int)line->first, (int)line->last, bytes);
        point_all(a, line, base + top + at);
        if (at + bytes > shared) shared = at + bytes;
    }
    a->at.x0 = a->at.layers[0].stream; /* the first layer's stream is the smeared embedding */
    a->at.raw = a->at.layers[0].mix;   /* before and behind the layers */
    for (int64_t i = 0; a->recompute >= RECOMPUTE_NORMS && i < a->recipe->config.n_layers; i++)
        a->at.layers[i].mlp_in = a->at.layers[i].attn_in;
    a->input_bytes = inputs;
    a->size = top + shared;
}

static enum sol_status spread_evenly(struct activations *a)
{
    const struct model_config *c = &a->recipe->config;
    const int64_t slots = a->sequences * a->recipe->length * c->top_k;
    a->even = calloc((size_t)c->n_experts + 1, sizeof *a->even);
    if (!a->even) return status_set(SOL_E_MEMORY, "no memory for a table of activations");
    for (int64_t g = 0; g <= c->n_experts; g++) a->even[g] = (int32_t)(slots * g / c->n_experts);
    for (int64_t n = 0; n < c->n_layers; n++) a->at.layers[n].routing.host_offsets = a->even;
    return SOL_OK;
}

enum sol_status activations_describe(struct activations *a)
{
    a->at = (struct pass_buffers){0};
    a->even = NULL;
    a->at.layers = calloc((size_t)a->recipe->config.n_layers + 1, sizeof *a->at.layers);
    if (!a->at.layers) return status_set(SOL_E_MEMORY, "no memory for a table of activations");
    activations_place(a, plan_nowhere);
    return a->on_gpu && a->recipe->gpt_oss ? spread_evenly(a) : SOL_OK;
}

void activations_free(struct activations *a)
{
    free(a->at.layers);
    free(a->even);
    a->at.layers = NULL;
    a->even = NULL;
}

void activations_report(const struct activations *a,
                        void (*each)(void *arg, const char *name, size_t bytes), void *arg)
{
    for (int i = 0; i < line_count(a); i++) {
        const struct activation_line *line = line_at(a, i);
        each(arg, line->name, line_bytes(a, line) * (size_t)copies(a, line));
    }
}
