/* Which experts a token has, and in which order their rows lie. */
#ifndef OPS_ROUTING_H
#define OPS_ROUTING_H

#include <stdint.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* What the router decided; written by route, read by the expert ops. Slot s = i * top_k + j is
 * token i's j-th choice. The grouped rows are the slots sorted by expert, by slot within one.
 * Of a rank that has some of the experts (own_experts) these are numbered from 0, expert and row of
 * a slot that others have are -1, and so there are fewer rows: what lies behind the last group's is
 * nobody's, with token_of_row 0. */
struct routing {
    float *weight;          /* [m][top_k] softmax over the chosen logits */
    int32_t *expert;        /* [m][top_k] by falling logit, the lower index first when equal */
    int32_t *group_offsets; /* [n_experts + 1] into the grouped rows */
    int32_t *token_of_row;  /* [m * top_k] token of each grouped row */
    int32_t *row_of_slot;   /* [m * top_k] grouped row of each slot */
    /* group_offsets, or all of them raised by one number, where costs can read them, when the
     * arrays above are a GPU's; of the layer that the engine last looked at (engine_set_trace).
     * NULL: group_offsets is here. */
    const int32_t *host_offsets;
    int64_t some_of; /* so many experts are those above; 0: there are no others */
};

/* Of `slots` as many as are here, on average, where `experts` are. */
static inline int64_t routing_rows(const struct routing *r, int64_t slots, int64_t experts)
{
    return r->some_of ? slots * experts / r->some_of : slots;
}

static inline const int32_t *routing_on_host(const struct routing *r)
{
    return r->host_offsets ? r->host_offsets : r->group_offsets;
}

#pragma GCC diagnostic pop

#endif
