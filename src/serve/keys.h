/* Who may ask: secrets with names. Each has its own share of the engine and its own cache of
 * prompts, so that nobody learns from times what another has asked. */
#ifndef SERVE_KEYS_H
#define SERVE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct key_set;

struct key {
    const char *name;
    uint64_t id, salt; /* schedule_request's key and salt */
    char owner[33];    /* for what outlives the server: of the secret alone; "" without keys */
};

/* Lines "SECRET" or "NAME SECRET", # begins a comment. SOL_E_FORMAT with the line: a secret shorter
 * than 8 bytes, a name or secret twice, none at all. `what` is for messages: the file's name. */
enum sol_status key_set_parse(const char *text, size_t length, const char *what,
                              struct key_set **out);
void key_set_destroy(struct key_set *keys); /* takes NULL */
/* NULL: nobody's. Takes the same time whichever key it is, and whether it is one. */
const struct key *key_set_find(const struct key_set *keys, const char *secret);
/* Who asks where there are no keys. */
const struct key *key_of_everybody(void);

#endif
