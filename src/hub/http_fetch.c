/* A file over several connections. Each takes the next piece that nobody has; one that breaks is
 * tried again where it broke. A server that knows no ranges sends all over one connection. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "hub/http.h"
#include "hub/http_private.h"

enum { POLL_MS = 200, CONNECTIONS_MAX = 32, SAVE_NS = 1000000000 };

enum refusal {
    FINE,
    NO_RANGES,  /* all of it comes */
    OTHER_SIZE, /* than the list of files says */
    OTHER_PLACE,
    TOO_MUCH,
    DISK, /* the message is set */
};

struct lane {
    struct fetch *fetch;
    void *easy; /* NULL: idle */
    int64_t piece, at, end;
    int64_t first, last, total; /* of the answer's Content-Range; -1: it has none */
    long asked;                 /* Retry-After */
    enum refusal refusal;
    char error[CURL_ERROR_TEXT];
};

struct fetch {
    struct http *http;
    const char *url;
    struct part_file *file;
    struct lane lanes[CONNECTIONS_MAX];
    int n_lanes;
    bool whole;     /* no ranges: one lane for everything */
    long failures;  /* since the last byte */
    uint64_t after; /* no lane begins before */
    uint64_t saved;
    void (*on_bytes)(void *, int64_t);
    void *arg;
    enum sol_status disk;
};

/* ---- what comes ---- */

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct lane *l = arg;
    char text[HTTP_TEXT];
    n *= size;
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) l->first = l->last = l->total = -1, l->asked = 0;
    if (http_header(line, n, "Retry-After", text, sizeof text)) l->asked = atol(text);
    if (http_header(line, n, "Content-Range", text, sizeof text) &&
        sscanf(text, "bytes %" SCNd64 "-%" SCNd64 "/%" SCNd64, &l->first, &l->last, &l->total) != 3)
        l->first = l->last = l->total = -1;
    return n;
}

/* Looked at before each byte that is kept. */
static enum refusal check(const struct lane *l, long code, size_t n)
{
    const struct part_file *file = l->fetch->file;
    if (code == 200 && !l->fetch->whole) return NO_RANGES;
    if (code == 206 && l->total >= 0 && l->total != file->size) return OTHER_SIZE;
    if (code == 206 && (l->fetch->whole || l->last != l->end - 1)) return OTHER_PLACE;
    if ((int64_t)n > l->end - l->at) return l->fetch->whole ? OTHER_SIZE : TOO_MUCH;
    return FINE;
}

static size_t on_bytes(char *data, size_t size, size_t n, void *arg)
{
    struct lane *l = arg;
    struct fetch *f = l->fetch;
    long code = 0;
    n *= size;
    f->http->curl->getinfo(l->easy, CURL_INFO_CODE, &code);
    if (code != 200 && code != 206) return n; /* the text of an error */
    l->refusal = check(l, code, n);
    if (l->refusal == FINE) {
        f->disk = part_file_write(f->file, l->at, data, n);
        if (f->disk != SOL_OK) l->refusal = DISK;
    }
    if (l->refusal != FINE) return 0;
    l->at += (int64_t)n;
    f->failures = 0;
    if (f->on_bytes) f->on_bytes(f->arg, (int64_t)n);
    return n;
}

/* ---- lanes ---- */

static bool is_taken(const struct fetch *f, int64_t piece)
{
    for (int i = 0; i < f->n_lanes; i++)
        if (f->lanes[i].easy && f->lanes[i].piece == piece) return true;
    return false;
}

/* The next piece, or all of it; false where nothing is left to begin. */
static bool take_work(const struct fetch *f, struct lane *l)
{
    const struct part_file *file = f->file;
    if (f->whole) {
        *l = (struct lane){.end = file->size};
        return part_file_done(file) < file->size && !is_taken(f, 0);
    }
    for (int64_t i = 0; i < file->pieces; i++) {
        if (part_file_next(file, i) == part_file_end(file, i) || is_taken(f, i)) continue;
        *l =
            (struct lane){.piece = i, .at = part_file_next(file, i), .end = part_file_end(file, i)};
        return true;
    }
    return false;
}

static enum sol_status begin(struct fetch *f, struct lane *l)
{
    const struct curl_api *c = f->http->curl;
    char range[64];
    l->fetch = f;
    l->first = l->last = l->total = -1;
    l->easy = http_request(f->http, f->url, l->error);
    if (!l->easy) return status_set(SOL_E_MEMORY, "no memory for a connection");
    snprintf(range, sizeof range, "%" PRId64 "-%" PRId64, l->at, l->end - 1);
    if (!f->whole) c->setopt(l->easy, CURL_RANGE, range);
    c->setopt(l->easy, CURL_WRITE_FUNCTION, on_bytes);
    c->setopt(l->easy, CURL_WRITE_DATA, l);
    c->setopt(l->easy, CURL_HEADER_FUNCTION, on_header);
    c->setopt(l->easy, CURL_HEADER_DATA, l);
    c->setopt(l->easy, CURL_PRIVATE, l);
    c->multi_add(f->http->multi, l->easy);
    return SOL_OK;
}

static void stop(struct fetch *f, struct lane *l)
{
    if (!l->easy) return;
    f->http->curl->multi_remove(f->http->multi, l->easy);
    f->http->curl->easy_cleanup(l->easy);
    l->easy = NULL;
}

/* Everything again over one connection: what came over several stays unused. */
static void go_whole(struct fetch *f)
{
    for (int i = 0; i < f->n_lanes; i++) stop(f, &f->lanes[i]);
    f->whole = true;
}

static void forget(struct fetch *f)
{
    if (f->on_bytes) f->on_bytes(f->arg, -part_file_done(f->file));
    part_file_restart(f->file);
}

static enum sol_status refused(struct fetch *f, const struct lane *l)
{
    switch (l->refusal) {
    case NO_RANGES:
        go_whole(f);
        return SOL_OK;
    case OTHER_SIZE:
        return status_set(
            SOL_E_FORMAT, "%s: the server sends %lld bytes, the list of files says %lld", f->url,
            (long long)(l->total >= 0 ? l->total : l->end + 1), (long long)f->file->size);
    case OTHER_PLACE:
    case TOO_MUCH:
        return status_set(SOL_E_FORMAT, "%s: the server sends other bytes than were asked for",
                          f->url);
    default:
        return f->disk;
    }
}

static enum sol_status ended(struct fetch *f, struct lane *l, int result)
{
    long code = 0;
    f->http->curl->getinfo(l->easy, CURL_INFO_CODE, &code);
    const bool all = l->at == l->end;
    struct lane was = *l;
    stop(f, l);
    if (was.refusal != FINE) return refused(f, &was);
    if (all) return SOL_OK;
    const bool short_of_it = !result && (code == 200 || code == 206);
    if (!short_of_it && !http_may_pass(result, code))
        return http_failed(f->http, f->url, result, code, was.error);
    if (++f->failures >= f->http->attempts) {
        if (short_of_it) return status_set(SOL_E_IO, "%s: the server stops too early", f->url);
        return http_failed(f->http, f->url, result, code, was.error);
    }
    if (f->whole) forget(f); /* it begins again */
    f->after = clock_ns() + http_pause(f->failures, was.asked);
    return SOL_OK;
}

/* ---- the loop ---- */

static enum sol_status begin_lanes(struct fetch *f, int *busy)
{
    *busy = 0;
    for (int i = 0; i < f->n_lanes; i++) {
        struct lane *l = &f->lanes[i], next;
        if (!l->easy && clock_ns() >= f->after && take_work(f, &next)) {
            if (f->whole && part_file_done(f->file)) forget(f);
            *l = next;
            SOL_TRY(begin(f, l));
        }
        *busy += l->easy != NULL;
    }
    return SOL_OK;
}

static enum sol_status end_lanes(struct fetch *f)
{
    const struct curl_api *c = f->http->curl;
    const struct curl_message *message;
    int left;
    while ((message = c->multi_info_read(f->http->multi, &left))) {
        if (message->what != CURL_MESSAGE_DONE) continue;
        struct lane *l = NULL;
        const int result = message->data.result;
        c->getinfo(message->easy, CURL_INFO_PRIVATE, &l);
        SOL_TRY(ended(f, l, result));
    }
    return SOL_OK;
}

static enum sol_status transfer(struct fetch *f)
{
    const struct curl_api *c = f->http->curl;
    for (;;) {
        int busy, running;
        SOL_TRY(interrupt_check());
        SOL_TRY(begin_lanes(f, &busy));
        if (!busy && part_file_done(f->file) == f->file->size) return SOL_OK;
        c->multi_perform(f->http->multi, &running);
        SOL_TRY(end_lanes(f));
        c->multi_poll(f->http->multi, NULL, 0, POLL_MS, NULL);
        if (clock_ns() - f->saved < SAVE_NS) continue;
        SOL_TRY(part_file_save(f->file));
        f->saved = clock_ns();
    }
}

enum sol_status http_fetch(struct http *http, const char *url, struct part_file *file,
                           int connections, void (*on_bytes_)(void *, int64_t), void *arg)
{
    struct fetch *f = calloc(1, sizeof *f);
    if (!f) return status_set(SOL_E_MEMORY, "no memory to fetch a file");
    *f = (struct fetch){.http = http,
                        .url = url,
                        .file = file,
                        .n_lanes = connections < CONNECTIONS_MAX ? connections : CONNECTIONS_MAX,
                        .on_bytes = on_bytes_,
                        .arg = arg};
    enum sol_status status = transfer(f);
    for (int i = 0; i < f->n_lanes; i++) stop(f, &f->lanes[i]);
    free(f);
    return status;
}
