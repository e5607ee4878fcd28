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
    int32_t *previous; /* [n_tokens] the token before each in its sequence; -1: it is the first */
    /* The same where costs can read it, when the arrays above are a GPU's; NULL: they are here. */
    const struct batch *host;
};

static inline const struct batch *batch_on_host(const struct batch *b)
{
    return b->host ? b->host : b;
}

enum {
    /* Positions per block of the key cache: the widest vector in float32 lanes, twice. */
    KV_BLOCK = 32,
    /* Positions of a page: a step of attention_prefill.cu, and what the warps of
     * attention_decode.cu take at once, so that either looks up one page a step. Half a page is
     * what a sequence leaves unused on average. */
    KV_PAGE = 128,
};

/* Keys and values of one layer. A sequence has room for `capacity` positions, in one of two ways.
 *   A ring (pages is NULL): position p lives in slot p % capacity. capacity is a multiple of
 * KV_BLOCK, and at least window - 1 + the longest run of new rows.
 *   v  [n_sequences][n_kv_heads][capacity][head_dim]
 *   k  [n_sequences][n_kv_heads][capacity / KV_BLOCK][head_dim][KV_BLOCK]: transposed within a
 * block, so that neighbouring positions are neighbouring lanes and a score needs no sum across
 * lanes.
 *   Pages, of any sequence in any order: position p lives in slot p % KV_PAGE of page
 * pages[sequence][p / KV_PAGE]. capacity is a multiple of KV_PAGE. A page is laid out as a ring of
 * one sequence with KV_PAGE positions is:
 *   v  [n_pages][n_kv_heads][KV_PAGE][head_dim]
 *   k  [n_pages][n_kv_heads][KV_PAGE / KV_BLOCK][head_dim][KV_BLOCK]
 * The table is data that changes between steps, never while one runs. An entry is only valid where
 * the sequence has positions, those of the present step included. */
struct kv_layer {
    void *k, *v;
    enum dtype dtype; /* F32, F16 or BF16 */
    uint32_t pad;     /* no hidden padding: ops/args.h */
    int64_t n_sequences, n_kv_heads, capacity, head_dim;
    const int32_t *pages; /* [n_sequences][capacity / KV_PAGE], where k and v are; or NULL */
    int64_t n_pages;      /* 0 for a ring */
};

/* Numbers in k, and in v. */
static inline int64_t kv_elements(const struct kv_layer *kv)
{
    int64_t positions = kv->n_pages ? kv->n_pages * KV_PAGE : kv->n_sequences * kv->capacity;
    return positions * kv->n_kv_heads * kv->head_dim;
}

/* Where position p of a sequence and head lies, in rows of head_dim elements. The other positions
 * of its block follow it, and those of its page. */
static inline int64_t kv_row(const struct kv_layer *kv, int64_t sequence, int64_t head, int64_t p)
{
    if (!kv->pages) return (sequence * kv->n_kv_heads + head) * kv->capacity + p % kv->capacity;
    int64_t page = kv->pages[sequence * (kv->capacity / KV_PAGE) + p / KV_PAGE];
    return (page * kv->n_kv_heads + head) * KV_PAGE + p % KV_PAGE;
}

/* Index, in elements, of position p's value row (its head_dim elements follow). */
static inline int64_t kv_v_index(const struct kv_layer *kv, int64_t sequence, int64_t head,
                                 int64_t p)
{
    return kv_row(kv, sequence, head, p) * kv->head_dim;
}

/* Index, in elements, of element 0 of position p's key (element d is KV_BLOCK * d further). */
static inline int64_t kv_k_index(const struct kv_layer *kv, int64_t sequence, int64_t head,
                                 int64_t p)
{
    int64_t row = kv_row(kv, sequence, head, p), in_block = row % KV_BLOCK;
    return (row - in_block) * kv->head_dim + in_block;
}

#endif
