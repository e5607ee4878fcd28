/* The server's life: its socket, its threads, its end. */
#include "serve/httpd.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "serve/httpd_private.h"

enum { STACK = 512 << 10 };

void httpd_params_init(struct httpd_params *params)
{
    *params = (struct httpd_params){
        .host = "127.0.0.1",
        .port = 8080,
        .connections = 4096,
        .connections_per_address = 4096,
        .header_max = 32 << 10,
        .body_max = 32 << 20,
        .unread_max = 1 << 20,
        .request_s = 30,
        .idle_s = 60,
        .heartbeat_s = 10,
        .handlers = 4,
    };
}

/* ---- listening ---- */

static enum sol_status bind_first(struct httpd *h, const struct addrinfo *list)
{
    int error = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int on = 1;
        h->listener = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (h->listener < 0) {
            error = errno;
            continue;
        }
        setsockopt(h->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(h->listener, a->ai_addr, a->ai_addrlen) == 0 && listen(h->listener, 1024) == 0)
            return SOL_OK;
        error = errno;
        close(h->listener);
        h->listener = -1;
    }
    if (error == EADDRINUSE)
        return status_set(SOL_E_IO,
                          "port %d of %s is in use: stop what listens there, or take another with "
                          "--port (0: any that is free)",
                          h->params.port, h->params.host);
    return status_set(SOL_E_IO, "cannot listen on %s, port %d: %s", h->params.host, h->params.port,
                      strerror(error));
}

static void name_address(struct httpd *h)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    char host[80] = "?", port[16] = "0";
    if (getsockname(h->listener, (struct sockaddr *)&own, &length) == 0)
        getnameinfo((struct sockaddr *)&own, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(h->address, sizeof h->address, "%s://%s%s%s:%s", h->params.tls_cert ? "https" : "http",
             own.ss_family == AF_INET6 ? "[" : "", host, own.ss_family == AF_INET6 ? "]" : "",
             port);
}

static enum sol_status open_listener(struct httpd *h)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    char port[16];
    snprintf(port, sizeof port, "%d", h->params.port);
    int error = getaddrinfo(h->params.host, port, &hints, &list);
    if (error)
        return status_set(SOL_E_ARGUMENT, "no address '%s' to listen on: %s", h->params.host,
                          gai_strerror(error));
    enum sol_status status = bind_first(h, list);
    freeaddrinfo(list);
    if (status == SOL_OK) name_address(h);
    return status;
}

/* A connection is a descriptor, of which shells give a process 1024. */
static void raise_descriptors(int64_t connections)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)connections + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- threads ---- */

static void *handler(void *arg)
{
    struct httpd *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->queue && !h->stop) pthread_cond_wait(&h->queue_filled, &h->lock);
        struct exchange *x = h->queue;
        if (!x) break;
        h->queue = x->queued;
        if (!h->queue) h->queue_end = &h->queue;
        pthread_mutex_unlock(&h->lock);
        h->params.handle(h->params.arg, x);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* Its remarks are about clients, and of no use to who runs a server. */
static void log_remark(void *arg, const char *format, va_list args)
{
    char text[256];
    (void)arg;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    vsnprintf(text, sizeof text, format, args);
#pragma GCC diagnostic pop
    text[strcspn(text, "\n")] = '\0';
    LOG_DEBUG("http: %s", text);
}

static enum sol_status start_daemon(struct httpd *h)
{
    const struct httpd_params *p = &h->params;
    unsigned flags = MHD_USE_LOG | MHD_USE_OWN_THREAD | MHD_USE_EPOLL | MHD_USE_RESUME;
    if (p->tls_cert && !h->mhd->supports(MHD_FEATURE_TLS))
        return status_set(SOL_E_UNSUPPORTED, "this libmicrohttpd has no TLS: install Debian's "
                                             "libmicrohttpd12, or put a proxy before the server");
    /* The logger comes first: it is for the options behind it too. */
    h->daemon = h->mhd->start(
        p->tls_cert ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, exchange_on_request, h,
        MHD_OPTION_LOGGER, log_remark, NULL, MHD_OPTION_LISTEN_SOCKET, h->listener,
        MHD_OPTION_MEMORY, p->header_max, MHD_OPTION_CONNECTIONS, (unsigned)p->connections,
        MHD_OPTION_PER_ADDRESS, (unsigned)p->connections_per_address, MHD_OPTION_TIMEOUT,
        (unsigned)(p->idle_s < 1 ? 1 : p->idle_s), MHD_OPTION_COMPLETED, exchange_on_completed, h,
        MHD_OPTION_CONNECTION, connection_notice, h, MHD_OPTION_URI, connection_line, h,
        MHD_OPTION_STACK, (size_t)STACK, p->tls_cert ? MHD_OPTION_TLS_CERT : MHD_OPTION_END,
        p->tls_cert, MHD_OPTION_TLS_KEY, p->tls_key, MHD_OPTION_END);
    if (h->daemon) return SOL_OK;
    if (p->tls_cert)
        return status_set(SOL_E_FORMAT, "the TLS certificate and key are not accepted: they must "
                                        "be PEM texts, and belong together");
    return status_set(SOL_E_IO,
                      "libmicrohttpd does not start: too few file descriptors? (ulimit "
                      "-n; connections: %lld)",
                      (long long)p->connections);
}

static enum sol_status start_threads(struct httpd *h)
{
    h->handlers = calloc((size_t)h->params.handlers, sizeof *h->handlers);
    if (!h->handlers) return status_set(SOL_E_MEMORY, "no memory for a server");
    while (h->n_handlers < h->params.handlers) {
        if (thread_start(&h->handlers[h->n_handlers], handler, h) != 0)
            return status_set(SOL_E_MEMORY, "cannot start a server's threads");
        h->n_handlers++;
    }
    if (thread_start(&h->watcher, httpd_watch, h) != 0)
        return status_set(SOL_E_MEMORY, "cannot start a server's threads");
    h->watches = true;
    return SOL_OK;
}

/* ---- life ---- */

static enum sol_status copy_texts(struct httpd_params *p)
{
    p->host = strdup(p->host);
    bool tls = p->tls_cert, all = p->host;
    p->tls_cert = tls ? strdup(p->tls_cert) : NULL;
    p->tls_key = tls ? strdup(p->tls_key) : NULL;
    if (tls) all = all && p->tls_cert && p->tls_key; /* never without TLS where it was asked for */
    return all ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a server");
}

enum sol_status httpd_create(const struct httpd_params *params, struct httpd **out)
{
    const struct mhd_api *mhd;
    *out = NULL;
    SOL_TRY(mhd_load(&mhd));
    struct httpd *h = calloc(1, sizeof *h);
    if (!h) return status_set(SOL_E_MEMORY, "no memory for a server");
    h->params = *params;
    h->mhd = mhd;
    h->queue_end = &h->queue;
    h->listener = h->watch = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->queue_filled, NULL);
    pthread_cond_init(&h->ended, NULL);
    enum sol_status status = copy_texts(&h->params);
    if (status != SOL_OK) goto fail;
    raise_descriptors(params->connections);
    status = open_listener(h);
    if (status != SOL_OK) goto fail;
    h->watch = epoll_create1(EPOLL_CLOEXEC);
    status = h->watch < 0 ? status_set(SOL_E_IO, "epoll: %s", strerror(errno)) : start_threads(h);
    if (status == SOL_OK) status = start_daemon(h);
    if (status != SOL_OK) goto fail;
    *out = h;
    return SOL_OK;
fail:
    httpd_destroy(h);
    return status;
}

const char *httpd_address(const struct httpd *h)
{
    return h->address;
}

void httpd_quiesce(struct httpd *h)
{
    pthread_mutex_lock(&h->lock);
    bool before = h->quiet;
    h->quiet = true;
    pthread_mutex_unlock(&h->lock);
    if (before || !h->daemon) return;
    h->mhd->quiesce(h->daemon);
    shutdown(h->listener, SHUT_RDWR); /* who comes now is refused; it is closed with the rest */
}

static void deadline_in(double seconds, struct timespec *at)
{
    clock_gettime(CLOCK_REALTIME, at);
    at->tv_sec += (time_t)seconds;
    at->tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (at->tv_nsec >= 1000000000) {
        at->tv_nsec -= 1000000000;
        at->tv_sec++;
    }
}

bool httpd_wait(struct httpd *h, double seconds)
{
    struct timespec at;
    deadline_in(seconds, &at);
    pthread_mutex_lock(&h->lock);
    while (h->counts.exchanges + h->orphans)
        if (pthread_cond_timedwait(&h->ended, &h->lock, &at) == ETIMEDOUT) break;
    bool none = !(h->counts.exchanges + h->orphans);
    pthread_mutex_unlock(&h->lock);
    return none;
}

void httpd_cut(struct httpd *h)
{
    pthread_mutex_lock(&h->lock);
    for (struct exchange *x = h->exchanges; x; x = x->next) {
        exchange_mark_gone(x);
        shutdown(x->on->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&h->lock);
}

/* Until each handler has done its part; then no connection sleeps any more. */
static void wait_released(struct httpd *h)
{
    pthread_mutex_lock(&h->lock);
    for (bool all = false; !all;) {
        all = !h->orphans && !h->queue;
        for (struct exchange *x = h->exchanges; x && all; x = x->next) all = exchange_is_free(x);
        if (!all) pthread_cond_wait(&h->ended, &h->lock);
    }
    pthread_mutex_unlock(&h->lock);
}

void httpd_destroy(struct httpd *h)
{
    if (!h) return;
    if (h->daemon) {
        httpd_quiesce(h);
        pthread_mutex_lock(&h->lock);
        h->closing = true;
        pthread_mutex_unlock(&h->lock);
        wait_released(h);
        h->mhd->stop(h->daemon);
    }
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->queue_filled);
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; i < h->n_handlers; i++) pthread_join(h->handlers[i], NULL);
    if (h->watches) pthread_join(h->watcher, NULL);
    if (h->listener >= 0) close(h->listener);
    if (h->watch >= 0) close(h->watch);
    pthread_cond_destroy(&h->ended);
    pthread_cond_destroy(&h->queue_filled);
    pthread_mutex_destroy(&h->lock);
    free((void *)(uintptr_t)h->params.host);
    free((void *)(uintptr_t)h->params.tls_cert);
    free((void *)(uintptr_t)h->params.tls_key);
    free(h->handlers);
    free(h);
}

void httpd_count(struct httpd *h, struct httpd_counts *out)
{
    pthread_mutex_lock(&h->lock);
    *out = h->counts;
    pthread_mutex_unlock(&h->lock);
}
