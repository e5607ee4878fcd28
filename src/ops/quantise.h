/* What the reference of quantise and its variants share: what is of a whole matrix. */
#ifndef OPS_QUANTISE_H
#define OPS_QUANTISE_H

#include <float.h>

#include "ops/train_args.h"

enum { QUANTISE_BLOCK = 16 }; /* of NVFP4 */

/* D of the random Hadamard transform: these signs are -1, bit j for number j of a block. Any fixed
 * random vector serves; this one is TransformerEngine's, so that both make the same bytes. */
enum { QUANTISE_NEGATIVE = 0xd7e8 };

static inline float quantise_sign(int j)
{
    return QUANTISE_NEGATIVE >> j & 1 ? -1.0f : 1.0f;
}

/* Rows and columns of what is quantised. */
static inline int64_t quantise_rows(const struct quantise_args *a)
{
    return a->features & QUANTISE_TRANSPOSED ? a->n : a->m;
}

static inline int64_t quantise_cols(const struct quantise_args *a)
{
    return a->features & QUANTISE_TRANSPOSED ? a->m : a->n;
}

/* From amax: what takes a block's amax to its scale, and a block's scale back to numbers. */
struct nvfp4_factors {
    float to_scale, from_scale;
};

static inline struct nvfp4_factors nvfp4_factors_of(float amax)
{
    float encode = 2688.0f / amax;
    if (!(encode <= FLT_MAX)) encode = FLT_MAX;
    return (struct nvfp4_factors){encode * (1.0f / 6.0f), 1.0f / encode};
}

static inline float fp8_largest(enum dtype format)
{
    return format == DTYPE_FP8_E4M3 ? 448.0f : 57344.0f;
}

/* What takes `amax` to the largest number; 0 where that says nothing. */
static inline float fp8_scale_for(enum dtype format, float amax)
{
    const float scale = fp8_largest(format) / amax;
    return amax <= 0 ? 0 : scale <= FLT_MAX ? scale : FLT_MAX;
}

#endif
