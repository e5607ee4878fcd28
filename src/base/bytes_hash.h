/* A hash of short byte strings. */
#ifndef BASE_BYTES_HASH_H
#define BASE_BYTES_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t bytes_hash_mix(uint64_t h)
{
    h *= 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static inline uint64_t bytes_hash(const char *data, size_t length)
{
    uint64_t h = length, word;
    for (; length >= 8; data += 8, length -= 8) {
        memcpy(&word, data, 8);
        h = bytes_hash_mix(h ^ word);
    }
    word = 0;
    for (size_t i = 0; i < length; i++) word = word << 8 | (unsigned char)data[i];
    return bytes_hash_mix(bytes_hash_mix(h ^ word));
}

#endif
