/* SwiGLU for results that are rounded to 16 bits. */
#ifndef KERNELS_SWIGLU_SWIGLU_NEAR_CUH
#define KERNELS_SWIGLU_SWIGLU_NEAR_CUH

/* As swiglu of swiglu.cuh, but with a division within two units of the last place. The exact one
 * calls a function where expf is huge, and then takes longer than a tile's products. */
__device__ inline float swiglu_near(float gate, float up, float alpha, float limit)
{
    float g = gate > limit ? limit : gate;
    float u = up > limit ? limit : up < -limit ? -limit : up;
    return __fdividef(g, 1 + expf(-alpha * g)) * (u + 1);
}

#endif
