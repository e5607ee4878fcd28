/* Answers of the server that clients may come back to: a database of its own, bounded in size and
 * age. What a call reported as stored is on disk. One thread at a time. */
#ifndef STORE_RESPONSES_H
#define STORE_RESPONSES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

struct responses;

/* Where they are kept if nobody says where: the folder "sol" of XDG_STATE_HOME, or of
 * ~/.local/state. SOL_E_ARGUMENT where there is no such place. */
enum sol_status responses_folder(char *out, size_t size);

struct responses_limits {
    int64_t bytes;   /* of all texts together */
    int64_t seconds; /* that a response is kept */
};

/* Makes the folder where it is missing. NULL: in memory, lost when it is closed. */
enum sol_status responses_open(const char *folder, const struct responses_limits *limits,
                               struct responses **out);
void responses_close(struct responses *r); /* takes NULL */

enum response_row {
    RESPONSE_WHOLE, /* a new one that is complete */
    RESPONSE_BEGUN, /* a new one that is being made: `object` says what there is at first */
    RESPONSE_ENDED, /* one that was begun: only the object counts. If it was deleted, it stays so */
};

struct stored_response {
    const char *id, *owner; /* whose: nobody else finds it */
    const char *previous;   /* NULL: none */
    const char *date;       /* of the conversation */
    const char *input;      /* JSON: the items that the client sent */
    const char *object;     /* JSON: the response */
    enum response_row row;  /* read: BEGUN or WHOLE */
    bool lost;              /* only read: it was begun by a process that is gone */
    int64_t created;        /* time(2) */
};

/* All at once, or none. The oldest go where the limits want it. */
enum sol_status responses_put(struct responses *r, const struct stored_response *all, size_t n);
/* Texts are made in `arena`. *found says whether there is one. */
enum sol_status responses_get(struct responses *r, struct arena *arena, const char *owner,
                              const char *id, struct stored_response *out, bool *found);
enum sol_status responses_delete(struct responses *r, const char *owner, const char *id,
                                 bool *found);

#endif
