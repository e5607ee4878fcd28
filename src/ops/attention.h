/* What the variants of attention and the keys of its tuning share. */
#ifndef OPS_ATTENTION_H
#define OPS_ATTENTION_H

#include <stdbool.h>

#include "ops/args.h"

/* Whether each row may read the cache for itself: there are at most two for each sequence that has
 * room, and if they are more than 128 all are outputs, so that no prompt is among them. Or they are
 * so few of one sequence, guesses that are checked, that the second cache holds what they read
 * again. Else kernels that take many rows of a sequence together read less. */
static inline bool attention_rows_apart(const struct attention_args *a)
{
    enum { FEW = 2, MANY = 128, CHECKED = 17, POSITIONS = 1 << 16 };
    const int64_t sequences = a->kv.n_sequences;
    const bool texts_go_on = a->m <= MANY || a->outputs == a->m;
    return (a->m <= FEW * sequences && texts_go_on) ||
           (a->m <= CHECKED && a->m * a->kv.capacity <= POSITIONS * sequences);
}

#endif
