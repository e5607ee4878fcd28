/* What the files of the HTTP server share.
 *
 * An exchange belongs to two: to libmicrohttpd's thread until the connection has finished with the
 * request, and to the handler until it has answered. Each lets go once, in any order; the last one
 * frees it. Locks are taken in this order: the server's, an exchange's, libmicrohttpd's own. */
#ifndef SERVE_HTTPD_PRIVATE_H
#define SERVE_HTTPD_PRIVATE_H

#include <pthread.h>

#include "serve/httpd.h"
#include "serve/mhd.h"

enum { EXCHANGE_HEADERS_MAX = 16, EXCHANGE_BLOCK = 8192 };

struct pair {
    int kind; /* MHD_HEADER or MHD_QUERY */
    char *name, *value;
};
struct pairs {
    struct pair *at;
    size_t n, room;
};

enum exchange_state {
    EXCHANGE_COMING,  /* the request is not whole */
    EXCHANGE_HANDLED, /* it is in the handlers' hands */
    EXCHANGE_ANSWERED,
    EXCHANGE_STREAMING,
};

struct exchange {
    struct httpd *httpd;
    struct connection *on;
    struct exchange *next, *previous; /* of all that there are: the server's lock */
    struct exchange *queued;          /* behind it in the queue of handlers: the server's lock */
    uint64_t id, began;               /* clock_ns */
    char *method, *path, client[48];
    struct pairs asked;
    struct text_buffer body;
    bool too_large, short_of_memory;
    const void *tag;

    pthread_mutex_t lock; /* of what follows */
    void *connection;     /* libmicrohttpd's; NULL once it has let go */
    enum exchange_state state;
    bool asleep;   /* the connection is suspended */
    bool taken;    /* the response is libmicrohttpd's too */
    bool released; /* by the handler */
    bool gone;
    struct pairs answer; /* headers */
    int code;
    void *response;
    struct text_buffer out; /* of a stream, from `out_at` on unread */
    size_t out_at;
    int64_t sent;
    bool events;    /* text/event-stream */
    uint64_t wrote; /* clock_ns, last */
    exchange_gone_fn on_gone;
    void *gone_arg;
};

/* A client's connection, over all its requests. */
struct connection {
    struct connection *next, *previous;
    int fd;
    uint64_t since;   /* clock_ns, since which a request is awaited, or coming; 0: one is served */
    uint64_t arrived; /* bytes of its body so far */
    bool cut;
};

struct httpd {
    struct httpd_params params;
    const struct mhd_api *mhd;
    void *daemon;
    int listener, watch; /* sockets; watch: an epoll of clients' connections */
    char address[128];

    pthread_mutex_t lock;
    pthread_cond_t queue_filled, ended; /* ended: an exchange, or its handler's part */
    struct exchange *exchanges;
    int64_t orphans; /* whose connection is over, and whose handler is not */
    struct exchange *queue, **queue_end;
    struct connection *connections;
    uint64_t next_id;
    struct httpd_counts counts;
    bool quiet, closing, stop; /* no more connections, no more requests, no more threads */
    pthread_t *handlers, watcher;
    int n_handlers;
    bool watches;
};

/* ---- httpd_exchange.c ---- */
int exchange_on_request(void *arg, void *connection, const char *url, const char *method,
                        const char *version, const char *data, size_t *length, void **request);
void exchange_on_completed(void *arg, void *connection, void **request, int how);
/* Under the server's lock: its client has left, or is to be cut. */
void exchange_mark_gone(struct exchange *x);
void exchange_heartbeat(struct exchange *x, uint64_t now); /* under the server's lock */
/* Likewise: no handler has it, or will get it once the server is closing. */
bool exchange_is_free(struct exchange *x);

/* ---- httpd_watch.c ---- */
void *httpd_watch(void *httpd); /* a thread */
void connection_notice(void *arg, void *connection, void **context, int what);
void *connection_line(void *arg, const char *uri, void *connection); /* a request begins */
void httpd_watch_exchange(struct httpd *h, struct exchange *x);

#endif
