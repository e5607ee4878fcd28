/* Only integer arithmetic, IEEE basic operations and sqrt are used, never libm's log or cos, whose
 * last bits differ between C libraries: the stream is the same everywhere, normals included. */
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static uint64_t rotate_left(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

void rng_seed(struct rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) rng->state[i] = rng_splitmix(seed, (uint64_t)i);
}

uint64_t rng_next(struct rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double rng_uniform(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

/* log(x) for a normal x in (0, 1]: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), log(m) = 2
 * atanh((m-1)/(m+1)). |s| < 0.172, so that ten odd terms reach the last bits of a double. */
static double natural_log(double x)
{
    static const double odd[] = {1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    enum { TERMS = sizeof odd / sizeof *odd };
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1022;
    bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1022 << 52; /* m in [1/2, 1) */
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m < 0.70710678118654752) {
        m *= 2;
        exponent--;
    }
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = 0; k < TERMS; k++) sum = sum * square + odd[k];
    return 2 * s * sum + exponent * 0.69314718055994531;
}

double rng_exponential(double v)
{
    return -natural_log(1 - v);
}

/* Marsaglia's polar method. */
static void normal_pair(struct rng *rng, double pair[2])
{
    double u, v, square;
    do {
        u = 2 * rng_uniform(rng) - 1;
        v = 2 * rng_uniform(rng) - 1;
        square = u * u + v * v;
    } while (square >= 1 || square == 0);
    const double length = sqrt(-2 * natural_log(square) / square);
    pair[0] = u * length;
    pair[1] = v * length;
}

/* The second value is dropped: keeping it would make the state larger than the generator's. */
float rng_normal(struct rng *rng)
{
    double pair[2];
    normal_pair(rng, pair);
    return (float)pair[0];
}

void rng_normals(struct rng *rng, float scale, float *out, int64_t n)
{
    double pair[2];
    for (int64_t i = 0; i < n; i++) {
        if (i % 2 == 0) normal_pair(rng, pair);
        out[i] = scale * (float)pair[i % 2];
    }
}

int64_t rng_range(struct rng *rng, int64_t lo, int64_t hi)
{
    assert(lo <= hi);
    uint64_t span = (uint64_t)hi - (uint64_t)lo + 1;
    uint64_t bits = rng_next(rng);
    if (span == 0) return (int64_t)bits; /* all of int64_t */
    uint64_t offset = (uint64_t)(((unsigned __int128)bits * span) >> 64);
    return (int64_t)((uint64_t)lo + offset);
}

void rng_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    enum { ROUNDS = 10 };
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t x = 0xd2511f53ull * a, y = 0xcd9e8d57ull * c;
        a = (uint32_t)(y >> 32) ^ b ^ k0;
        b = (uint32_t)y;
        c = (uint32_t)(x >> 32) ^ d ^ k1;
        d = (uint32_t)x;
        k0 += 0x9e3779b9u; /* the golden ratio, and sqrt(3) - 1 */
        k1 += 0xbb67ae85u;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}
