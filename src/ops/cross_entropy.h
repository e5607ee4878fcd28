/* What the references of cross_entropy and of its blocks share. */
#ifndef OPS_CROSS_ENTROPY_H
#define OPS_CROSS_ENTROPY_H

#include <math.h>

/* z of a logit, and dz / dlogit; cap 0: the logit itself. */
static inline double cross_entropy_capped(float cap, float logit)
{
    return cap > 0 ? (double)cap * tanh((double)logit / (double)cap) : (double)logit;
}

static inline double cross_entropy_slope(float cap, double z)
{
    return cap > 0 ? 1 - (z / (double)cap) * (z / (double)cap) : 1;
}

#endif
