/* A line of the table of activations (activations.c; an architecture's own: its forward_<name>.c).
 */
#ifndef TRAIN_ACTIVATION_LINES_H
#define TRAIN_ACTIVATION_LINES_H

#include "train/pass.h"

/* Of a micro-step, in order. Those of a layer come once for each: what lives from one layer to the
 * next is used in all of them. */
enum stage { INPUT, EMBED, ATTENTION, MLP, HEAD, BACK_MLP, BACK_ATTENTION, BACK_EMBED, RESULT };

/* SLOTS: rows * top_k; GROUP_ENDS: n_experts + 1; WIDEST: of what
 * products with weights read or make; KEY: words of a struct random_key */
/* clang-format off */
enum extent {
    ONE, ROWS, HIDDEN, Q_WIDTH, KV_WIDTH, INTER, HEADS, KV_HEADS, FREQUENCIES, EXPERTS, TOP_K, SLOTS, GROUP_ENDS,
    WIDEST, KEY
};
/* clang-format on */
enum type { ACT, F32, I32, SMALL, TURNED }; /* TURNED: codes that FP8 keeps for dW */

struct activation_line {
    const char *name;
    enum type type;
    enum extent rows, cols;
    enum stage first, last; /* from INPUT to RESULT: kept from step to step as well */
    bool per_layer; /* each layer keeps its own, through all other layers; else they share it */
    size_t pointer; /* in struct pass_buffers, or in each struct layer_buffers */
    bool in_layers;
    enum recompute again; /* from there on, unless NOTHING, layers share a place */
    bool until_turned;    /* where TURNED are kept, too */
};

#define AT(member)             offsetof(struct pass_buffers, member), false, RECOMPUTE_NOTHING, false
#define LAYER(member)          LAYER_AGAIN(member, RECOMPUTE_NOTHING)
#define LAYER_AGAIN(member, n) offsetof(struct layer_buffers, member), true, n, false
#define LAYER_UNTIL_TURNED(member)                                                                 \
    offsetof(struct layer_buffers, member), true, RECOMPUTE_NOTHING, true

#endif
