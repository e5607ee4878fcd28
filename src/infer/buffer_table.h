/* A line of the table of buffers (buffers.c; an architecture's own: its forward_<name>.c). */
#ifndef INFER_BUFFER_TABLE_H
#define INFER_BUFFER_TABLE_H

#include "infer/buffers.h"

/* Of a step, in order; those between embed and head are a layer's. */
enum stage { INPUT, EMBED, ATTN_IN, ATTENTION, ATTN_OUT, FFN, HEAD, SAMPLE, RESULT };

/* clang-format off */
enum extent {
    ONE, ROWS, OUTPUTS, SLOTS, HIDDEN, WIDTH, INTERMEDIATE, FEATURES, LOGITS, PART, PARTS, GROUP_ENDS, OWN_SLOTS, OWN_ENDS,
    STEP_WORDS, FREQUENCIES, SEQUENCES,
    SEQUENCE_PAGES, VOCAB_WORDS, SCRATCH, KV_POSITIONS, KEPT_POSITIONS, KV_HEADS, HEAD_DIM
};
/* clang-format on */

enum type { F32, I32, KV }; /* KV: the cache's */

struct buffer_line {
    const char *name;
    enum type type;
    enum extent shape[3];           /* what is not said is ONE */
    enum stage first, last;         /* use; from INPUT to RESULT: kept from step to step as well */
    bool per_layer, kept, gpu_only; /* kept: of each layer too, what snapshots hold */
    size_t pointer;                 /* in struct buffers, or in each struct kv_layer */
    size_t host;                    /* in struct buffers; 0: the host has no copy */
};

#define AT(member)       offsetof(struct buffers, member)
#define AT_LAYER(member) offsetof(struct kv_layer, member)

#endif
