/* The HTTP API over one model: who may ask, where requests go, what errors look like, figures. What
 * each path does is a function of api.h, and a line in routes.list. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include <jansson.h>

#include "serve/api_fields.h"
#include "serve/httpd.h"
#include "serve/job.h"
#include "serve/keys.h"

struct server;
struct api_shared;

struct server_params {
    struct httpd_params http; /* the functions and arg are the server's */
    const char *const *hosts; /* [n_hosts] names that requests may come by (Host), beside the
                               * address itself, and localhost where it is loopback */
    size_t n_hosts;
    const char *const *origins; /* [n_origins] pages of which may ask (CORS); "*": of all */
    size_t n_origins;
    const struct key_set *keys; /* NULL: anybody may ask */
    const char *name;           /* of the model, in answers */
    double drain_s;             /* for what runs to end, once it is time to */
    struct api_shared *shared;  /* what the APIs keep (serve/api_shared.h); may be NULL */
    bool log;                   /* a line for each request on stderr */
};
void server_params_init(struct server_params *params);

/* Listens; /health says 503 and so does everything else, until server_open. What `params` points to
 * must outlive the server. */
enum sol_status server_create(const struct server_params *params, struct server **out);
/* The model is there: requests are served. The parts are the caller's and outlive the server. */
void server_open(struct server *s, const struct job_engine *engine);
/* Serves until an interrupt (base/interrupt.h) or a failure of the engine; then ends what runs, for
 * drain_s at most, and uses the engine no more. SOL_OK after an interrupt; the engine's error, with
 * its message, after a failure. */
enum sol_status server_run(struct server *s);
void server_destroy(struct server *s); /* takes NULL */
const char *server_address(const struct server *s);

/* ---- for handlers ---- */

/* A request that passed the gate. It lives as long as the handler runs. */
struct request_context {
    struct server *server;
    struct exchange *exchange;
    const struct job_engine *engine; /* NULL while the model is being loaded, for routes that may */
    const struct key *key;           /* whose; never NULL: without keys that of everybody */
    const char *rest;                /* behind the '*' of a route's path, else "" */
    struct api_fault fault;          /* with an error: what the client is told beside the message */
    double wait_s;                   /* above 0: come back in so many seconds (429) */
};

/* SOL_OK: the exchange is answered, or will be by whoever has it now. Else it is untouched, and the
 * server answers with the error, as OpenAI's API has it. */
typedef enum sol_status (*request_fn)(struct request_context *r);

/* The body as a JSON object, and its fields; faults go to r->fault. Free *json with json_decref. */
enum sol_status request_body(struct request_context *r, json_t **json, struct api_object *body);
/* Common members: temperature, top_p, top_k, min_p, seed, n, stop, ignore_eos, priority, and the
 * limit, under the first of `limit` and "max_tokens" that is there, into `job`; and whose it is.
 * Stops are borrowed from the body, in `room` [JOB_STOPS_MAX]. What is not served and asked for
 * (penalties, logit_bias) is a fault. `model` may be any text: clients have names of their own. */
enum sol_status request_sampling(const struct key *key, const struct api_object *body,
                                 const char *limit, struct chat_text *room, struct job_params *job);
/* Starts a job that is answered on r->exchange and cancelled when the client is gone. It belongs to
 * itself then; where it cannot start it is destroyed, and r says when to come back. */
enum sol_status request_start(struct request_context *r, struct job *job);
/* That a prompt of so many tokens leaves room for an answer. */
enum sol_status request_fits(struct request_context *r, int64_t prompt_tokens);
/* Whether the turn_model is there; SOL_E_ARGUMENT with a message where the model has no turns. */
enum sol_status request_needs_turns(struct request_context *r);
/* Answers with JSON, as chat_json_print has it; takes the reference. */
void answer_json(struct exchange *x, int code, json_t *value);
/* Writes an event of a stream, "data: {...}"; takes the reference. */
void stream_json(struct exchange *x, json_t *value);
/* "data: [DONE]", and the end of the stream. */
void stream_end(struct exchange *x);

struct api_shared *server_shared(const struct server *s);
const char *server_model_name(const struct server *s);
int64_t server_created(const struct server *s); /* time(2) when it began to listen */

/* ---- errors, made here alone ---- */

/* {"error":{...}} of this thread's message, or `message` where that is not NULL; the HTTP status
 * gives the type. fault may be NULL. */
json_t *error_json(int http, const char *message, const struct api_fault *fault);
int error_http(enum sol_status status);

/* ---- figures: what a request came to; each kind of API calls it once for each choice ---- */
void server_count_choice(struct server *s, const struct job_choice *result);

#endif
