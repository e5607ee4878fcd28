/* Small reproducible random generator (xoshiro256++ seeded by splitmix64; Blackman and Vigna). The
 * same seed gives the same stream on every machine. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state[4];
};

void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);
double rng_uniform(struct rng *rng); /* [0, 1) with 53 bits */
float rng_normal(struct rng *rng);   /* mean 0, sd 1 */
/* [n] of sd `scale`, in half of the time that rng_normal takes; other ones. */
void rng_normals(struct rng *rng, float scale, float *out, int64_t n);
int64_t rng_range(struct rng *rng, int64_t lo, int64_t hi); /* lo..hi inclusive, unbiased enough */

/* Philox4x32 of ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
 * 128 bits that key and counter alone decide, so that whoever asks, in whatever order, gets the
 * same. */
void rng_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
