#include "hub/http.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/interrupt.h"
#include "base/status.h"
#include "hub/http_private.h"

enum {
    CONNECT_MS = 15000,
    SLOW_BYTES = 1024, /* a second, for so many: then a connection counts as dead */
    SLOW_SECONDS = 30,
    REDIRECTS = 10,
    ATTEMPTS = 6,
    POLL_MS = 200,
};

/* ---- life ---- */

enum sol_status http_create(const char *token, struct http **out)
{
    const struct curl_api *curl;
    *out = NULL;
    SOL_TRY(curl_load(&curl));
    struct http *http = calloc(1, sizeof *http);
    if (!http) return status_set(SOL_E_MEMORY, "no memory to fetch anything");
    *http = (struct http){.curl = curl, .attempts = ATTEMPTS};
    http->multi = curl->multi_init();
    http->token = token && *token ? strdup(token) : NULL;
    if (http->multi && (http->token || !token || !*token)) {
        *out = http;
        return SOL_OK;
    }
    http_destroy(http);
    return status_set(SOL_E_MEMORY, "no memory to fetch anything");
}

void http_destroy(struct http *http)
{
    if (!http) return;
    if (http->multi) http->curl->multi_cleanup(http->multi);
    free(http->token);
    free(http);
}

void http_attempts(struct http *http, long attempts)
{
    http->attempts = attempts;
}

/* ---- what all requests have ---- */

/* Certificates, where a user has some of his own, by the name that other programs read. */
static const char *ca_file(void)
{
    const char *file = getenv("SSL_CERT_FILE");
    return file && *file ? file : NULL;
}

void *http_request(const struct http *http, const char *url, char error[CURL_ERROR_TEXT])
{
    const struct curl_api *c = http->curl;
    void *easy = c->easy_init();
    if (!easy) return NULL;
    const long secure = strncmp(url, "https:", 6) == 0 ? CURL_HTTPS : CURL_HTTP | CURL_HTTPS;
    error[0] = '\0';
    c->setopt(easy, CURL_URL, url);
    c->setopt(easy, CURL_ERROR_BUFFER, error);
    c->setopt(easy, CURL_USER_AGENT, "sol");
    c->setopt(easy, CURL_NO_SIGNAL, 1L);
    c->setopt(easy, CURL_FOLLOW, 1L);
    c->setopt(easy, CURL_MAX_REDIRECTS, (long)REDIRECTS);
    c->setopt(easy, CURL_PROTOCOLS, secure);
    c->setopt(easy, CURL_REDIRECT_PROTOCOLS, secure);
    c->setopt(easy, CURL_CONNECT_TIMEOUT_MS, (long)CONNECT_MS);
    c->setopt(easy, CURL_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    c->setopt(easy, CURL_LOW_SPEED_TIME, (long)SLOW_SECONDS);
    if (ca_file()) c->setopt(easy, CURL_CA_FILE, ca_file());
    if (http->token) {
        c->setopt(easy, CURL_AUTHENTICATION, (long)CURL_AUTH_BEARER);
        c->setopt(easy, CURL_BEARER, http->token);
    }
    return easy;
}

bool http_may_pass(int result, long code)
{
    static const int passing[] = {CURL_E_HOST,    CURL_E_CONNECT, CURL_E_PARTIAL,
                                  CURL_E_TIMEOUT, CURL_E_TLS,     CURL_E_NOTHING,
                                  CURL_E_SEND,    CURL_E_RECEIVE, CURL_E_HTTP2};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (result == passing[i]) return true;
    return code == 408 || code == 429 || code >= 500;
}

bool http_header(const char *line, size_t n, const char *name, char *text, size_t size)
{
    const size_t m = strlen(name);
    if (n <= m || strncasecmp(line, name, m) != 0 || line[m] != ':') return false;
    const char *at = line + m + 1, *end = line + n;
    while (at < end && isspace((unsigned char)*at)) at++;
    while (end > at && isspace((unsigned char)end[-1])) end--;
    snprintf(text, size, "%.*s", (int)(end - at), at);
    return true;
}

/* Half a second, one, two, up to eight; what a busy server asks for, up to a minute. */
uint64_t http_pause(long n, long asked)
{
    const uint64_t half = 500000000, second = 1000000000;
    const uint64_t pause = half << (n - 1 < 4 ? n - 1 : 4);
    if (asked <= 0) return pause;
    return (uint64_t)(asked < 60 ? asked : 60) * second;
}

enum sol_status http_failed(const struct http *http, const char *url, int result, long code,
                            const char *error)
{
    if (!result && code) return status_set(SOL_E_IO, "%s: the server answers %ld", url, code);
    return status_set(SOL_E_IO, "%s: %s", url, *error ? error : http->curl->strerror(result));
}

/* ---- an answer as a whole ---- */

struct get {
    struct http_answer *answer;
    size_t limit;
    bool over; /* there is more than the limit */
    long asked;
};

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct get *g = arg;
    struct http_answer *a = g->answer;
    n *= size;
    g->over = n > g->limit - a->length;
    if (g->over) return 0;
    char *more = realloc(a->body, a->length + n + 1);
    if (!more) return 0;
    memcpy(more + a->length, data, n);
    a->body = more;
    a->length += n;
    a->body[a->length] = '\0';
    return n;
}

/* Of the last of several answers: what a redirection said is overwritten. */
static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct get *g = arg;
    struct http_answer *a = g->answer;
    char text[HTTP_WORD];
    n *= size;
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) a->error[0] = a->message[0] = '\0', g->asked = 0;
    http_header(line, n, "X-Error-Code", a->error, sizeof a->error);
    http_header(line, n, "X-Error-Message", a->message, sizeof a->message);
    if (http_header(line, n, "Retry-After", text, sizeof text)) g->asked = atol(text);
    return n;
}

/* Until the one request is over. */
static enum sol_status wait_for(const struct http *http, int *result)
{
    const struct curl_api *c = http->curl;
    const struct curl_message *message;
    for (;;) {
        int running, left;
        SOL_TRY(interrupt_check());
        c->multi_perform(http->multi, &running);
        while ((message = c->multi_info_read(http->multi, &left)))
            if (message->what == CURL_MESSAGE_DONE) {
                *result = message->data.result;
                return SOL_OK;
            }
        c->multi_poll(http->multi, NULL, 0, POLL_MS, NULL);
    }
}

static enum sol_status get_once(struct http *http, const char *url, struct get *g, int *result,
                                char error[CURL_ERROR_TEXT])
{
    const struct curl_api *c = http->curl;
    free(g->answer->body);
    *g->answer = (struct http_answer){.body = calloc(1, 1)};
    void *easy = http_request(http, url, error);
    if (!easy || !g->answer->body) {
        if (easy) c->easy_cleanup(easy);
        return status_set(SOL_E_MEMORY, "no memory to fetch %s", url);
    }
    c->setopt(easy, CURL_WRITE_FUNCTION, on_body);
    c->setopt(easy, CURL_WRITE_DATA, g);
    c->setopt(easy, CURL_HEADER_FUNCTION, on_header);
    c->setopt(easy, CURL_HEADER_DATA, g);
    c->multi_add(http->multi, easy);
    enum sol_status status = wait_for(http, result);
    c->getinfo(easy, CURL_INFO_CODE, &g->answer->code);
    c->multi_remove(http->multi, easy);
    c->easy_cleanup(easy);
    return status;
}

static enum sol_status pause_for(uint64_t ns)
{
    const uint64_t step = 50000000;
    for (uint64_t waited = 0; waited < ns; waited += step) {
        SOL_TRY(interrupt_check());
        nanosleep(&(struct timespec){.tv_nsec = (long)step}, NULL);
    }
    return SOL_OK;
}

enum sol_status http_get(struct http *http, const char *url, size_t limit, struct http_answer *out)
{
    struct get g = {.answer = out, .limit = limit};
    char error[CURL_ERROR_TEXT];
    int result = 0;
    *out = (struct http_answer){.body = NULL};
    for (long n = 1;; n++) {
        SOL_TRY(get_once(http, url, &g, &result, error));
        if (g.over) return status_set(SOL_E_FORMAT, "%s: over %zu bytes", url, limit);
        const bool passing = http_may_pass(result, out->code);
        if (!passing || n == http->attempts) break;
        SOL_TRY(pause_for(http_pause(n, g.asked)));
    }
    if (result || out->code == 429 || out->code >= 500)
        return http_failed(http, url, result, out->code, error);
    return SOL_OK;
}
