/* What clients ask for by OpenAI's two APIs for conversations, as data: pure functions from JSON.
 * docs/SERVE.md says which fields are served. */
#ifndef SERVE_API_REQUEST_H
#define SERVE_API_REQUEST_H

#include "chat/format.h"
#include "serve/api_fields.h"
#include "serve/job.h"
#include "serve/keys.h"
#include "serve/recall.h"
#include "serve/schema_cache.h"

enum {
    API_MESSAGES_MAX = 65536, /* also items of a response's input */
    API_FUNCTIONS_MAX = 1024,
    API_NAME_MAX = 64,          /* of a function, a namespace, a schema */
    API_GRAMMARS_MS_MAX = 2000, /* of processor time for all schemas of a request */
    API_GRAMMARS_MAX = 64,      /* strict functions of a request that have arguments */
};

/* What reading needs beside the request. */
struct api_reader {
    const struct model *model; /* what it recommends is taken where a request says nothing; NULL */
    struct schema_cache *schemas;
    const struct token_trie *trie;    /* may be NULL */
    const struct chat_format *format; /* the model's */
    struct recall *recall;            /* NULL: nothing is remembered */
    const struct key *key;            /* whose */
    enum chat_types types;            /* how functions are shown to the model */
    const char *today;                /* "2026-11-24" */
};

struct api_function {
    struct chat_text name, space; /* as the client has them; space: its namespace, or no data */
    struct chat_text full;        /* as the model has it: "functions.get" */
    struct chat_text description; /* without data: none */
    const json_t *parameters;     /* NULL: it takes nothing */
    bool strict;                  /* its arguments are as `parameters` wants them */
    bool custom;                  /* of responses: its one argument `input` is the call's text */
    size_t index;                 /* in the request's "tools" */
};

enum api_format { API_TEXT, API_JSON_OBJECT, API_JSON_SCHEMA };

struct api_request {
    struct conversation *conversation; /* it owns the texts of all else, and holds the body */
    struct turn_params turn;
    struct job_params job; /* conversation and turn are these two; n_stops etc. as asked */
    struct chat_text stops[JOB_STOPS_MAX];
    bool stream, usage; /* usage: also in a stream */
    const char *date;   /* that the system message has */

    struct api_function *functions; /* [n_functions]: all, those that are hidden too */
    size_t n_functions;
    enum api_format format;

    /* Of responses alone. */
    bool store, background, encrypted; /* encrypted: reasoning is wanted as encrypted_content */
    struct chat_text previous;         /* an id; without data: none */

    struct schema_hold *holds; /* of `turn`'s grammars; [n_holds] */
    size_t n_holds;
    struct schema_cache *schemas;
};

/* POST /v1/chat/completions. `body` is only counted up. With an error *fault says where, and *out
 * is NULL. */
enum sol_status api_read_chat(const struct api_reader *reader, json_t *body,
                              struct api_fault *fault, struct api_request **out);
/* POST /v1/responses. `history`: the items before the input, of the responses that
 * previous_response_id leads to (NULL: none), and `date` what their conversation has (NULL: it is
 * found as for any other). */
enum sol_status api_read_response(const struct api_reader *reader, json_t *body, json_t *history,
                                  const char *date, struct api_fault *fault,
                                  struct api_request **out);
/* What of a body leads to others: its "previous_response_id" alone. */
enum sol_status api_read_previous(const json_t *body, struct api_fault *fault,
                                  struct chat_text *previous);
/* The items that "input" has, as they are stored and listed: a new reference. A text becomes a
 * message, and all have an id. NULL without memory. */
json_t *api_input_items(const json_t *body);
/* Reasoning as `encrypted_content`, and back: clients keep it and send it back unread. */
extern const char api_encrypted_mark[];
void api_request_destroy(struct api_request *request); /* takes NULL */

/* A function by the model's name for it; NULL: nobody offered it. */
const struct api_function *api_function_find(const struct api_request *request,
                                             struct chat_text full);
/* What a client is told of a call: the function's own name, or the model's without "functions." */
struct chat_text api_call_name(const struct api_request *request, struct chat_text full);

/* Keeps what was thought before a call, for clients that drop it. */
void api_remember(struct recall *recall, uint64_t salt, struct chat_text call_id,
                  struct chat_text reasoning);

#endif
