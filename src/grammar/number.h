/* The texts of numbers with bounds. */
#ifndef GRAMMAR_NUMBER_H
#define GRAMMAR_NUMBER_H

#include <jansson.h>
#include <stdbool.h>

#include "grammar/dfa.h"
#include "sol/status.h"

enum {
    NUMBER_DIGITS_MAX = 64,      /* of a bound, before and behind the point */
    NUMBER_MULTIPLE_MAX = 10000, /* of multipleOf, its fraction's digits counted as whole ones */
};

struct number_bound {
    const json_t *value; /* NULL: none */
    bool exclusive;
};

struct number_rules {
    bool integer;
    struct number_bound low, high;
    const json_t *multiple; /* NULL: none */
    uint64_t *work;         /* of struct dfa_source */
};

/* Without bounds and multiple any number, exponent included; with them digits and a fraction, so
 * that digits decide. An integer has neither. Nothing is accepted where no number obeys.
 * SOL_E_UNSUPPORTED for bounds and multiples beyond the limits above. */
enum sol_status number_compile(const struct number_rules *rules, struct dfa *out);

#endif
