/* Responses that clients may come back to: those that are being made, those that ended lately with
 * their events, and those that are stored. A thread of its own writes to disk, so that no text
 * waits for that. Any thread may call. */
#ifndef SERVE_RESPONSE_KEEPER_H
#define SERVE_RESPONSE_KEEPER_H

#include "serve/httpd.h"
#include "serve/response.h"
#include "store/responses.h"

enum {
    KEEPER_SECONDS = 30 * 24 * 3600, /* that a stored response is kept */
    KEEPER_LATELY = 256,             /* ended responses whose events are kept, at most */
    KEEPER_LATELY_BYTES = 64 << 20,  /* of them together */
    KEEPER_CHAIN_MAX = 1024,         /* responses that lead to each other */
};
#define KEEPER_BYTES ((int64_t)4 << 30) /* of stored responses */

struct response_keeper;
struct live_response; /* one that is being made, or ended lately */

/* `folder` NULL: nothing outlives the server. */
enum sol_status response_keeper_create(const char *folder, struct response_keeper **out);
/* All responses must have ended. Waits until they are stored. Takes NULL. */
void response_keeper_destroy(struct response_keeper *k);

/* ---- one that is made ---- */

struct live_params {
    const char *owner;           /* copied */
    struct server *server;       /* counts its choice */
    struct exchange *exchange;   /* the client that asked */
    struct api_request *request; /* this and the others are taken, with an error too */
    struct response *response;   /* of it */
    json_t *input;               /* items */
};

/* In the background it is stored, as begun, before this returns. The caller has a hold on it. */
enum sol_status live_create(struct response_keeper *k, const struct live_params *params,
                            struct live_response **out);
void live_release(struct live_response *live); /* takes NULL */

/* The sink of its job, with the live_response as the argument. It answers the client: with events,
 * with the object at the end, or in the background with the object at once. */
extern const struct job_sink live_sink;
/* Before the job is started; it has a hold of its own from here to its end. */
void live_set_job(struct live_response *live, struct job *job);
/* The job could not be started: it is as if this had never been. The caller's hold stays. */
void live_abandon(struct live_response *live);
void live_cancel(struct live_response *live); /* no effect when it has ended */

/* A client that comes back gets events from number `from` on. SOL_E_ARGUMENT, and the exchange is
 * untouched: there are not so many events. */
enum sol_status live_stream(struct live_response *live, struct exchange *x, int64_t from);
/* Or the object at the end; or as it is now, but none that is complete and not on disk yet. */
void live_await(struct live_response *live, struct exchange *x);
void live_answer(struct live_response *live, struct exchange *x);
bool live_is_background(const struct live_response *live);

/* ---- coming back ---- */

/* With a hold; NULL: none that is being made or has ended lately has this id and owner. */
struct live_response *keeper_find(struct response_keeper *k, const char *owner, const char *id);
/* A stored one: its object and input, new references. *found false: nobody's, or another's. One
 * that was lost is as response_lost says. */
enum sol_status keeper_load(struct response_keeper *k, const char *owner, const char *id,
                            json_t **object, json_t **input, bool *found);
/* The items before a response that goes on from `id`, oldest first, and the date of the
 * conversation; new references, the date in *date [11]. SOL_E_ARGUMENT: there is none, it has not
 * ended, or the chain is broken or too long. */
enum sol_status keeper_history(struct response_keeper *k, const char *owner, const char *id,
                               json_t **items, char date[11]);
/* Ends it if it is being made. */
enum sol_status keeper_delete(struct response_keeper *k, const char *owner, const char *id,
                              bool *found);

#endif
