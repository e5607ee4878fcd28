/* What libmicrohttpd does not see: that the client of a sleeping connection has left, that a
 * request takes too long to come (a byte at a time keeps its own timeout from ending), that a
 * stream has been silent. One thread waits for the first and looks after the others a few times a
 * second. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "serve/httpd_private.h"

enum { TICK_MS = 200, BYTES_A_SECOND = 64 << 10 };

/* ---- connections ---- */

void connection_notice(void *arg, void *connection, void **context, int what)
{
    struct httpd *h = arg;
    if (what == MHD_CONNECTION_BEGINS) {
        struct connection *c = calloc(1, sizeof *c);
        if (!c) return; /* a request on it is refused */
        c->fd = h->mhd->info(connection, MHD_INFO_FD)->fd;
        c->since = clock_ns();
        pthread_mutex_lock(&h->lock);
        c->next = h->connections;
        if (c->next) c->next->previous = c;
        h->connections = c;
        h->counts.connections++;
        pthread_mutex_unlock(&h->lock);
        *context = c;
        return;
    }
    struct connection *c = *context;
    if (!c) return;
    pthread_mutex_lock(&h->lock);
    *(c->previous ? &c->previous->next : &h->connections) = c->next;
    if (c->next) c->next->previous = c->previous;
    h->counts.connections--;
    pthread_mutex_unlock(&h->lock);
    free(c);
    *context = NULL;
}

/* The first line of a request is there: its time begins, what the connection waited before counts
 * no more. */
void *connection_line(void *arg, const char *uri, void *connection)
{
    struct httpd *h = arg;
    (void)uri;
    const union mhd_info *info = h->mhd->info(connection, MHD_INFO_SOCKET_CONTEXT);
    struct connection *c = info ? info->context : NULL;
    if (c) {
        pthread_mutex_lock(&h->lock);
        c->since = clock_ns();
        c->arrived = 0;
        pthread_mutex_unlock(&h->lock);
    }
    return NULL;
}

/* Who has not sent its request in time, or waits on a connection while there are to be no more. */
static void cut_slow(struct httpd *h, uint64_t now)
{
    for (struct connection *c = h->connections; c; c = c->next) {
        if (!c->since || c->since >= now || c->cut) continue; /* it began behind `now` */
        double seconds = (double)(now - c->since) * 1e-9;
        double most = h->params.request_s + (double)c->arrived / BYTES_A_SECOND;
        if (seconds < most && !(h->quiet && !c->arrived && seconds > 1)) continue;
        c->cut = true;
        shutdown(c->fd, SHUT_RDWR);
    }
}

/* ---- clients of sleeping connections ---- */

/* Once: whoever has left does not come back. The descriptor leaves the set when it is closed. */
void httpd_watch_exchange(struct httpd *h, struct exchange *x)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = x->id};
    if (epoll_ctl(h->watch, EPOLL_CTL_ADD, x->on->fd, &event) != 0 && errno == EEXIST)
        epoll_ctl(h->watch, EPOLL_CTL_MOD, x->on->fd, &event);
}

static void client_left(struct httpd *h, uint64_t id)
{
    for (struct exchange *x = h->exchanges; x; x = x->next)
        if (x->id == id) {
            exchange_mark_gone(x);
            return;
        }
}

void *httpd_watch(void *arg)
{
    struct httpd *h = arg;
    struct epoll_event events[64];
    uint64_t looked = 0;
    for (bool stop = false; !stop;) {
        int n = epoll_wait(h->watch, events, 64, TICK_MS);
        uint64_t now = clock_ns();
        pthread_mutex_lock(&h->lock);
        stop = h->stop;
        for (int i = 0; i < n; i++) client_left(h, events[i].data.u64);
        if (now - looked > (uint64_t)TICK_MS * 900000) {
            looked = now;
            cut_slow(h, now);
            for (struct exchange *x = h->exchanges; x; x = x->next) exchange_heartbeat(x, now);
        }
        pthread_mutex_unlock(&h->lock);
    }
    return NULL;
}
