#include "tok/alphabet.h"

#include <stdbool.h>

#include "tok/pretokenize.h"

enum {
    FIRST_MOVED = 256,
    N_MOVED = 68,
};

/* 0..32, 127..160 and 173. */
static bool stands_for_itself(unsigned byte)
{
    return (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
}

static unsigned moved_byte(unsigned index)
{
    if (index <= 32) return index;
    return index < N_MOVED - 1 ? index - 33 + 127 : 173;
}

static unsigned moved_code(unsigned byte)
{
    if (byte <= 32) return FIRST_MOVED + byte;
    return byte == 173 ? FIRST_MOVED + N_MOVED - 1 : FIRST_MOVED + 33 + byte - 127;
}

int64_t alphabet_read(const char *text, size_t length, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < length; n++) {
        unsigned char c = (unsigned char)text[i];
        uint32_t code = c;
        int size = 1;
        if (c >= 0x80) size = utf8_decode(text + i, length - i, &code);
        if (size <= 0 || code >= FIRST_MOVED + N_MOVED) return -1;
        if (code < FIRST_MOVED && !stands_for_itself(code)) return -1;
        out[n] = (char)(code < FIRST_MOVED ? code : moved_byte(code - FIRST_MOVED));
        i += (size_t)size;
    }
    return (int64_t)n;
}

size_t alphabet_write(const char *bytes, size_t length, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned byte = (unsigned char)bytes[i];
        unsigned code = stands_for_itself(byte) ? byte : moved_code(byte);
        if (code >= 0x80) out[n++] = (char)(0xc0 | code >> 6);
        out[n++] = (char)(code < 0x80 ? code : 0x80 | (code & 0x3f));
    }
    return n;
}

void alphabet_order(uint8_t bytes[256])
{
    int n = 0;
    for (unsigned byte = 0; byte < 256; byte++)
        if (stands_for_itself(byte)) bytes[n++] = (uint8_t)byte;
    for (unsigned i = 0; i < N_MOVED; i++) bytes[n++] = (uint8_t)moved_byte(i);
}
