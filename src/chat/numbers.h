/* JSON numbers as openai-harmony's reader (serde_json) takes and prints them: defaults in schemas
 * are printed into the prompt, and another last digit is another token. Whole numbers are kept
 * where 64 bits hold them (signed or unsigned); all others are doubles, made by the reader's own
 * quick rule, which for more than 15 digits may be one unit off the nearest double. */
#ifndef CHAT_NUMBERS_H
#define CHAT_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum number_kind { NUMBER_NONE, NUMBER_INT, NUMBER_BIG, NUMBER_REAL };

struct number {
    enum number_kind kind; /* NONE: no JSON number, or beyond what a double holds */
    int64_t integer;
    uint64_t big; /* above INT64_MAX */
    double real;
};

/* The number that `text` begins with; *length is what it takes. */
struct number number_read(const char *text, size_t size, size_t *length);

enum { NUMBER_TEXT_MAX = 40 };
/* A double with the fewest digits that give it back: 1.0, 0.00001, 1e16, 1.5e-7. Finite. Returns
 * the length. */
size_t number_print(double value, char out[NUMBER_TEXT_MAX]);

#endif
