#include "serve/api_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "chat/json.h"

/* ---- places ---- */

enum { PLACE_DEPTH = 16 };

/* "messages[2].content[0]": keys of strangers are cut, and what is no letter is replaced. */
static void put_place(const struct api_place *place, char *to, size_t size)
{
    const struct api_place *way[PLACE_DEPTH] = {NULL};
    size_t depth = 0, n = 0;
    *to = '\0';
    for (; place && depth < PLACE_DEPTH; place = place->in) way[depth++] = place;
    while (depth-- && n < size) {
        const struct api_place *at = way[depth];
        if (at->key)
            n += (size_t)snprintf(to + n, size - n, "%s%.64s", n ? "." : "", at->key);
        else
            n += (size_t)snprintf(to + n, size - n, "[%zu]", at->index);
    }
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126) *c = '?';
}

#undef api_wrong
enum sol_status api_wrong(struct api_fault *fault, const struct api_place *place, const char *fmt,
                          ...)
{
    char message[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    put_place(place, fault->param, sizeof fault->param);
    if (!place) return status_set(SOL_E_ARGUMENT, "%s", message);
    return status_set(SOL_E_ARGUMENT, "'%s': %s", fault->param, message);
}

enum sol_status api_blame(struct api_fault *fault, const struct api_place *place,
                          enum sol_status status)
{
    put_place(place, fault->param, sizeof fault->param);
    return status_prefix(status, "'%s'", fault->param);
}

#undef api_not
enum sol_status api_not(struct api_fault *fault, const struct api_place *place, const json_t *value,
                        const char *wanted)
{
    return api_wrong(fault, place, "is %s; it must be %s", chat_json_kind(value), wanted);
}
#define api_wrong(...) status_same(SOL_E_ARGUMENT, api_wrong(__VA_ARGS__))
#define api_not(...)   status_same(SOL_E_ARGUMENT, api_not(__VA_ARGS__))

/* ---- fields ---- */

json_t *api_field(const struct api_object *o, const char *key)
{
    json_t *value = json_object_get(o->json, key);
    return json_is_null(value) ? NULL : value;
}

static enum sol_status not_at(const struct api_object *o, const char *key, const char *wanted)
{
    return api_not(o->fault, API_KEY(o->place, key), json_object_get(o->json, key), wanted);
}

enum sol_status api_text(const struct api_object *o, const char *key, struct chat_text *to)
{
    const json_t *value = api_field(o, key);
    if (!value) return SOL_OK;
    if (!chat_json_is_string(value)) return not_at(o, key, "a string");
    *to = chat_json_text(value);
    return SOL_OK;
}

enum sol_status api_needed(const struct api_object *o, const char *key, struct chat_text *to)
{
    *to = (struct chat_text){0};
    SOL_TRY(api_text(o, key, to));
    return to->data ? SOL_OK : not_at(o, key, "a string");
}

enum sol_status api_flag(const struct api_object *o, const char *key, bool *to)
{
    const json_t *value = api_field(o, key);
    if (!value) return SOL_OK;
    if (!json_is_boolean(value)) return not_at(o, key, "true or false");
    *to = json_is_true(value);
    return SOL_OK;
}

enum sol_status api_integer(const struct api_object *o, const char *key, int64_t low, int64_t high,
                            int64_t *to)
{
    const json_t *value = api_field(o, key);
    if (!value) return SOL_OK;
    bool whole = json_is_integer(value);
    int64_t n = json_integer_value(value);
    if (json_is_real(value)) { /* clients without integers write 3.0 */
        double real = json_real_value(value);
        whole = fabs(real) <= 9007199254740992.0 && real == (double)(int64_t)real;
        n = whole ? (int64_t)real : 0;
    }
    bool beyond = json_is_string(value) && !chat_json_is_string(value); /* above INT64_MAX */
    if (!json_is_number(value) && !beyond) return not_at(o, key, "a number");
    if (!whole || n < low || n > high)
        return api_wrong(o->fault, API_KEY(o->place, key),
                         "must be a whole number from %" PRId64 " to %" PRId64, low, high);
    *to = n;
    return SOL_OK;
}

enum sol_status api_real(const struct api_object *o, const char *key, double low, double high,
                         double *to)
{
    const json_t *value = api_field(o, key);
    if (!value) return SOL_OK;
    if (!json_is_number(value)) return not_at(o, key, "a number");
    double n = json_number_value(value);
    if (!(n >= low && n <= high))
        return api_wrong(o->fault, API_KEY(o->place, key), "is %g; it must be from %g to %g", n,
                         low, high);
    *to = n;
    return SOL_OK;
}

enum sol_status api_list(const struct api_object *o, const char *key, json_t **to)
{
    *to = api_field(o, key);
    return !*to || json_is_array(*to) ? SOL_OK : not_at(o, key, "an array");
}

enum sol_status api_map(const struct api_object *o, const char *key, json_t **to)
{
    *to = api_field(o, key);
    return !*to || json_is_object(*to) ? SOL_OK : not_at(o, key, "an object");
}
