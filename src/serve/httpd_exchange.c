/* A request from its first line to the last byte of its answer. */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/clock.h"
#include "serve/httpd_private.h"

/* ---- names and values ---- */

static bool pairs_add(struct pairs *p, int kind, const char *name, const char *value)
{
    if (p->n == p->room) {
        size_t room = p->room ? 2 * p->room : 16;
        struct pair *more = realloc(p->at, room * sizeof *more);
        if (!more) return false;
        p->at = more;
        p->room = room;
    }
    struct pair pair = {kind, strdup(name), strdup(value ? value : "")};
    if (!pair.name || !pair.value) {
        free(pair.name);
        free(pair.value);
        return false;
    }
    p->at[p->n++] = pair;
    return true;
}

static void pairs_free(struct pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->at[i].name);
        free(p->at[i].value);
    }
    free(p->at);
    *p = (struct pairs){0};
}

static const char *pairs_find(const struct pairs *p, int kind, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].kind == kind && (kind == MHD_HEADER ? strcasecmp(p->at[i].name, name)
                                                         : strcmp(p->at[i].name, name)) == 0)
            return p->at[i].value;
    return NULL;
}

static int add_asked(void *arg, int kind, const char *name, const char *value)
{
    struct exchange *x = arg;
    x->short_of_memory |= !pairs_add(&x->asked, kind, name, value);
    return MHD_YES;
}

/* ---- life ---- */

static void exchange_free(struct exchange *x)
{
    if (!x) return;
    if (x->response) x->httpd->mhd->response_destroy(x->response);
    text_buffer_free(&x->body);
    text_buffer_free(&x->out);
    pairs_free(&x->asked);
    pairs_free(&x->answer);
    pthread_mutex_destroy(&x->lock);
    free(x->method);
    free(x->path);
    free(x);
}

static void name_client(struct httpd *h, void *connection, char client[48])
{
    const union mhd_info *info = h->mhd->info(connection, MHD_INFO_ADDRESS);
    snprintf(client, 48, "?");
    if (!info || !info->address) return;
    if (info->address->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)info->address)->sin_addr,
                  client, 48);
    else if (info->address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)info->address)->sin6_addr,
                  client, 48);
}

/* NULL without memory. */
static struct exchange *exchange_open(struct httpd *h, void *connection, const char *url,
                                      const char *method)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    const union mhd_info *info = h->mhd->info(connection, MHD_INFO_SOCKET_CONTEXT);
    pthread_mutex_init(&x->lock, NULL);
    x->httpd = h;
    x->on = info ? info->context : NULL;
    x->connection = connection;
    x->began = clock_ns();
    x->method = strdup(method);
    x->path = strdup(url);
    h->mhd->values(connection, MHD_HEADER, add_asked, x);
    h->mhd->values(connection, MHD_QUERY, add_asked, x);
    name_client(h, connection, x->client);
    if (!x->on || !x->method || !x->path || x->short_of_memory) {
        exchange_free(x);
        return NULL;
    }
    pthread_mutex_lock(&h->lock);
    x->id = ++h->next_id;
    x->next = h->exchanges;
    if (x->next) x->next->previous = x;
    h->exchanges = x;
    h->counts.exchanges++;
    h->counts.requests++;
    pthread_mutex_unlock(&h->lock);
    return x;
}

/* With its lock. */
static void wake(struct exchange *x)
{
    if (!x->asleep) return;
    x->asleep = false;
    x->httpd->mhd->resume(x->connection);
}

static void fall_asleep(struct exchange *x)
{
    x->asleep = true;
    x->httpd->mhd->suspend(x->connection);
}

static void mark_gone(struct exchange *x)
{
    if (x->gone || x->state == EXCHANGE_ANSWERED) return;
    if (x->released && x->out_at == x->out.length) return; /* it has all */
    x->gone = true;
    exchange_gone_fn fn = x->on_gone;
    x->on_gone = NULL;
    if (fn) fn(x->gone_arg);
    wake(x);
}

void exchange_mark_gone(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    if (x->connection) mark_gone(x);
    pthread_mutex_unlock(&x->lock);
}

bool exchange_is_free(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool released = x->released || x->state == EXCHANGE_COMING;
    pthread_mutex_unlock(&x->lock);
    return released;
}

/* The handler's part begins to end: both locks, so that who waits for it does not miss it. */
static void enter(struct exchange *x)
{
    pthread_mutex_lock(&x->httpd->lock);
    pthread_mutex_lock(&x->lock);
    assert(!x->released);
}

static void release(struct exchange *x)
{
    struct httpd *h = x->httpd;
    x->released = true;
    x->on_gone = NULL;
    bool last = !x->connection;
    wake(x);
    pthread_mutex_unlock(&x->lock);
    if (last) {
        h->orphans--;
        exchange_free(x);
    }
    pthread_cond_broadcast(&h->ended);
    pthread_mutex_unlock(&h->lock);
}

/* Out of the list of those whose clients are watched. */
static void forget(struct httpd *h, struct exchange *x)
{
    pthread_mutex_lock(&h->lock);
    *(x->previous ? &x->previous->next : &h->exchanges) = x->next;
    if (x->next) x->next->previous = x->previous;
    x->on->since = clock_ns();
    x->on->arrived = 0;
    pthread_mutex_unlock(&h->lock);
}

void exchange_on_completed(void *arg, void *connection, void **request, int how)
{
    struct httpd *h = arg;
    struct exchange *x = *request;
    (void)connection;
    if (!x) return;
    *request = NULL;
    forget(h, x);
    pthread_mutex_lock(&x->lock);
    x->asleep = false;
    if (how != MHD_COMPLETED_OK) mark_gone(x);
    bool gone = x->gone || how != MHD_COMPLETED_OK;
    int code = x->code;
    int64_t sent = x->sent;
    pthread_mutex_unlock(&x->lock);
    if (h->params.over)
        h->params.over(h->params.arg, x, code, sent, (double)(clock_ns() - x->began) * 1e-9);

    pthread_mutex_lock(&h->lock);
    pthread_mutex_lock(&x->lock);
    x->connection = NULL;
    bool last = x->released || x->state == EXCHANGE_COMING; /* no handler has had it, or will */
    pthread_mutex_unlock(&x->lock);
    if (last)
        exchange_free(x);
    else
        h->orphans++;
    h->counts.exchanges--;
    h->counts.gone += gone;
    pthread_cond_broadcast(&h->ended);
    pthread_mutex_unlock(&h->lock);
}

/* ---- the request ---- */

/* Gives libmicrohttpd the answer. With a refusal there may be no memory for one: then it closes. */
static int take_answer(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool take = x->response && !x->taken && !(x->gone && x->state == EXCHANGE_STREAMING);
    if (take) x->taken = true;
    pthread_mutex_unlock(&x->lock);
    /* Without the lock, which its readers take behind one of its own. */
    return take ? x->httpd->mhd->answer(x->connection, (unsigned)x->code, x->response) : MHD_NO;
}

static int refuse(struct exchange *x, int code, const char *message)
{
    x->httpd->params.refuse(x->httpd->params.arg, x, code, message);
    return take_answer(x);
}

static bool is_answered(struct exchange *x)
{
    return x->state == EXCHANGE_ANSWERED || x->state == EXCHANGE_STREAMING;
}

static bool declares_too_much(const struct exchange *x)
{
    const char *length = pairs_find(&x->asked, MHD_HEADER, "Content-Length");
    return length && strtoull(length, NULL, 10) > x->httpd->params.body_max;
}

static int begin(struct httpd *h, void *connection, const char *url, const char *method,
                 void **request)
{
    struct exchange *x = exchange_open(h, connection, url, method);
    if (!x) return MHD_NO;
    *request = x;
    if (declares_too_much(x)) return refuse(x, 413, "the body is too large");
    h->params.gate(h->params.arg, x);
    return is_answered(x) ? take_answer(x) : MHD_YES;
}

/* What is too much is dropped, so that the client gets to read why; but not for ever. */
static int take_body(struct exchange *x, const char *data, size_t *length)
{
    struct httpd *h = x->httpd;
    pthread_mutex_lock(&h->lock);
    x->on->arrived += *length;
    bool endless = x->on->arrived > 2 * (uint64_t)h->params.body_max + (1 << 20);
    pthread_mutex_unlock(&h->lock);
    if (endless) return MHD_NO;
    if (x->body.length + *length > h->params.body_max) x->too_large = true;
    if (!x->too_large) text_put(&x->body, data, *length);
    *length = 0;
    return MHD_YES;
}

static int hand_over(struct exchange *x)
{
    struct httpd *h = x->httpd;
    if (x->too_large) return refuse(x, 413, "the body is too large");
    if (x->body.failed) return refuse(x, 503, "no memory for the body of the request");
    pthread_mutex_lock(&h->lock);
    if (h->closing) {
        pthread_mutex_unlock(&h->lock);
        return refuse(x, 503, "the server is about to end");
    }
    pthread_mutex_lock(&x->lock);
    x->state = EXCHANGE_HANDLED;
    fall_asleep(x);
    pthread_mutex_unlock(&x->lock);
    x->on->since = 0;
    httpd_watch_exchange(h, x);
    x->queued = NULL;
    *h->queue_end = x;
    h->queue_end = &x->queued;
    pthread_cond_signal(&h->queue_filled);
    pthread_mutex_unlock(&h->lock);
    return MHD_YES;
}

int exchange_on_request(void *arg, void *connection, const char *url, const char *method,
                        const char *version, const char *data, size_t *length, void **request)
{
    struct exchange *x = *request;
    (void)version;
    if (!x) return begin(arg, connection, url, method, request);
    if (*length) return take_body(x, data, length);
    pthread_mutex_lock(&x->lock);
    bool coming = x->state == EXCHANGE_COMING;
    pthread_mutex_unlock(&x->lock);
    return coming ? hand_over(x) : take_answer(x);
}

/* ---- what was asked ---- */

const char *exchange_method(const struct exchange *x)
{
    return x->method;
}

const char *exchange_path(const struct exchange *x)
{
    return x->path;
}

const char *exchange_query(struct exchange *x, const char *name)
{
    return pairs_find(&x->asked, MHD_QUERY, name);
}

const char *exchange_header(struct exchange *x, const char *name)
{
    return pairs_find(&x->asked, MHD_HEADER, name);
}

struct chat_text exchange_body(const struct exchange *x)
{
    return text_of(&x->body);
}

const char *exchange_client(const struct exchange *x)
{
    return x->client;
}

void exchange_set_tag(struct exchange *x, const void *tag)
{
    x->tag = tag;
}

const void *exchange_tag(const struct exchange *x)
{
    return x->tag;
}

/* ---- the answer ---- */

void exchange_set_header(struct exchange *x, const char *name, const char *value)
{
    assert(x->answer.n < EXCHANGE_HEADERS_MAX);
    (void)pairs_add(&x->answer, MHD_HEADER, name, value);
}

/* With both locks. Without memory the connection is closed. */
static void set_response(struct exchange *x, int code, const char *type, void *response)
{
    const struct mhd_api *mhd = x->httpd->mhd;
    x->code = code;
    x->response = response;
    if (!response) return;
    mhd->response_header(response, "Content-Type", type);
    if (x->httpd->quiet) mhd->response_header(response, "Connection", "close");
    for (size_t i = 0; i < x->answer.n; i++)
        mhd->response_header(response, x->answer.at[i].name, x->answer.at[i].value);
}

/* `mode` says whose the bytes are. */
static void answer(struct exchange *x, int code, const char *type, const char *body, size_t length,
                   int mode)
{
    void *data = (void *)(uintptr_t)body;
    enter(x);
    assert(x->state != EXCHANGE_STREAMING);
    set_response(x, code, type, x->httpd->mhd->response_of_buffer(length, data, mode));
    x->sent = (int64_t)length;
    x->state = EXCHANGE_ANSWERED;
    release(x);
}

void exchange_answer(struct exchange *x, int code, const char *type, const char *body,
                     size_t length)
{
    answer(x, code, type, body, length, MHD_COPY);
}

void exchange_answer_static(struct exchange *x, int code, const char *type, const char *body,
                            size_t length)
{
    answer(x, code, type, body, length, MHD_STATIC);
}

/* ---- streams ---- */

/* Gives out what there is, else the connection sleeps until there is more. */
static ssize_t read_stream(void *arg, uint64_t at, char *to, size_t most)
{
    struct exchange *x = arg;
    ssize_t n = 0;
    (void)at;
    pthread_mutex_lock(&x->lock);
    size_t left = x->out.length - x->out_at;
    if (x->gone || x->out.failed) {
        n = MHD_READER_FAULT;
    } else if (left) {
        n = (ssize_t)(left < most ? left : most);
        memcpy(to, x->out.data + x->out_at, (size_t)n);
        x->out_at += (size_t)n;
        if (x->out_at == x->out.length) x->out_at = x->out.length = 0;
    } else if (x->released) {
        n = MHD_READER_END;
    } else {
        fall_asleep(x);
    }
    pthread_mutex_unlock(&x->lock);
    return n;
}

void exchange_stream(struct exchange *x, int code, const char *type)
{
    enter(x);
    assert(x->state != EXCHANGE_STREAMING);
    x->events = strcmp(type, "text/event-stream") == 0;
    if (x->events) {
        (void)pairs_add(&x->answer, MHD_HEADER, "Cache-Control", "no-store");
        (void)pairs_add(&x->answer, MHD_HEADER, "X-Accel-Buffering", "no");
    }
    set_response(
        x, code, type,
        x->httpd->mhd->response_of_reader(MHD_SIZE_UNKNOWN, EXCHANGE_BLOCK, read_stream, x, NULL));
    x->state = EXCHANGE_STREAMING;
    x->wrote = clock_ns();
    wake(x);
    pthread_mutex_unlock(&x->lock);
    pthread_mutex_unlock(&x->httpd->lock);
}

/* With its lock. */
static bool put_out(struct exchange *x, const char *data, size_t length)
{
    if (x->gone) return false;
    if (x->out_at > x->out.length / 2) { /* so that what was read does not stay */
        memmove(x->out.data, x->out.data + x->out_at, x->out.length - x->out_at);
        x->out.length -= x->out_at;
        x->out_at = 0;
    }
    text_put(&x->out, data, length);
    x->sent += (int64_t)length;
    x->wrote = clock_ns();
    if (x->out.failed || x->out.length - x->out_at > x->httpd->params.unread_max) {
        mark_gone(x);
        return false;
    }
    wake(x);
    return true;
}

bool exchange_write(struct exchange *x, const char *data, size_t length)
{
    pthread_mutex_lock(&x->lock);
    assert(x->state == EXCHANGE_STREAMING && !x->released);
    bool there = put_out(x, data, length);
    pthread_mutex_unlock(&x->lock);
    return there;
}

void exchange_end(struct exchange *x)
{
    enter(x);
    assert(x->state == EXCHANGE_STREAMING);
    release(x);
}

void exchange_heartbeat(struct exchange *x, uint64_t now)
{
    static const char comment[] = ": working\n\n";
    pthread_mutex_lock(&x->lock);
    bool silent = x->events && !x->released && x->connection && now > x->wrote &&
                  (double)(now - x->wrote) * 1e-9 > x->httpd->params.heartbeat_s;
    if (silent) (void)put_out(x, comment, sizeof comment - 1);
    pthread_mutex_unlock(&x->lock);
}

void exchange_on_gone(struct exchange *x, exchange_gone_fn gone, void *arg)
{
    pthread_mutex_lock(&x->lock);
    x->on_gone = gone;
    x->gone_arg = arg;
    if (gone && x->gone) {
        x->on_gone = NULL;
        gone(arg);
    }
    pthread_mutex_unlock(&x->lock);
}
