/* Python's random.Random: the Mersenne Twister MT19937 (Matsumoto and Nishimura), seeded by a
 * number, and what CPython 3.11's random.py makes of its bits. For drawing what nanochat draws. */
#ifndef TRAIN_PYTHON_RANDOM_H
#define TRAIN_PYTHON_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct python_random {
    uint32_t state[624];
    int at;
};

void python_random_seed(struct python_random *random, uint32_t seed);   /* random.Random(seed) */
uint32_t python_random_below(struct python_random *random, uint32_t n); /* randrange(n), n >= 1 */
/* sample(range(n), k), k <= n. */
enum sol_status python_random_sample(struct python_random *random, uint32_t n, uint32_t k,
                                     uint32_t *out);
/* Where shuffle() of a list of n puts things: out[i] is the former index of what is at i. */
void python_random_shuffle(struct python_random *random, uint32_t n, uint32_t *out);

#endif
