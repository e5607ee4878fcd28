/* What rotary_norm and its backward op share. */
#ifndef OPS_ROTARY_NORM_H
#define OPS_ROTARY_NORM_H

#include <math.h>

#include "ops/args.h"

struct rotation {
    double cosine, sine;
};

/* Of pair (d, d + head_dim / 2) at a position. */
static inline struct rotation rotary_norm_at(const float *inv_freq, int32_t position, int64_t d,
                                             bool rounded)
{
    const double angle = (double)position * (double)inv_freq[d];
    struct rotation r = {cos(angle), sin(angle)};
    if (rounded) {
        r.cosine = (double)bf16_to_f32(bf16_from_f32((float)r.cosine));
        r.sine = (double)bf16_to_f32(bf16_from_f32((float)r.sine));
    }
    return r;
}

#endif
