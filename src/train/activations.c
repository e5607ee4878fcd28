/* See activations.h. Buffers that are never needed at the same time share memory. */
#include "train/activations.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Of a micro-step, in order. Those of a layer come once for each: what lives from one layer to the
 * next is used in all of them. */
enum stage { INPUT, EMBED, ATTENTION, MLP, HEAD, BACK_MLP, BACK_ATTENTION, BACK_EMBED, RESULT };

enum extent { ONE, ROWS, HIDDEN, Q_WIDTH, KV_WIDTH, INTER, HEADS, KV_HEADS, FREQUENCIES };
enum type { ACT, F32, I32 };

struct line {
    const char *name;
    enum type type;
    enum extent rows, cols;
    enum stage first, last; /* from INPUT to RESULT: kept from step to step as well */
    bool per_layer; /* each layer keeps its own, through all other layers; else they share it */
    size_t pointer; /* in struct pass_buffers, or in each struct layer_buffers */
    bool in_layers;
};

#define AT(member)    offsetof(struct pass_buffers, member), false
#define LAYER(member) offsetof(struct layer_buffers, member), true

/* clang-format off */
static const struct line lines[] = {
    {"token", I32, ROWS, ONE, INPUT, RESULT, false, AT(token)}, /* these four are one copy */
    {"target", I32, ROWS, ONE, INPUT, RESULT, false, AT(target)},
    {"order", I32, ROWS, ONE, INPUT, RESULT, false, AT(order)},
    {"scale", F32, ONE, ONE, INPUT, RESULT, false, AT(scale)},
    {"position", I32, ROWS, ONE, INPUT, RESULT, false, AT(position)},
    {"sequence", I32, ROWS, ONE, INPUT, RESULT, false, AT(sequence)},
    {"previous", I32, ROWS, ONE, INPUT, RESULT, false, AT(previous)},
    {"frequencies", F32, FREQUENCIES, ONE, INPUT, RESULT, false, AT(inv_freq)},
    {"loss", F32, ONE, ONE, INPUT, RESULT, false, AT(loss)},
    {"nll", F32, ROWS, ONE, INPUT, RESULT, false, AT(nll)},
    {"stream", ACT, ROWS, HIDDEN, EMBED, BACK_EMBED, true, LAYER(stream)},
    {"mid", ACT, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER(mid)},
    {"q", ACT, ROWS, Q_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(q)},
    {"k", ACT, ROWS, KV_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(k)},
    {"v", ACT, ROWS, KV_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(v)},
    {"attn", ACT, ROWS, Q_WIDTH, ATTENTION, BACK_ATTENTION, true, LAYER(attn)},
    {"lse", F32, ROWS, HEADS, ATTENTION, BACK_ATTENTION, true, LAYER(lse)},
    {"q rstd", F32, ROWS, HEADS, ATTENTION, BACK_ATTENTION, true, LAYER(q_rstd)},
    {"k rstd", F32, ROWS, KV_HEADS, ATTENTION, BACK_ATTENTION, true, LAYER(k_rstd)},
    {"act", ACT, ROWS, INTER, ATTENTION, BACK_ATTENTION, true, LAYER(act)},
    {"embedding", ACT, ROWS, HIDDEN, EMBED, BACK_EMBED, false, AT(embedding)},
    {"mix", ACT, ROWS, HIDDEN, EMBED, BACK_EMBED, true, LAYER(mix)},
    {"attn in", ACT, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER(attn_in)},
    {"mlp in", ACT, ROWS, HIDDEN, ATTENTION, BACK_ATTENTION, true, LAYER(mlp_in)},
    {"normed", ACT, ROWS, HIDDEN, HEAD, HEAD, false, AT(normed)},
    {"final", ACT, ROWS, HIDDEN, HEAD, HEAD, false, AT(final)},
    {"dnormed", ACT, ROWS, HIDDEN, HEAD, BACK_EMBED, false, AT(dnormed)},
    {"dstream", ACT, ROWS, HIDDEN, HEAD, BACK_EMBED, false, AT(dstream)},
    {"dmiddle", ACT, ROWS, HIDDEN, HEAD, BACK_ATTENTION, false, AT(dmiddle)},
    {"dx0", ACT, ROWS, HIDDEN, BACK_MLP, BACK_EMBED, false, AT(dx0)},
    {"dact", ACT, ROWS, INTER, BACK_MLP, BACK_MLP, false, AT(dact)},
    {"dattn", ACT, ROWS, Q_WIDTH, BACK_ATTENTION, BACK_ATTENTION, false, AT(dattn)},
    {"dq", ACT, ROWS, Q_WIDTH, BACK_ATTENTION, BACK_ATTENTION, false, AT(dq)},
    {"dk", ACT, ROWS, KV_WIDTH, BACK_ATTENTION, BACK_ATTENTION, false, AT(dk)},
    {"dv", ACT, ROWS, KV_WIDTH, BACK_ATTENTION, BACK_ATTENTION, false, AT(dv)},
};
/* clang-format on */

enum { LINES = sizeof lines / sizeof *lines, INPUTS = 4, ALIGN = 256 };

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
    default: return 1;
    }
    /* clang-format on */
}

static size_t line_bytes(const struct activations *a, const struct line *line)
{
    size_t element = line->type == ACT ? dtype_info(a->dtype)->block_bytes : 4;
    size_t bytes = element * (size_t)(extent_of(a, line->rows) * extent_of(a, line->cols));
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_in_layers(const struct line *line, size_t pointer)
{
    return line->in_layers && line->pointer == pointer;
}

/* How many of it there are. Behind the last layer there is one more stream; norms that are made
 * again share one place, those of attention and of the MLP. */
static int64_t copies(const struct activations *a, const struct line *line)
{
    const int64_t layers = a->recipe->config.n_layers;
    const bool act = is_in_layers(line, offsetof(struct layer_buffers, act));
    const bool mix = is_in_layers(line, offsetof(struct layer_buffers, mix));
    const bool attn_in = is_in_layers(line, offsetof(struct layer_buffers, attn_in));
    const bool mlp_in = is_in_layers(line, offsetof(struct layer_buffers, mlp_in));
    if (!line->per_layer) return 1;
    if (act && a->recompute >= RECOMPUTE_WIDE) return 1;
    if (mix && a->recipe->config.gpt.plain) return 1; /* for embeddings alone */
    if ((mix || attn_in) && a->recompute >= RECOMPUTE_NORMS) return 1;
    if (mlp_in && a->recompute >= RECOMPUTE_NORMS) return 0;
    return layers + is_in_layers(line, offsetof(struct layer_buffers, stream));
}

static void point(struct activations *a, const struct line *line, int64_t layer, char *to)
{
    char *in = line->in_layers ? (char *)&a->at.layers[layer] : (char *)&a->at;
    memcpy(in + line->pointer, &to, sizeof to);
}

static void point_all(struct activations *a, const struct line *line, char *to)
{
    const int64_t n = copies(a, line), layers = a->recipe->config.n_layers;
    if (!line->in_layers) {
        point(a, line, 0, to);
        return;
    }
    for (int64_t i = 0; n > 0 && i < (n == 1 ? layers : n); i++)
        point(a, line, i, to + (n == 1 ? 0 : (size_t)i * line_bytes(a, line)));
}

struct place {
    const struct line *line;
    size_t begin, end;
};

/* The lowest place that nothing has which is used at the same time. */
static size_t find_place(const struct place *places, int n, const struct line *line, size_t bytes)
{
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const struct place *p = &places[i];
        bool together = line->first <= p->line->last && p->line->first <= line->last;
        if (!together || at >= p->end || p->begin >= at + bytes) continue;
        at = p->end;
        i = -1; /* what it met before may be here as well */
    }
    return at;
}

static bool lasts(const struct line *line)
{
    return line->first == INPUT;
}

void activations_place(struct activations *a, void *memory)
{
    struct place places[LINES];
    char *base = memory;
    size_t top = 0, inputs = 0, shared = 0;
    int n = 0;
    for (int i = 0; i < LINES; i++) {
        if (!lasts(&lines[i])) continue;
        point_all(a, &lines[i], base + top);
        top += line_bytes(a, &lines[i]);
        if (i < INPUTS) inputs = top;
    }
    for (int i = 0; i < LINES; i++) {
        if (lasts(&lines[i])) continue;
        size_t bytes = line_bytes(a, &lines[i]) * (size_t)copies(a, &lines[i]);
        size_t at = find_place(places, n, &lines[i], bytes);
        places[n++] = (struct place){&lines[i], at, at + bytes};
        point_all(a, &lines[i], base + top + at);
        if (at + bytes > shared) shared = at + bytes;
    }
    a->at.x0 = a->at.layers[0].stream; /* the first layer's stream is the smeared embedding */
    a->at.raw = a->at.layers[0].mix;   /* before and behind the layers */
    for (int64_t i = 0; a->recompute >= RECOMPUTE_NORMS && i < a->recipe->config.n_layers; i++)
        a->at.layers[i].mlp_in = a->at.layers[i].attn_in;
    a->input_bytes = inputs;
    a->size = top + shared;
}

enum sol_status activations_describe(struct activations *a)
{
    a->at = (struct pass_buffers){0};
    a->at.layers = calloc((size_t)a->recipe->config.n_layers + 1, sizeof *a->at.layers);
    if (!a->at.layers) return status_set(SOL_E_MEMORY, "no memory for a table of activations");
    activations_place(a, plan_nowhere);
    return SOL_OK;
}

void activations_free(struct activations *a)
{
    free(a->at.layers);
    a->at.layers = NULL;
}

void activations_report(const struct activations *a,
                        void (*each)(void *arg, const char *name, size_t bytes), void *arg)
{
    for (int i = 0; i < LINES; i++)
        each(arg, lines[i].name, line_bytes(a, &lines[i]) * (size_t)copies(a, &lines[i]));
}
