#include "model/fit.h"

#include "ops/batch.h"

static size_t padded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int64_t round_to(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Of all sequences. */
static int64_t layer_positions(const struct model_config *c, const struct fit_params *p,
                               int64_t batch, int64_t layer)
{
    int64_t window = model_layer_window(c, layer);
    if (window) {
        int64_t ring = window - 1 + batch;
        return p->sequences * round_to(ring < p->context ? ring : p->context, KV_BLOCK);
    }
    int64_t most = p->sequences * round_to(p->context, KV_PAGE);
    int64_t wanted = round_to(p->positions, KV_PAGE);
    return wanted && wanted < most ? wanted : most;
}

/* What the composed ops take between their primitives (src/ops/<composite>.c; a plan uses the
 * blocks of one composite again for the next), and the activations that a gemm rounds, 2 bytes
 * each. */
static size_t scratch_bytes(const struct model_config *c, size_t rows)
{
    size_t slots = rows * (size_t)c->top_k, hidden = (size_t)c->hidden;
    size_t widest = (size_t)(c->hidden > c->intermediate ? c->hidden : c->intermediate);
    size_t heads = (size_t)(c->n_heads * c->head_dim), kv = (size_t)(c->n_kv_heads * c->head_dim);
    size_t dense = rows * (hidden > heads ? hidden : heads), experts = slots * widest;
    return padded(4 * slots * (size_t)c->intermediate) + padded(4 * experts) +
           padded(4 * rows * hidden) + 2 * padded(4 * rows * kv) +
           padded(2 * (dense > experts ? dense : experts));
}

void fit_compute(const struct model_config *c, size_t weight_bytes, const struct fit_params *p,
                 struct fit *out)
{
    int64_t batch = p->batch, outputs = p->outputs;
    if (batch > p->context * p->sequences) batch = p->context * p->sequences;
    if (outputs > batch) outputs = batch;
    size_t rows = (size_t)batch, width = (size_t)(c->n_heads * c->head_dim);
    size_t slots = rows * (size_t)c->top_k;
    *out = (struct fit){.weights = weight_bytes};
    for (int64_t n = 0; n < c->n_layers; n++)
        out->cache +=
            2 * padded((size_t)(c->n_kv_heads * layer_positions(c, p, batch, n) * c->head_dim) *
                       dtype_info(p->kv_dtype)->block_bytes);
    out->buffers = 2 * padded(rows * (size_t)c->hidden * 4) + 2 * padded(rows * width * 4) +
                   padded((size_t)(outputs * c->vocab) * 4) + 4 * padded(slots * 4) +
                   padded((size_t)(c->n_experts + 1) * 4) + padded(4 * rows * 4) +
                   padded((size_t)c->head_dim / 2 * 4) +
                   padded((size_t)(p->sequences * round_to(p->context, KV_PAGE) / KV_PAGE) * 4);
    out->scratch = scratch_bytes(c, rows);
    out->total = out->weights + out->cache + out->buffers + out->scratch;
}

int64_t fit_longest_context(const struct model_config *config, size_t weight_bytes,
                            const struct fit_params *params, size_t memory, int64_t longest)
{
    int64_t low = 0, high = longest; /* low fits, high + 1 does not */
    while (low < high) {
        struct fit_params p = *params;
        struct fit fit;
        p.context = low + (high - low + 1) / 2;
        fit_compute(config, weight_bytes, &p, &fit);
        if (fit.total <= memory)
            low = p.context;
        else
            high = p.context - 1;
    }
    return low;
}
