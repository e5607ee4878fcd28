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

/* Number `index`, from 0, of splitmix64's stream from `seed` on. Here, so that loops over it are
 * vectorised. */
static inline uint64_t rng_splitmix(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* The same in (0, 1), of 52 bits. */
static inline double rng_noise(uint64_t key, uint64_t index)
{
    return ((double)(rng_splitmix(key, index) >> 12) + 0.5) * 0x1p-52;
}
/* -log(1 - v) for v of rng_noise: exponentially distributed, mean 1, above 0. The same bits on
 * every machine. */
double rng_exponential(double v);

/* Philox4x32 of ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
 * 128 bits that key and counter alone decide, so that whoever asks, in whatever order, gets the
 * same. */
void rng_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
