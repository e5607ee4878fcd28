/* What a text must look like: JSON that a schema accepts. Compiled once, immutable, safe to share
 * between threads. docs/STRUCTURED.md says which schemas are served. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct grammar;

/* White space in what is written. It is bounded, so that no text goes on for ever with it. */
enum grammar_space {
    GRAMMAR_SPACE_ONE,  /* none, or one space behind each comma and colon, as the writer likes */
    GRAMMAR_SPACE_NONE, /* none at all */
};

enum { GRAMMAR_NESTING_MAX = 64 }; /* of schemas in a schema */

/* `schema` is read, and not needed afterwards. Errors begin with the place in the schema as a JSON
 * pointer ("#/properties/age/not: ..."): SOL_E_UNSUPPORTED for what is not served, SOL_E_FORMAT for
 * what is no schema, or one that nothing satisfies. Time and memory are bounded. */
enum sol_status grammar_from_schema(const json_t *schema, enum grammar_space space,
                                    struct grammar **out);
/* Any JSON object. */
enum sol_status grammar_any_object(enum grammar_space space, struct grammar **out);
void grammar_destroy(struct grammar *grammar); /* takes NULL */

size_t grammar_bytes(const struct grammar *grammar); /* memory that it takes */

#endif
