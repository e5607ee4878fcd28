/* What a micro-step reads and writes besides the parameters. One table (activations.c) says of
 * every buffer its shape, its type, when it is used, and whether each layer keeps its own until its
 * backward pass; from it come places, the report of memory, and how many sequences fit. */
#ifndef TRAIN_ACTIVATIONS_H
#define TRAIN_ACTIVATIONS_H

#include "train/pass.h"

struct activations {
    const struct train_recipe *recipe;
    int64_t sequences; /* of a micro-batch */
    enum dtype dtype;
    enum recompute recompute;
    bool on_gpu;        /* where costs cannot read how many rows an expert has */
    size_t size;        /* bytes of all */
    size_t input_bytes; /* of token, target, order, scale and key, which lie together from `token`
                           on */
    struct pass_buffers at;
    int32_t *even; /* on a GPU, of experts: group_offsets for costs, as many rows for each */
};

/* Sizes; nothing is allocated but tables. recipe, sequences, dtype, recompute and on_gpu are set.
 */
enum sol_status activations_describe(struct activations *a);
/* Every pointer: into `size` bytes at `memory`. */
void activations_place(struct activations *a, void *memory);
void activations_free(struct activations *a); /* the tables */
/* Calls `each` for every line of the table, all layers' as one. */
void activations_report(const struct activations *a,
                        void (*each)(void *arg, const char *name, size_t bytes), void *arg);

#endif
