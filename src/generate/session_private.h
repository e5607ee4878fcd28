/* What the files of the session share. */
#ifndef GENERATE_SESSION_PRIVATE_H
#define GENERATE_SESSION_PRIVATE_H

#include "generate/session.h"

struct session {
    struct engine *engine;
    int32_t *tokens;         /* [context], of which the engine's position says how many are held */
    struct engine_row *rows; /* [max_batch] */
    int64_t context, step;   /* step: rows at a time */
    /* Where there are snapshots, rising, and in which slot each is: the beginnings of what is held,
     * bit for bit. The slots of those that are not there follow. */
    int64_t points[SESSION_SNAPSHOTS];
    int32_t slots[SESSION_SNAPSHOTS];
    int n_points;
};

enum { SESSION_SAVING = SESSION_SNAPSHOTS }; /* the slot that is free between calls */

/* Appends to what is held. `logits` NULL: nobody wants them. */
enum sol_status session_append(struct session *s, const int32_t *tokens, int64_t n,
                               const float **logits);

#endif
