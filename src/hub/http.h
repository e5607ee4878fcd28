/* Requests to a server that may be slow, busy, wrong or hostile: what can pass by itself is tried
 * again, everything is bounded, and the token goes to the server that it is for and to no other. */
#ifndef HUB_HTTP_H
#define HUB_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hub/part_file.h"
#include "sol/status.h"

struct http;

/* `token` (may be NULL) is sent with each request, but not to where a redirection leads on another
 * host. Of one thread. */
enum sol_status http_create(const char *token, struct http **out);
void http_destroy(struct http *http); /* takes NULL */
/* How often a request is sent before it has failed (6). */
void http_attempts(struct http *http, long attempts);

enum { HTTP_WORD = 64, HTTP_TEXT = 300 };
/* Whether the line, which need not end with a NUL, is this header; its value, if need be cut, goes
 * into `text`. */
bool http_header(const char *line, size_t n, const char *name, char *text, size_t size);

struct http_answer {
    long code;  /* of HTTP */
    char *body; /* owned by the caller, also after an error; ends with NUL */
    size_t length;
    char error[HTTP_WORD];   /* the hub's word for what is wrong: "GatedRepo" */
    char message[HTTP_TEXT]; /* its sentence */
};

/* SOL_OK with every code but those that mean that the server could not answer at all. At most
 * `limit` bytes. SOL_E_IO, SOL_E_INTERRUPTED. */
enum sol_status http_get(struct http *http, const char *url, size_t limit, struct http_answer *out);

/* Fetches what `file` does not have yet, over up to `connections` at a time. SOL_E_IO where nothing
 * comes any more, SOL_E_FORMAT where the server says another size: then `file` has what came until
 * then. `on_bytes` hears what came; below 0 where some of it is fetched once more. */
enum sol_status http_fetch(struct http *http, const char *url, struct part_file *file,
                           int connections, void (*on_bytes)(void *, int64_t), void *arg);

#endif
