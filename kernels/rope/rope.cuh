/* The rotation of a pair, device code. */
#ifndef KERNELS_ROPE_CUH
#define KERNELS_ROPE_CUH

struct rotation {
    float sine, cosine;

    /* Whole turns are taken off in double; what is left, at most half a turn, float32 can do. */
    __device__ void set(double position, float inv_freq, float scale)
    {
        double turns = position * inv_freq * 0.15915494309189535;
        sincospif(2 * (float)(turns - rint(turns)), &sine, &cosine);
        sine *= scale, cosine *= scale;
    }
    __device__ void turn(float &low, float &high) const
    {
        float x = low, y = high;
        low = x * cosine - y * sine;
        high = y * cosine + x * sine;
    }
};

#endif
