#include "bench/serve_client.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "bench/serve_sse.h"
#include "hub/curl.h"
#include "hub/http.h"
#include "stats/samples.h"

enum {
    CONNECT_MS = 15000,
    REPLY_MAX = 4096,    /* kept of an answer that is no stream */
    EVENTS = 256,        /* of a wait */
    HOPELESS = 1000,     /* failures without a success: nothing else will come */
    WAIT_MOST_S = 60,    /* of a Retry-After */
    LOOK_NS = 100000000, /* for stalls and Ctrl-C */
};
static const double second_ns = 1e9;

/* One stream at a time; its handle and its memory are used again. */
struct stream {
    struct serve_client *client;
    struct stream *next; /* of the free ones */
    void *easy;
    size_t request;
    bool active, waiting; /* sent; to be sent again */
    bool known, is_stream, done, finished;
    enum serve_outcome fault; /* SERVE_FINE: none was seen in what came */
    uint64_t alive_ns, again_ns;
    long retry_after; /* -1: the server names none */
    struct text_buffer body, reply;
    struct sse_reader reader;
    double *gaps_ns;
    size_t n_gaps, gaps_capacity;
    char error[CURL_ERROR_TEXT], said[CHUNK_ERROR];
};

struct serve_client {
    const struct curl_api *curl;
    const struct serve_target *target;
    const struct serve_prompts *prompts;
    void *multi, *headers;
    int epoll;
    uint64_t timer_ns; /* when libcurl wants to be called; UINT64_MAX: not at all */
    struct stream **streams, *free;
    size_t n_streams;
    /* of the plan under way */
    const struct serve_plan *plan;
    struct serve_log *log;
    struct serve_arrivals arrivals;
    double next_at; /* of the request that comes next, by Poisson */
    uint64_t begun_ns;
    size_t active, waiting, ended, fine;
    uint64_t again_ns; /* when the first of those that wait is to be sent */
    bool no_memory;
};

/* ---- names ---- */

static const char *const outcome_names[SERVE_OUTCOMES][2] = {
    {"ok", "answered"},
    {"refused", "connection refused"},
    {"closed", "stream cut off"},
    {"timeout", "timed out"},
    {"busy", "429 or 503, busy"},
    {"rejected", "request rejected (3xx, 4xx)"},
    {"server_error", "server error (5xx)"},
    {"no_stream", "no event stream"},
    {"garbage", "events that are no JSON"},
    {"error_event", "error in the stream"},
    {"silent", "no text"},
    {"other", "other"},
};
const char *serve_outcome_name(enum serve_outcome outcome)
{
    return outcome_names[outcome][0];
}
const char *serve_outcome_text(enum serve_outcome outcome)
{
    return outcome_names[outcome][1];
}

void serve_log_free(struct serve_log *log)
{
    free(log->requests);
    free(log->gaps_ns);
    *log = (struct serve_log){.count = 0};
}

/* ---- what libcurl wants to know ---- */

static int on_socket(void *easy, int fd, int wanted, void *arg, void *own)
{
    const struct serve_client *c = arg;
    struct epoll_event event = {.data.fd = fd};
    (void)easy, (void)own;
    if (wanted == CURL_WAIT_REMOVE) {
        epoll_ctl(c->epoll, EPOLL_CTL_DEL, fd, NULL); /* it may be closed already */
        return 0;
    }
    event.events = (wanted & CURL_WAIT_IN ? (uint32_t)EPOLLIN : 0u) |
                   (wanted & CURL_WAIT_OUT ? (uint32_t)EPOLLOUT : 0u);
    if (epoll_ctl(c->epoll, EPOLL_CTL_MOD, fd, &event) == 0) return 0;
    return errno == ENOENT ? epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &event) : -1;
}

static int on_timer(void *multi, long ms, void *arg)
{
    struct serve_client *c = arg;
    (void)multi;
    c->timer_ns = ms < 0 ? UINT64_MAX : clock_ns() + (uint64_t)ms * 1000000;
    return 0;
}

/* ---- what comes ---- */

static struct serve_request *request_of(const struct stream *s)
{
    return &s->client->log->requests[s->request];
}

static bool add_gap(double **list, size_t *count, size_t *capacity, double value)
{
    if (*count == *capacity) {
        const size_t more = *capacity ? 2 * *capacity : 64;
        double *grown = realloc(*list, more * sizeof *grown);
        if (!grown) return false;
        *list = grown;
        *capacity = more;
    }
    (*list)[(*count)++] = value;
    return true;
}

static void take_text(struct stream *s)
{
    struct serve_request *r = request_of(s);
    const uint64_t now = s->alive_ns = clock_ns();
    if (r->chunks == 0)
        r->first_ns = now;
    else if (!add_gap(&s->gaps_ns, &s->n_gaps, &s->gaps_capacity, (double)(now - r->last_ns)))
        s->client->no_memory = true;
    r->last_ns = now;
    r->chunks++;
}

static bool on_event(void *arg, const char *data, size_t length)
{
    struct stream *s = arg;
    struct serve_request *r = request_of(s);
    struct serve_chunk chunk;
    if (!serve_chunk_read(data, length, &chunk)) {
        s->fault = SERVE_GARBAGE;
        serve_error_text(data, length, s->said);
        return false;
    }
    if (chunk.failed) {
        s->fault = SERVE_REPORTED;
        memcpy(s->said, chunk.error, sizeof s->said);
        return false;
    }
    if (chunk.text) take_text(s);
    if (chunk.prompt_tokens >= 0) r->prompt_tokens = chunk.prompt_tokens;
    if (chunk.output_tokens >= 0) r->output_tokens = chunk.output_tokens;
    if (chunk.cached_tokens >= 0) r->cached_tokens = chunk.cached_tokens;
    s->done |= chunk.done;
    s->finished |= chunk.finished;
    return true;
}

/* A stream is one by status and content type. */
static void learn(struct stream *s)
{
    const struct curl_api *curl = s->client->curl;
    static const char wanted[] = "text/event-stream";
    const char *type = NULL;
    long code = 0;
    s->known = true;
    curl->getinfo(s->easy, CURL_INFO_CODE, &code);
    curl->getinfo(s->easy, CURL_INFO_CONTENT_TYPE, &type);
    s->is_stream = code == 200 && type && strncasecmp(type, wanted, sizeof wanted - 1) == 0;
}

static size_t on_bytes(char *data, size_t size, size_t n, void *arg)
{
    struct stream *s = arg;
    n *= size;
    if (!s->known) learn(s);
    if (!s->is_stream) {
        const size_t room = REPLY_MAX - s->reply.length;
        text_put(&s->reply, data, n < room ? n : room);
        return n;
    }
    const enum sse_result result = sse_read(&s->reader, data, n, on_event, s);
    if (result == SSE_TOO_LONG) s->fault = SERVE_GARBAGE;
    if (result == SSE_NO_MEMORY) s->client->no_memory = true;
    return result == SSE_FINE ? n : 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct stream *s = arg;
    char text[HTTP_WORD], *end;
    n *= size;
    if (http_header(line, n, "Retry-After", text, sizeof text)) {
        const long seconds = strtol(text, &end, 10); /* a date is no number that counts */
        s->retry_after = end == text || seconds < 0 ? -1 : seconds;
    }
    return n;
}

/* ---- streams ---- */

static void set_options(const struct serve_client *c, struct stream *s)
{
    const struct curl_api *curl = c->curl;
    const char *authorities = getenv("SSL_CERT_FILE");
    curl->setopt(s->easy, CURL_URL, c->target->url);
    curl->setopt(s->easy, CURL_ERROR_BUFFER, s->error);
    curl->setopt(s->easy, CURL_USER_AGENT, "sol");
    curl->setopt(s->easy, CURL_NO_SIGNAL, 1L);
    curl->setopt(s->easy, CURL_PROTOCOLS, (long)(CURL_HTTP | CURL_HTTPS));
    /* A connection a request, as users have them: on one that is used again libcurl would send a
     * request once more, unseen, where the server has dropped it. */
    curl->setopt(s->easy, CURL_HTTP_VERSION, (long)CURL_HTTP_1_1);
    curl->setopt(s->easy, CURL_FRESH, 1L);
    curl->setopt(s->easy, CURL_NO_REUSE, 1L);
    curl->setopt(s->easy, CURL_CONNECT_TIMEOUT_MS, (long)CONNECT_MS);
    curl->setopt(s->easy, CURL_HEADERS, c->headers);
    curl->setopt(s->easy, CURL_WRITE_FUNCTION, on_bytes);
    curl->setopt(s->easy, CURL_WRITE_DATA, s);
    curl->setopt(s->easy, CURL_HEADER_FUNCTION, on_header);
    curl->setopt(s->easy, CURL_HEADER_DATA, s);
    curl->setopt(s->easy, CURL_PRIVATE, s);
    if (authorities && *authorities) curl->setopt(s->easy, CURL_CA_FILE, authorities);
    if (c->target->key) {
        curl->setopt(s->easy, CURL_AUTHENTICATION, (long)CURL_AUTH_BEARER);
        curl->setopt(s->easy, CURL_BEARER, c->target->key);
    }
}

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for the streams of a load");
}

static enum sol_status take_stream(struct serve_client *c, struct stream **out)
{
    struct stream *s = *out = c->free;
    if (s) {
        c->free = s->next;
        return SOL_OK;
    }
    struct stream **grown = realloc(c->streams, (c->n_streams + 1) * sizeof *grown);
    if (!grown) return no_memory();
    c->streams = grown;
    s = calloc(1, sizeof *s);
    if (!s) return no_memory();
    c->streams[c->n_streams++] = s;
    s->client = c;
    s->easy = c->curl->easy_init();
    if (!s->easy) return no_memory();
    set_options(c, s);
    *out = s;
    return SOL_OK;
}

static void free_stream(struct serve_client *c, struct stream *s)
{
    if (s->active) c->curl->multi_remove(c->multi, s->easy);
    if (s->easy) c->curl->easy_cleanup(s->easy);
    text_buffer_free(&s->body);
    text_buffer_free(&s->reply);
    sse_free(&s->reader);
    free(s->gaps_ns);
    free(s);
}

static void give_stream(struct serve_client *c, struct stream *s)
{
    s->next = c->free;
    c->free = s;
}

/* The body is there. */
static enum sol_status send_request(struct serve_client *c, struct stream *s)
{
    struct serve_request *r = request_of(s);
    sse_restart(&s->reader);
    s->known = s->is_stream = s->done = s->finished = s->waiting = false;
    s->fault = SERVE_FINE;
    s->retry_after = -1;
    s->reply.length = s->n_gaps = 0;
    s->error[0] = s->said[0] = '\0';
    c->curl->setopt(s->easy, CURL_POST_DATA, s->body.data);
    c->curl->setopt(s->easy, CURL_POST_SIZE, (int64_t)s->body.length);
    s->alive_ns = clock_ns();
    if (!r->begun) r->start_ns = s->alive_ns;
    r->begun = s->active = true;
    if (c->curl->multi_add(c->multi, s->easy) != 0) {
        s->active = false;
        return status_set(SOL_E_INTERNAL, "libcurl takes no further request");
    }
    c->active++;
    if ((int64_t)c->active > c->log->peak) c->log->peak = (int64_t)c->active;
    return SOL_OK;
}

/* ---- requests ---- */

static enum sol_status add_request(struct serve_client *c, double at_s, size_t *index)
{
    struct serve_log *log = c->log;
    const struct serve_plan *plan = c->plan;
    if (log->count == log->capacity) {
        const size_t more = log->capacity ? 2 * log->capacity : 256;
        struct serve_request *grown = realloc(log->requests, more * sizeof *grown);
        if (!grown) return no_memory();
        log->requests = grown;
        log->capacity = more;
    }
    *index = log->count++;
    log->requests[*index] =
        (struct serve_request){.asked = serve_size_of(plan->lengths, plan->seed, *index),
                               .at_s = at_s,
                               .prompt_tokens = -1,
                               .output_tokens = -1,
                               .cached_tokens = -1,
                               .gap_median_ns = (double)NAN};
    return SOL_OK;
}

static enum sol_status begin_request(struct serve_client *c, double at_s)
{
    struct stream *s;
    size_t index;
    SOL_TRY(add_request(c, at_s, &index));
    SOL_TRY(take_stream(c, &s));
    s->request = index;
    SOL_TRY(serve_prompts_body(c->prompts, c->log->requests[index].asked, c->plan->lengths->prefix,
                               c->plan->first + index, &s->body));
    return send_request(c, s);
}

static double seconds_since(const struct serve_client *c)
{
    return (double)(clock_ns() - c->begun_ns) / second_ns;
}

/* Whether the plan has another request at all. */
static bool has_more(const struct serve_client *c)
{
    const struct serve_plan *p = c->plan;
    if ((int64_t)c->log->count >= p->count || c->log->cut) return false;
    if (p->seconds <= 0) return true;
    return p->arrival == SERVE_POISSON ? c->next_at < p->seconds : seconds_since(c) < p->seconds;
}

static bool is_due(const struct serve_client *c)
{
    const struct serve_plan *p = c->plan;
    const size_t under_way = c->active + c->waiting;
    if (under_way >= SERVE_STREAMS_MAX) return false;
    if (p->arrival == SERVE_POISSON) return c->next_at <= seconds_since(c);
    return p->arrival == SERVE_BURST || under_way < (size_t)p->concurrency;
}

static enum sol_status send_waiting(struct serve_client *c)
{
    const uint64_t now = clock_ns();
    if (now < c->again_ns) return SOL_OK;
    c->again_ns = UINT64_MAX;
    for (size_t i = 0; c->waiting && i < c->n_streams; i++) {
        struct stream *s = c->streams[i];
        if (s->waiting && s->again_ns <= now) {
            c->waiting--;
            SOL_TRY(send_request(c, s));
        } else if (s->waiting && s->again_ns < c->again_ns) {
            c->again_ns = s->again_ns;
        }
    }
    return SOL_OK;
}

static enum sol_status begin_due(struct serve_client *c)
{
    SOL_TRY(send_waiting(c));
    while (has_more(c) && is_due(c)) {
        const bool poisson = c->plan->arrival == SERVE_POISSON;
        SOL_TRY(begin_request(c, poisson ? c->next_at : -1));
        if (poisson) c->next_at = serve_arrivals_next(&c->arrivals);
    }
    return SOL_OK;
}

/* ---- how they end ---- */

static enum serve_outcome outcome_of_code(long code)
{
    if (code == 429 || code == 503) return SERVE_BUSY;
    return code >= 500 ? SERVE_BROKEN : SERVE_REJECTED;
}

static enum serve_outcome outcome_of(const struct stream *s, int result, long code)
{
    if (s->fault != SERVE_FINE) return s->fault;
    if (!s->done && result) {
        const bool never = result == CURL_E_HOST || result == CURL_E_CONNECT;
        const bool cut = result == CURL_E_PARTIAL || result == CURL_E_NOTHING ||
                         result == CURL_E_SEND || result == CURL_E_RECEIVE ||
                         result == CURL_E_HTTP2;
        return never                      ? SERVE_REFUSED
               : result == CURL_E_TIMEOUT ? SERVE_TIMED_OUT
               : cut                      ? SERVE_CLOSED
                                          : SERVE_OTHER;
    }
    if (code != 200) return outcome_of_code(code);
    if (!s->known) return SERVE_CLOSED; /* 200, and not a byte */
    if (!s->is_stream) return SERVE_NO_STREAM;
    if (!s->done && !s->finished) return SERVE_CLOSED;
    return s->client->log->requests[s->request].chunks ? SERVE_FINE : SERVE_SILENT;
}

static void keep_gaps(struct serve_client *c, struct stream *s, struct serve_request *r)
{
    struct serve_log *log = c->log;
    for (size_t i = 0; i < s->n_gaps; i++)
        if (!add_gap(&log->gaps_ns, &log->n_gaps, &log->gaps_capacity, s->gaps_ns[i]))
            c->no_memory = true;
    if (!s->n_gaps) return;
    samples_sort(s->gaps_ns, s->n_gaps);
    r->gap_median_ns = samples_percentile(s->gaps_ns, s->n_gaps, 0.5);
}

/* What the first of a kind said. */
static void keep_example(struct serve_client *c, struct stream *s, enum serve_outcome outcome,
                         int result, long code)
{
    char *to = c->log->example[outcome], said[CHUNK_ERROR];
    if (*to) return;
    serve_error_text(s->reply.data, s->reply.length, said);
    if (*s->said)
        snprintf(to, CHUNK_ERROR, "%s", s->said);
    else if (code && code != 200)
        snprintf(to, CHUNK_ERROR, "%ld%s%.180s", code, *said ? ": " : "", said);
    else if (result)
        snprintf(to, CHUNK_ERROR, "%s", *s->error ? s->error : c->curl->strerror(result));
    else
        snprintf(to, CHUNK_ERROR, "%s", said);
}

/* Waits as the server says, and is sent again; the user's time runs on. */
static bool send_again(struct serve_client *c, struct stream *s, const struct serve_request *r)
{
    const uint64_t now = clock_ns();
    const double waited = (double)(now - r->start_ns) / second_ns;
    const long asked = s->retry_after < 0 ? 1 : s->retry_after;
    if (!c->target->wait || waited > c->target->timeout_s) return false;
    s->waiting = true;
    s->again_ns = now + (uint64_t)(asked < WAIT_MOST_S ? asked : WAIT_MOST_S) * 1000000000 +
                  10000000; /* a server that says 0 is not asked without a pause */
    if (s->again_ns < c->again_ns) c->again_ns = s->again_ns;
    c->waiting++;
    return true;
}

static void end_request(struct serve_client *c, struct stream *s, enum serve_outcome outcome,
                        int result, long code)
{
    struct serve_request *r = request_of(s);
    c->curl->multi_remove(c->multi, s->easy);
    s->active = false;
    c->active--;
    if (outcome == SERVE_BUSY) {
        r->busy++;
        if (send_again(c, s, r)) return;
    }
    r->outcome = outcome;
    c->ended++;
    if (outcome == SERVE_FINE) {
        c->fine++;
        keep_gaps(c, s, r);
    } else {
        keep_example(c, s, outcome, result, code);
    }
    if (!c->fine && c->ended >= HOPELESS) c->log->cut = true;
    give_stream(c, s);
}

static void end_finished(struct serve_client *c)
{
    const struct curl_message *message;
    int left;
    while ((message = c->curl->multi_info_read(c->multi, &left))) {
        struct stream *s = NULL;
        long code = 0;
        const int result = message->data.result;
        if (message->what != CURL_MESSAGE_DONE) continue;
        c->curl->getinfo(message->easy, CURL_INFO_PRIVATE, &s);
        c->curl->getinfo(message->easy, CURL_INFO_CODE, &code);
        end_request(c, s, outcome_of(s, result, code), result, code);
    }
}

static void end_stalled(struct serve_client *c)
{
    const uint64_t now = clock_ns();
    for (size_t i = 0; i < c->n_streams; i++) {
        struct stream *s = c->streams[i];
        if (!s->active || (double)(now - s->alive_ns) < c->target->timeout_s * second_ns) continue;
        snprintf(s->said, sizeof s->said, "no text for %g s", c->target->timeout_s);
        end_request(c, s, SERVE_TIMED_OUT, 0, 0);
    }
}

/* ---- the loop ---- */

/* Until something comes or is due. */
static void wait_for(struct serve_client *c, uint64_t look_ns)
{
    struct pollfd fd = {.fd = c->epoll, .events = POLLIN};
    uint64_t until = look_ns < c->timer_ns ? look_ns : c->timer_ns;
    const uint64_t now = clock_ns();
    if (c->plan->arrival == SERVE_POISSON && has_more(c)) {
        const uint64_t due = c->begun_ns + (uint64_t)(c->next_at * second_ns);
        if (due < until && c->active + c->waiting < SERVE_STREAMS_MAX) until = due;
    }
    if (c->again_ns < until) until = c->again_ns;
    const uint64_t ns = until > now ? until - now : 0;
    ppoll(&fd, 1, &(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
}

static void handle(struct serve_client *c)
{
    struct epoll_event events[EVENTS];
    int running;
    const int n = epoll_wait(c->epoll, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        const uint32_t seen = events[i].events;
        const int happened = (seen & EPOLLIN ? CURL_IS_IN : 0) |
                             (seen & EPOLLOUT ? CURL_IS_OUT : 0) |
                             (seen & (EPOLLERR | EPOLLHUP) ? CURL_IS_ERROR : 0);
        c->curl->multi_socket(c->multi, events[i].data.fd, happened, &running);
    }
    if (c->timer_ns <= clock_ns()) {
        c->timer_ns = UINT64_MAX;
        c->curl->multi_socket(c->multi, CURL_SOCKET_TIMER, 0, &running);
    }
}

static enum sol_status drive(struct serve_client *c, struct progress *progress)
{
    uint64_t look = 0;
    while (has_more(c) || c->active || c->waiting) {
        SOL_TRY(begin_due(c));
        wait_for(c, look);
        handle(c);
        end_finished(c);
        if (c->no_memory) return no_memory();
        if (clock_ns() < look) continue;
        look = clock_ns() + LOOK_NS;
        end_stalled(c);
        if (progress) progress_update(progress, c->ended);
        SOL_TRY(interrupt_check());
    }
    return SOL_OK;
}

static double cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* What an error left under way. */
static void abandon(struct serve_client *c)
{
    for (size_t i = 0; i < c->n_streams; i++) {
        struct stream *s = c->streams[i];
        if (s->active) c->curl->multi_remove(c->multi, s->easy);
        if (s->active || s->waiting) request_of(s)->begun = false;
        s->active = s->waiting = false;
    }
    c->active = c->waiting = 0;
    c->free = NULL;
    for (size_t i = 0; i < c->n_streams; i++)
        if (c->streams[i]->easy) give_stream(c, c->streams[i]);
}

/* A file descriptor a stream, and some of the program's own; or as many as there may be. */
static enum sol_status make_room(int64_t streams, bool exactly)
{
    struct rlimit limit;
    rlim_t needed = (rlim_t)streams + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return SOL_OK;
    if (limit.rlim_max < needed && !exactly) needed = limit.rlim_max;
    if (limit.rlim_max < needed)
        return status_set(SOL_E_UNSUPPORTED,
                          "%lld streams need as many open files, and %llu are allowed; raise "
                          "ulimit -n",
                          (long long)streams, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = needed;
    setrlimit(RLIMIT_NOFILE, &limit);
    return SOL_OK;
}

static int64_t streams_of(const struct serve_plan *p)
{
    const int64_t most = p->arrival == SERVE_CLOSED_LOOP ? p->concurrency : p->count;
    return most < SERVE_STREAMS_MAX ? most : SERVE_STREAMS_MAX;
}

enum sol_status serve_client_run(struct serve_client *c, const struct serve_plan *plan,
                                 struct progress *progress, struct serve_log *log)
{
    *log = (struct serve_log){.count = 0};
    SOL_TRY(make_room(streams_of(plan), plan->arrival != SERVE_POISSON));
    c->plan = plan;
    c->log = log;
    c->ended = c->fine = 0;
    c->again_ns = UINT64_MAX;
    if (plan->arrival == SERVE_POISSON) {
        serve_arrivals_begin(&c->arrivals, plan->rate, plan->seed);
        c->next_at = serve_arrivals_next(&c->arrivals);
    }
    const double cpu = cpu_seconds();
    c->begun_ns = log->begun_ns = clock_ns();
    enum sol_status status = drive(c, progress);
    log->wall_s = seconds_since(c);
    log->cpu_s = cpu_seconds() - cpu;
    abandon(c);
    return status;
}

/* ---- life ---- */

static enum sol_status set_up(struct serve_client *c)
{
    void *list = c->curl->list_append(NULL, "Content-Type: application/json");
    if (!list) return no_memory();
    c->headers = list;
    if (!c->curl->list_append(list, "Accept: text/event-stream")) return no_memory();
    if (!c->curl->list_append(list, "Expect:")) return no_memory(); /* long bodies go at once */
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll < 0) return status_set(SOL_E_IO, "epoll_create1: %s", strerror(errno));
    c->multi = c->curl->multi_init();
    if (!c->multi) return no_memory();
    c->curl->multi_setopt(c->multi, CURL_MULTI_SOCKET_FUNCTION, on_socket);
    c->curl->multi_setopt(c->multi, CURL_MULTI_SOCKET_DATA, c);
    c->curl->multi_setopt(c->multi, CURL_MULTI_TIMER_FUNCTION, on_timer);
    c->curl->multi_setopt(c->multi, CURL_MULTI_TIMER_DATA, c);
    return SOL_OK;
}

enum sol_status serve_client_create(const struct serve_target *target,
                                    const struct serve_prompts *prompts, struct serve_client **out)
{
    const struct curl_api *curl;
    *out = NULL;
    SOL_TRY(curl_load(&curl));
    struct serve_client *c = calloc(1, sizeof *c);
    if (!c) return no_memory();
    *c = (struct serve_client){
        .curl = curl, .target = target, .prompts = prompts, .epoll = -1, .timer_ns = UINT64_MAX};
    enum sol_status status = set_up(c);
    if (status != SOL_OK) {
        serve_client_destroy(c);
        return status;
    }
    *out = c;
    return SOL_OK;
}

void serve_client_destroy(struct serve_client *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_streams; i++) free_stream(c, c->streams[i]);
    free(c->streams);
    if (c->multi) c->curl->multi_cleanup(c->multi);
    if (c->epoll >= 0) close(c->epoll);
    c->curl->list_free(c->headers);
    free(c);
}
