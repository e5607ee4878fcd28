/* Patterns of JSON Schema: the part of ECMAScript's regular expressions that is regular. */
#ifndef GRAMMAR_REGEX_H
#define GRAMMAR_REGEX_H

#include <stddef.h>

#include "grammar/dfa.h"
#include "sol/status.h"

enum {
    REGEX_LENGTH_MAX = 1 << 14, /* bytes of a pattern */
    REGEX_NESTING_MAX = 64,
};

/* The strings in which `pattern` is found, spelled as JSON spells them (chars_spelled), without the
 * quotes. Characters, classes, groups, alternatives, repetitions, ^ and $ are served, \d \w \s are
 * those of ECMAScript; \b, look-around, back references and \p are refused (SOL_E_UNSUPPORTED), and
 * what is no pattern (SOL_E_FORMAT), with the place in it.
 * `work`: of struct nfa. */
enum sol_status regex_compile(const char *pattern, size_t length, uint64_t *work, struct dfa *out);

#endif
