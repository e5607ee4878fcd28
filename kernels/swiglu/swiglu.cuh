#ifndef KERNELS_SWIGLU_CUH
#define KERNELS_SWIGLU_CUH

/* fminf and fmaxf drop a NaN; here the comparisons are false for one, and it stays. */
__device__ inline float swiglu(float gate, float up, float alpha, float limit)
{
    float g = gate > limit ? limit : gate;
    float u = up > limit ? limit : up < -limit ? -limit : up;
    return g / (1 + expf(-alpha * g)) * (u + 1);
}

#endif
