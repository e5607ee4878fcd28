/* The alphabet of GPT-2, in which vocabularies are written down: one visible character for every
 * byte. Printable Latin-1 stands for itself; the other 68 bytes, in order, are 256, 257, ... */
#ifndef TOK_ALPHABET_H
#define TOK_ALPHABET_H

#include <stddef.h>
#include <stdint.h>

/* Spelling to bytes. `out` has room for `length`, since the alphabet never takes less than it
 * gives. Returns the number of bytes, or -1 for a character outside the alphabet. */
int64_t alphabet_read(const char *text, size_t length, char *out);

/* Bytes to spelling. `out` has room for 2 * length. Returns the spelling's length; there is no
 * terminating zero. */
size_t alphabet_write(const char *bytes, size_t length, char *out);

/* The bytes in the order of their characters: the first 256 tokens of o200k, and of what `sol tok
 * train` makes. */
void alphabet_order(uint8_t bytes[256]);

#endif
