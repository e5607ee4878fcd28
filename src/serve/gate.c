/* Who may ask. A page of another site can make its visitor's browser send requests to an address of
 * the visitor's own machine or network, and by a name that it points there (DNS rebinding) even
 * read the answers. So requests come by an address, by localhost or by a name that is known, and
 * those that say which page they are from are served for known pages only. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "serve/server_private.h"

/* ---- Host and Origin ---- */

/* "name:80" or "[::1]:80" or without a port, to the name alone. */
static bool name_of(const char *host, char name[256])
{
    const char *end = host[0] == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    if (!end) return false;
    if (host[0] == '[') host++;
    size_t n = (size_t)(end - host);
    if (n == 0 || n > 255) return false;
    memcpy(name, host, n);
    name[n] = '\0';
    return true;
}

static bool is_listed(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], "*") == 0 || strcasecmp(list[i], name) == 0) return true;
    return false;
}

/* Who came by an address did not ask a foreign server for it. */
static bool is_host(const struct server *s, const char *host)
{
    char name[256];
    unsigned char address[16];
    if (!name_of(host, name)) return false;
    return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1 ||
           strcasecmp(name, "localhost") == 0 || strcasecmp(name, s->params.http.host) == 0 ||
           is_listed(s->params.hosts, s->params.n_hosts, name);
}

/* Of a page that this server, or a proxy before it, has given out. */
static bool is_own(const char *origin, const char *host)
{
    const char *name = strstr(origin, "://");
    return name && host && strcasecmp(name + 3, host) == 0;
}

/* The browser asks whether it may ask: with a key, and what libraries add. */
static void allow_origin(struct exchange *x, const char *origin)
{
    const char *headers = exchange_header(x, "Access-Control-Request-Headers");
    exchange_set_header(x, "Access-Control-Allow-Origin", origin);
    exchange_set_header(x, "Vary", "Origin");
    if (strcmp(exchange_method(x), "OPTIONS") != 0) return;
    exchange_set_header(x, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    exchange_set_header(x, "Access-Control-Allow-Headers",
                        headers ? headers : "Authorization, Content-Type, X-Api-Key");
    exchange_set_header(x, "Access-Control-Max-Age", "600");
}

/* Whether the request may go on. */
static bool check_page(const struct server *s, struct exchange *x)
{
    const char *host = exchange_header(x, "Host"), *origin = exchange_header(x, "Origin");
    if (host && !is_host(s, host)) {
        answer_error(x, 403,
                     "the server is not known by the name of the Host header; who runs it can add "
                     "it (--allow-host)",
                     NULL, 0);
        return false;
    }
    if (!origin || is_own(origin, host)) return true;
    if (is_listed(s->params.origins, s->params.n_origins, origin)) {
        allow_origin(x, origin);
        return true;
    }
    answer_error(x, 403,
                 "pages of this origin may not ask; who runs the server can allow it (--cors)",
                 NULL, 0);
    return false;
}

/* ---- keys ---- */

static const struct key *key_of(const struct server *s, struct exchange *x)
{
    const char *bearer = exchange_header(x, "Authorization");
    const char *secret = exchange_header(x, "X-Api-Key");
    if (!s->params.keys) return key_of_everybody();
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0) secret = bearer + 7;
    return secret ? key_set_find(s->params.keys, secret) : NULL;
}

static bool check_key(const struct server *s, struct exchange *x, const struct route *route)
{
    const struct key *key = route->need == ROUTE_OPEN ? key_of_everybody() : key_of(s, x);
    exchange_set_tag(x, key);
    if (key) return true;
    const struct api_fault fault = {.code = "invalid_api_key"};
    exchange_set_header(x, "WWW-Authenticate", "Bearer");
    answer_error(x, 401,
                 "a key is needed, and this is none: send it as 'Authorization: Bearer KEY' or "
                 "'X-Api-Key: KEY'",
                 &fault, 0);
    return false;
}

/* ---- the gate ---- */

static bool check_route(struct exchange *x, const struct route **out)
{
    char message[320], methods[64];
    bool exact;
    *out = route_find(exchange_method(x), exchange_path(x), &exact);
    if (exact) return true;
    if (strcmp(exchange_method(x), "OPTIONS") == 0 && *out) {
        exchange_answer(x, 204, "text/plain", "", 0);
        return false;
    }
    const struct api_fault fault = {.code = *out ? "method_not_allowed" : "not_found"};
    snprintf(message, sizeof message, "nothing is served at %.16s %.200s", exchange_method(x),
             exchange_path(x));
    route_methods(exchange_path(x), methods);
    if (*out) exchange_set_header(x, "Allow", methods);
    answer_error(x, *out ? 405 : 404, message, &fault, 0);
    return false;
}

void server_gate(void *arg, struct exchange *x)
{
    struct server *s = arg;
    const struct route *route;
    exchange_set_tag(x, key_of_everybody());
    if (!check_page(s, x) || !check_route(x, &route) || !check_key(s, x, route)) return;
    bool ready = atomic_load(&s->open) && !atomic_load(&s->draining);
    if (route->need != ROUTE_MODEL || ready) return;
    answer_error(x, 503,
                 atomic_load(&s->draining) ? "the server is about to end"
                                           : "the model is being loaded; come back soon",
                 NULL, 2);
}
