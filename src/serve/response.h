/* A response of /v1/responses while it is made: its items, and what happened to them in order, as
 * data. What clients read is printed from that, at any time and as often as wanted: the object, and
 * the events of a stream from any one on. No HTTP and no threads here.
 *
 * The events: created, in_progress; for each item output_item.added, for texts content_part.added,
 * deltas, the matching done, content_part.done, output_item.done; in the end completed, incomplete
 * (the most tokens were reached, or it was cancelled) or failed. */
#ifndef SERVE_RESPONSE_H
#define SERVE_RESPONSE_H

#include "serve/api_request.h"

struct response;

enum response_status {
    RESPONSE_IN_PROGRESS,
    RESPONSE_COMPLETED,
    RESPONSE_INCOMPLETE, /* as many tokens as were allowed */
    RESPONSE_CANCELLED,
    RESPONSE_FAILED,
};

struct response_params {
    const struct api_request *request; /* only needed until response_end */
    const json_t *body;                /* what was asked; only by response_create */
    const char *model;
    int64_t created;       /* time(2) */
    struct recall *recall; /* for reasoning before calls; may be NULL */
    uint64_t salt;
};

enum sol_status response_create(const struct response_params *params, struct response **out);
void response_destroy(struct response *r); /* takes NULL */
const char *response_id(const struct response *r);
int64_t response_created(const struct response *r);

/* ---- as the sink of a job has them ---- */

void response_event(struct response *r, const struct turn_event *event,
                    const struct job_token *tokens, size_t n);
void response_choice(struct response *r, const struct job_choice *result);
/* All is there but the last event. */
void response_usage(struct response *r, const struct job_usage *usage);
/* From here on the object says that it is stored, where that was asked for. */
void response_keep(struct response *r);
/* The last event. `kept`: it is stored indeed. */
void response_end(struct response *r, bool kept);

/* ---- what clients read ---- */

enum response_status response_state(const struct response *r);
size_t response_events(const struct response *r); /* how many there are so far */
/* Appends event `n` (its sequence_number) as a stream has it. */
void response_print_event(const struct response *r, size_t n, struct text_buffer *to);
/* The object as it is now. */
void response_print(const struct response *r, struct text_buffer *to);
size_t response_bytes(const struct response *r); /* of memory, about */

/* An object that was stored while its response was made, whose server is gone: as failed. A new
 * reference. */
json_t *response_lost(const json_t *object);

#endif
