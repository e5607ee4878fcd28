/* What all requests have in common: routes, errors, the end. */
#include "serve/server.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/escape.h"
#include "base/interrupt.h"
#include "base/json_value.h"
#include "chat/json.h"
#include "serve/api.h"
#include "serve/server_private.h"

/* ---- errors ---- */

int error_http(enum sol_status status)
{
    switch (status) {
    case SOL_OK:
        return 200;
    case SOL_E_ARGUMENT:
    case SOL_E_FORMAT:
    case SOL_E_UNSUPPORTED:
        return 400;
    case SOL_E_MEMORY:
    case SOL_E_INTERRUPTED:
        return 503;
    default:
        return 500;
    }
}

static const char *error_type(int http)
{
    switch (http) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return http < 500 ? "invalid_request_error" : "server_error";
    }
}

static const char *error_code(int http)
{
    return http == 429 ? "rate_limit_exceeded" : http == 503 ? "unavailable" : NULL;
}

json_t *error_json(int http, const char *message, const struct api_fault *fault)
{
    const char *text = message ? message : sol_last_error();
    const char *code = fault && fault->code ? fault->code : error_code(http);
    return json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message",
                     json_text(text, strlen(text)), "type", error_type(http), "param",
                     fault && fault->param[0] ? fault->param : NULL, "code", code);
}

void answer_json(struct exchange *x, int code, json_t *value)
{
    struct text_buffer text = {0};
    if (value) chat_json_print(value, &text);
    json_decref(value);
    if (text.length && !text.failed)
        exchange_answer(x, code, "application/json", text.data, text.length);
    else
        exchange_answer_static(x, 503, "application/json", CHAT_TEXT("{\"error\":null}").data, 14);
    text_buffer_free(&text);
}

void stream_json(struct exchange *x, json_t *value)
{
    struct text_buffer text = {0};
    if (!value) return;
    text_puts(&text, "data: ");
    chat_json_print(value, &text);
    text_puts(&text, "\n\n");
    json_decref(value);
    if (!text.failed) exchange_write(x, text.data, text.length);
    text_buffer_free(&text);
}

void stream_end(struct exchange *x)
{
    static const char done[] = "data: [DONE]\n\n";
    exchange_write(x, done, sizeof done - 1);
    exchange_end(x);
}

void answer_error(struct exchange *x, int code, const char *message, const struct api_fault *fault,
                  double wait_s)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%.0f", ceil(wait_s));
    if (wait_s > 0) exchange_set_header(x, "Retry-After", seconds);
    answer_json(x, code, error_json(code, message, fault));
}

static void refuse(void *arg, struct exchange *x, int code, const char *message)
{
    (void)arg;
    answer_error(x, code, message, NULL, 0);
}

/* ---- routes ---- */

static const struct route routes[] = {
#define ROUTE(method, path, handler, need) {method, path, handler, need},
#include "serve/routes.list"
#undef ROUTE
};

static bool is_at(const struct route *r, const char *path)
{
    size_t n = strlen(r->path);
    if (r->path[n - 1] == '*') return strncmp(r->path, path, n - 1) == 0 && path[n - 1] != '\0';
    return strcmp(r->path, path) == 0;
}

const struct route *route_find(const char *method, const char *path, bool *exact)
{
    const struct route *found = NULL;
    *exact = false;
    for (size_t i = 0; i < sizeof routes / sizeof *routes && !*exact; i++) {
        const struct route *r = &routes[i];
        if (!is_at(r, path)) continue;
        found = r;
        *exact = strcmp(r->method, method) == 0 ||
                 (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
    }
    return found;
}

void route_methods(const char *path, char methods[64])
{
    size_t n = 0;
    *methods = '\0';
    for (size_t i = 0; i < sizeof routes / sizeof *routes && n < 64; i++)
        if (is_at(&routes[i], path))
            n += (size_t)snprintf(methods + n, 64 - n, "%s%s", n ? ", " : "", routes[i].method);
}

/* The gate has let it in. */
static void handle(void *arg, struct exchange *x)
{
    struct server *s = arg;
    bool exact;
    const struct route *route = route_find(exchange_method(x), exchange_path(x), &exact);
    size_t n = strlen(route->path);
    struct request_context r = {
        .server = s,
        .exchange = x,
        .engine = atomic_load(&s->open) ? &s->engine : NULL,
        .key = exchange_tag(x),
        .rest = route->path[n - 1] == '*' ? exchange_path(x) + n - 1 : "",
    };
    enum sol_status status = route->handler(&r);
    if (status == SOL_OK) return;
    int code = r.fault.http ? r.fault.http : r.wait_s > 0 ? 429 : error_http(status);
    answer_error(x, code, NULL, &r.fault, code == 503 && r.wait_s <= 0 ? 1 : r.wait_s);
}

/* ---- the log ---- */

static void over(void *arg, const struct exchange *x, int code, int64_t bytes, double seconds)
{
    struct server *s = arg;
    const struct key *key = exchange_tag(x);
    char when[32], path[256];
    time_t now = time(NULL);
    struct tm utc;
    metrics_count_response(&s->metrics, code);
    if (!s->params.log) return;
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    escape_text(path, sizeof path, exchange_path(x));
    path[strcspn(path, "\n")] = '\0';
    fprintf(stderr, "%s %s %s %.16s %s %d %lld bytes %.3f s\n", when, exchange_client(x),
            key ? key->name : "-", exchange_method(x), path, code, (long long)bytes, seconds);
}

/* ---- life ---- */

void server_params_init(struct server_params *params)
{
    *params = (struct server_params){.name = "sol", .drain_s = 30};
    httpd_params_init(&params->http);
}

enum sol_status server_create(const struct server_params *params, struct server **out)
{
    *out = NULL;
    struct server *s = calloc(1, sizeof *s);
    if (!s) return status_set(SOL_E_MEMORY, "no memory for a server");
    s->params = *params;
    s->params.http.gate = server_gate;
    s->params.http.handle = handle;
    s->params.http.refuse = refuse;
    s->params.http.over = over;
    s->params.http.arg = s;
    s->created = (int64_t)time(NULL);
    metrics_init(&s->metrics);
    enum sol_status status = httpd_create(&s->params.http, &s->httpd);
    if (status != SOL_OK) {
        server_destroy(s);
        return status;
    }
    *out = s;
    return SOL_OK;
}

void server_open(struct server *s, const struct job_engine *engine)
{
    s->engine = *engine;
    atomic_store(&s->open, true);
}

void server_destroy(struct server *s)
{
    if (!s) return;
    atomic_store(&s->draining, true);
    httpd_destroy(s->httpd);
    pthread_mutex_destroy(&s->metrics.lock);
    free(s);
}

const char *server_address(const struct server *s)
{
    return httpd_address(s->httpd);
}

const char *server_model_name(const struct server *s)
{
    return s->params.name;
}

int64_t server_created(const struct server *s)
{
    return s->created;
}

struct api_shared *server_shared(const struct server *s)
{
    return s->params.shared;
}

/* The engine's error, with its message; SOL_OK while it works. */
static enum sol_status engine_error(struct server *s)
{
    return atomic_load(&s->open) ? router_check(s->engine.router) : SOL_OK;
}

/* Texts of which no client is connected too. */
static bool runs(struct server *s)
{
    struct scheduler_stats stats;
    if (!atomic_load(&s->open)) return false;
    router_stats(s->engine.router, &stats);
    return stats.running + stats.waiting > 0;
}

static const struct timespec moment = {.tv_nsec = 50000000};

/* No more comes in; what is there ends by itself, or is cut. */
static void drain(struct server *s, double seconds)
{
    const int asked = interrupt_asked();
    const uint64_t begin = clock_ns();
    atomic_store(&s->draining, true);
    httpd_quiesce(s->httpd);
    while ((double)(clock_ns() - begin) * 1e-9 < seconds && interrupt_asked() <= asked) {
        if (!httpd_wait(s->httpd, 0.1)) continue;
        if (!runs(s)) return;
        nanosleep(&moment, NULL);
    }
    httpd_cut(s->httpd);
    while (!httpd_wait(s->httpd, 1)) httpd_cut(s->httpd);
}

/* Memory that a crowd took and gave back is the allocator's still, and the system's again a second
 * after the last request. `*since` counts moments without one, `*requests` those that there were.
 */
static void rest(struct server *s, int *since, int64_t *requests)
{
    struct httpd_counts now;
    httpd_count(s->httpd, &now);
    bool busy = now.exchanges || now.requests != *requests;
    *since = busy ? 0 : *since + 1;
    *requests = now.requests;
    if (*since == 20) malloc_trim(0);
}

enum sol_status server_run(struct server *s)
{
    enum sol_status status = SOL_OK;
    int since = 0;
    int64_t requests = 0;
    while (status == SOL_OK && !interrupt_asked()) {
        nanosleep(&moment, NULL);
        rest(s, &since, &requests);
        status = engine_error(s);
    }
    drain(s, status == SOL_OK ? s->params.drain_s : 2);
    if (status != SOL_OK) status = engine_error(s);
    /* The router may go now: who asks for figures on a connection that is still open, until the
     * server is destroyed, gets none of it. */
    atomic_store(&s->open, false);
    while (!httpd_wait(s->httpd, 1)) httpd_cut(s->httpd);
    return status;
}
