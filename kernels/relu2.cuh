/* relu2 and its gradient of one number. Device code only. */
#ifndef KERNELS_RELU2_CUH
#define KERNELS_RELU2_CUH

#include "common.cuh"
#include "inline.cuh"

/* Written so that a NaN passes through. */
INLINE float relu_squared(float x)
{
    x = x < 0 ? 0 : x;
    return x * x;
}

/* By y = relu_squared(x), times d. */
INLINE float relu_squared_slope(float y, float d)
{
    return 2 * sqrtf(y) * d;
}

#endif
