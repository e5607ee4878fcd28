#include "train/python_random.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/status.h"

enum { N = 624, M = 397 };

/* init_by_array with a key of one word. */
void python_random_seed(struct python_random *random, uint32_t seed)
{
    uint32_t *s = random->state, i = 1;
    s[0] = 19650218;
    for (uint32_t k = 1; k < N; k++) s[k] = 1812433253u * (s[k - 1] ^ s[k - 1] >> 30) + k;
    for (int k = 0; k < 2 * N - 1; k++) {
        uint32_t before = s[i - 1] ^ s[i - 1] >> 30;
        s[i] = k < N ? (s[i] ^ before * 1664525u) + seed : (s[i] ^ before * 1566083941u) - i;
        if (++i < N) continue;
        s[0] = s[N - 1];
        i = 1;
    }
    s[0] = 0x80000000u;
    random->at = N;
}

static uint32_t next_word(struct python_random *random)
{
    uint32_t *s = random->state;
    if (random->at == N) {
        for (int k = 0; k < N; k++) {
            uint32_t y = (s[k] & 0x80000000u) | (s[(k + 1) % N] & 0x7fffffffu);
            s[k] = s[(k + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        random->at = 0;
    }
    uint32_t y = s[random->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* _randbelow_with_getrandbits */
uint32_t python_random_below(struct python_random *random, uint32_t n)
{
    int bits = 32 - __builtin_clz(n);
    for (;;) {
        uint32_t r = next_word(random) >> (32 - bits);
        if (r < n) return r;
    }
}

enum sol_status python_random_sample(struct python_random *random, uint32_t n, uint32_t k,
                                     uint32_t *out)
{
    /* Python takes from a pool where that is smaller than a set would be. */
    uint64_t set = 1;
    while (set < 3 * (uint64_t)k) set *= 4;
    set = 21 + (k > 5 ? set : 0);
    if (n > set) {
        for (uint32_t i = 0; i < k; i++) {
            bool taken = true;
            while (taken) {
                out[i] = python_random_below(random, n);
                taken = false;
                for (uint32_t j = 0; j < i; j++) taken = taken || out[j] == out[i];
            }
        }
        return SOL_OK;
    }
    uint32_t *pool = malloc((n + 1) * sizeof *pool);
    if (!pool) return status_set(SOL_E_MEMORY, "no memory to draw from %u", n);
    for (uint32_t i = 0; i < n; i++) pool[i] = i;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t j = python_random_below(random, n - i);
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    free(pool);
    return SOL_OK;
}

void python_random_shuffle(struct python_random *random, uint32_t n, uint32_t *out)
{
    for (uint32_t i = 0; i < n; i++) out[i] = i;
    for (uint32_t i = n; i-- > 1;) {
        uint32_t j = python_random_below(random, i + 1), kept = out[i];
        out[i] = out[j];
        out[j] = kept;
    }
}
