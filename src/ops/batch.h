/* What one step of the model works on: rows of tokens from any mix of sequences, each at its own
 * position, and the per-layer key/value memory they attend to. */
#ifndef OPS_BATCH_H
#define OPS_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "format/dtype.h"

/* Rows of one sequence appear in order of position, without gaps, and follow what the cache holds.
 */
struct batch {
    int64_t n_tokens;
    int32_t *token;    /* [n_tokens] */
    int32_t *position; /* [n_tokens] from 0 */
    int32_t *sequence; /* [n_tokens] cache slot, 0..n_sequences-1 */
    int64_t n_outputs;
    int32_t *output_rows; /* [n_outputs] rows whose logits are wanted */
    /* The same where costs can read it, when the arrays above are a GPU's; NULL: they are here. */
    const struct batch *host;
};

static inline const struct batch *batch_on_host(const struct batch *b)
{
    return b->host ? b->host : b;
}

/* Positions per block of the key cache: the widest vector in float32 lanes, twice. */
enum { KV_BLOCK = 32 };

/* Keys and values of one layer. Position p lives in slot p % capacity: a full-attention layer has
 * capacity for the whole context, a sliding one is a ring of at least window - 1 + the longest run
 * of new rows. capacity is a multiple of KV_BLOCK. v  [n_sequences][n_kv_heads][capacity][head_dim]
 *   k  [n_sequences][n_kv_heads][capacity / KV_BLOCK][head_dim][KV_BLOCK]: transposed within a
 * block, so that neighbouring positions are neighbouring lanes and a score needs no sum across
 * lanes. */
struct kv_layer {
    void *k, *v;
    enum dtype dtype; /* F32, F16 or BF16 */
    int64_t n_sequences, n_kv_heads, capacity, head_dim;
};

/* Index, in elements, of position p's value row (its head_dim elements follow). */
static inline int64_t kv_v_index(const struct kv_layer *kv, int64_t sequence, int64_t head,
                                 int64_t p)
{
    return ((sequence * kv->n_kv_heads + head) * kv->capacity + p % kv->capacity) * kv->head_dim;
}

/* Index, in elements, of element 0 of position p's key (element d is KV_BLOCK * d further). */
static inline int64_t kv_k_index(const struct kv_layer *kv, int64_t sequence, int64_t head,
                                 int64_t p)
{
    int64_t slot = p % kv->capacity, block = slot / KV_BLOCK;
    return ((sequence * kv->n_kv_heads + head) * kv->capacity + block * KV_BLOCK) * kv->head_dim +
           slot % KV_BLOCK;
}

#endif
