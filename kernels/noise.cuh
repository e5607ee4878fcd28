/* Noise that a key and an index alone decide, as rng_noise of the host (src/base/rng.h). */
#pragma once

#include "inline.cuh"
#include "types.h"

/* Number `index` of splitmix64's stream from `key` on. */
INLINE uint64_t noise_bits(uint64_t key, uint64_t index)
{
    uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* In (0, 1). */
INLINE double noise_of(uint64_t key, uint64_t index)
{
    return ((double)(noise_bits(key, index) >> 12) + 0.5) * 0x1p-52;
}

/* The same of the upper half of the bits alone: not more, but for its rounding to float32. */
INLINE float noise_below(uint64_t key, uint64_t index)
{
    return (float)(uint32_t)(noise_bits(key, index) >> 32) * 0x1p-32f;
}
