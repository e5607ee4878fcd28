/* Noise that a key and an index alone decide, as rng_noise of the host (src/base/rng.h). */
#pragma once

#include "inline.cuh"
#include "types.h"

/* In (0, 1): number `index` of splitmix64's stream from `key` on. */
INLINE double noise_of(uint64_t key, uint64_t index)
{
    uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return ((double)(z >> 12) + 0.5) * 0x1p-52;
}
