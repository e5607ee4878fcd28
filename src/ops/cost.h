/* Parts of the costs of composites. */
#ifndef OPS_COST_H
#define OPS_COST_H

#include <stdbool.h>

#include "ops/args.h"
#include "ops/op.h"

static inline void cost_add(struct op_cost *sum, double flops, double bytes)
{
    sum->flops += flops;
    sum->bytes += bytes;
}

/* A product of `m` rows with the weights of `used` groups, and their biases; activations apart. */
static inline void cost_add_product(struct op_cost *sum, double m, const struct tensor *w,
                                    double used, bool bias)
{
    double share = used / (double)w->groups;
    cost_add(sum, 2 * m * (double)(w->rows * w->cols),
             share * (double)tensor_bytes(w) + (bias ? 4 * used * (double)w->rows : 0));
}

/* Groups that have rows. */
static inline double cost_groups_used(const int32_t *offsets, int64_t groups)
{
    double used = 0;
    for (int64_t g = 0; g < groups; g++) used += offsets[g + 1] > offsets[g];
    return used;
}

/* Rows of `m` that groups have: those of a rank's own experts may be fewer (ops/routing.h). All of
 * them as long as nobody has looked at what a GPU has. */
static inline double cost_groups_rows(const int32_t *offsets, int64_t groups, int64_t m)
{
    const int32_t rows = offsets[groups] - offsets[0];
    return rows > 0 ? (double)rows : (double)m;
}

#endif
