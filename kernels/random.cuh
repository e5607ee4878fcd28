/* Random bits that a key and a counter alone decide: Philox4x32 of ten rounds (Salmon et al., SC
 * 2011), as rng_philox of the host. */
#pragma once

#include "inline.cuh"
#include "random_args.h"

struct random_words {
    uint32_t of[4];
};

INLINE random_words philox(const random_key &key, uint32_t block, uint32_t stream)
{
    uint32_t a = block, b = key.micro_batch, c = key.step, d = stream;
    uint32_t k0 = key.seed[0], k1 = key.seed[1];
#pragma unroll
    for (int i = 0; i < 10; i++) {
        uint64_t x = (uint64_t)0xd2511f53u * a, y = (uint64_t)0xcd9e8d57u * c;
        a = (uint32_t)(y >> 32) ^ b ^ k0;
        b = (uint32_t)y;
        c = (uint32_t)(x >> 32) ^ d ^ k1;
        d = (uint32_t)x;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return {{a, b, c, d}};
}
