/* Sets of characters, and how JSON spells them inside a string. */
#ifndef GRAMMAR_CHARS_H
#define GRAMMAR_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grammar/dfa.h"

enum { CHARS_LAST = 0x10ffff };

struct char_range {
    uint32_t lo, hi;
};

struct char_set {
    struct char_range *ranges;
    size_t count, capacity;
    bool no_memory; /* something is missing */
};

void chars_free(struct char_set *set); /* takes a zeroed one */
void chars_add(struct char_set *set, uint32_t lo, uint32_t hi);
/* Puts the ranges in order, without overlap and without surrogates, which are no characters. */
void chars_settle(struct char_set *set);
void chars_negate(struct char_set *set); /* settles too */

/* One character of a settled set as our own output spells it, then `next`: as it is, but quote and
 * backslash behind a backslash, and control characters by their letter or \u00XX. A set with no
 * character in it matches nothing. */
uint32_t chars_spelled(struct nfa *nfa, const struct char_set *set, uint32_t next);

/* Any character in any spelling that JSON has for it; halves of surrogate pairs only together. */
uint32_t chars_any(struct nfa *nfa, uint32_t next);

#endif
