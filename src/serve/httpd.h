/* HTTP/1.1 for a server: libmicrohttpd behind one interface. It knows nothing of models.
 *
 * One thread moves the bytes of all connections. Whole requests are handled by a few others, so a
 * handler may compute for a while; the connection sleeps meanwhile, however long the answer takes,
 * and costs no thread. */
#ifndef SERVE_HTTPD_H
#define SERVE_HTTPD_H

#include <stdint.h>

#include "chat/text.h"

struct httpd;
struct exchange; /* a request and its answer */

/* ---- the server ---- */

typedef void (*exchange_fn)(void *arg, struct exchange *x);

struct httpd_params {
    const char *host; /* address or name to listen on, "127.0.0.1" */
    int port;         /* 0: any that is free */
    int64_t connections, connections_per_address;
    size_t header_max; /* of a request's first line and headers together */
    size_t body_max;
    size_t unread_max;  /* bytes of a stream that a client may leave unread; then it is gone */
    double request_s;   /* in which a request must have come, with a second more per 64 KiB */
    double idle_s;      /* without a byte moved, after which a connection is closed */
    double heartbeat_s; /* of silence in a stream of events, after which a comment is sent */
    int handlers;       /* threads */
    const char *tls_cert, *tls_key; /* PEM texts; NULL: no TLS */
    /* gate: when the headers are there and no body yet, in the thread that moves bytes, so it must
     * be quick. It may answer, which ends the exchange, and may set headers of the answer.
     * handle: the request is whole; in a thread of the handlers. */
    exchange_fn gate, handle;
    /* Answers a request that is refused here: 413, a body that is too large; 503, without memory.
     * As the gate. */
    void (*refuse)(void *arg, struct exchange *x, int code, const char *message);
    /* An exchange is over. `code` is 0 where none was sent; seconds since its headers were there.
     * In the thread that moves bytes. May be NULL. */
    void (*over)(void *arg, const struct exchange *x, int code, int64_t bytes, double seconds);
    void *arg;
};
void httpd_params_init(struct httpd_params *params); /* what suits; loopback, port 8080 */

/* Listens. SOL_E_UNSUPPORTED without libmicrohttpd: what to install; SOL_E_IO where the address
 * cannot be had. What `params` points to is copied. */
enum sol_status httpd_create(const struct httpd_params *params, struct httpd **out);
const char *httpd_address(const struct httpd *h); /* "http://127.0.0.1:8080" */
/* Takes no more connections, and closes those that are idle; exchanges go on. */
void httpd_quiesce(struct httpd *h);
/* Waits until no exchange is left, `seconds` at most; whether there is none. */
bool httpd_wait(struct httpd *h, double seconds);
/* To those that are left their clients are gone from now on. */
void httpd_cut(struct httpd *h);
/* Every exchange must have been answered or ended, or be on its way to that: waits for it. Clients
 * that still read are cut. Takes NULL. */
void httpd_destroy(struct httpd *h);

struct httpd_counts {
    int64_t connections, exchanges; /* now */
    int64_t requests, gone;         /* so far; gone: left or were cut before their answer was out */
};
void httpd_count(struct httpd *h, struct httpd_counts *out);

/* ---- an exchange: what was asked ---- */

/* Valid from the gate on until it is answered or ended; texts belong to it. */
const char *exchange_method(const struct exchange *x); /* "GET" */
const char *exchange_path(const struct exchange *x);   /* "/v1/models", decoded, without a query */
/* NULL where there is none. Decoded; names of headers in any case. */
const char *exchange_query(struct exchange *x, const char *name);
const char *exchange_header(struct exchange *x, const char *name);
struct chat_text exchange_body(const struct exchange *x); /* empty in the gate */
const char *exchange_client(const struct exchange *x);    /* "127.0.0.1" */
/* A pointer of the caller's, NULL at first: what the gate found out. Not freed. */
void exchange_set_tag(struct exchange *x, const void *tag);
const void *exchange_tag(const struct exchange *x);

/* ---- an exchange: the answer ----
 * Exactly one of: exchange_answer; exchange_answer_static; or exchange_stream, any number of
 * exchange_write, exchange_end. After the answer, or the end, the exchange must not be touched any
 * more. From any thread, by one at a time; nothing waits. That the client is gone changes nothing
 * of this: what is written then is dropped. */

/* Before the answer or the stream; both are copied. At most 16. */
void exchange_set_header(struct exchange *x, const char *name, const char *value);
/* `body` is copied. */
void exchange_answer(struct exchange *x, int code, const char *type, const char *body,
                     size_t length);
/* `body` must outlive the server. */
void exchange_answer_static(struct exchange *x, int code, const char *type, const char *body,
                            size_t length);
/* Begins an answer of unknown length. For "text/event-stream" it says that nothing may keep or hold
 * it back, and sends a comment after each heartbeat_s without a byte. */
void exchange_stream(struct exchange *x, int code, const char *type);
/* What is written between two moments at which the client can take something goes out together.
 * false: the client is gone, or has left too much unread and was cut. */
bool exchange_write(struct exchange *x, const char *data, size_t length);
void exchange_end(struct exchange *x);

/* `gone` is called once, by some thread, when the client has left or was cut, in well under a
 * second; at once if that was before. Not once answer or end have returned: these wait for it, so
 * it must not call exchange_*, nor wait for a thread that may be in one. NULL ends it, and waits
 * likewise. */
typedef void (*exchange_gone_fn)(void *arg);
void exchange_on_gone(struct exchange *x, exchange_gone_fn gone, void *arg);

#endif
