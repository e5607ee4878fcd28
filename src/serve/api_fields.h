/* Readers of a request's fields, and faults that say where they are. */
#ifndef SERVE_API_FIELDS_H
#define SERVE_API_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "chat/text.h"

enum { API_PARAM_MAX = 200 };

/* What belongs to a message (base/status.h) when it goes to a client. */
struct api_fault {
    int http;                  /* 0: as the status says */
    const char *code;          /* a constant; NULL: none */
    char param[API_PARAM_MAX]; /* the field: "messages[2].role"; "": none */
};

/* ---- where a value stands ---- */

/* A key in `in`, or an element; a chain of them on the stack is the way to a value. NULL is the
 * request itself. */
struct api_place {
    const struct api_place *in;
    const char *key; /* NULL: element `index` */
    size_t index;
};
/* They live as long as the block that they are written in. */
#define API_KEY(in, key)  (&(const struct api_place){(in), (key), 0})
#define API_AT(in, index) (&(const struct api_place){(in), NULL, (index)})

/* SOL_E_ARGUMENT, the place in front of the message and as the fault's param. */
enum sol_status api_wrong(struct api_fault *fault, const struct api_place *place, const char *fmt,
                          ...) SOL_PRINTF(3, 4);
/* The same for another function's error: `status`, its message behind the place. */
enum sol_status api_blame(struct api_fault *fault, const struct api_place *place,
                          enum sol_status status);
/* "'x': is a number; it must be <wanted>". */
enum sol_status api_not(struct api_fault *fault, const struct api_place *place, const json_t *value,
                        const char *wanted);
#define api_wrong(...) status_same(SOL_E_ARGUMENT, api_wrong(__VA_ARGS__))
#define api_not(...)   status_same(SOL_E_ARGUMENT, api_not(__VA_ARGS__))

/* ---- fields ---- */

/* An object of the request, and where it stands. */
struct api_object {
    struct api_fault *fault;
    const struct api_place *place;
    const json_t *json;
};

/* A field that is there and not null; else NULL. */
json_t *api_field(const struct api_object *o, const char *key);
/* Each leaves *to as it is where the field is missing or null. */
enum sol_status api_text(const struct api_object *o, const char *key, struct chat_text *to);
enum sol_status api_flag(const struct api_object *o, const char *key, bool *to);
enum sol_status api_integer(const struct api_object *o, const char *key, int64_t low, int64_t high,
                            int64_t *to);
enum sol_status api_real(const struct api_object *o, const char *key, double low, double high,
                         double *to);
/* *to is NULL where it is missing or null. */
enum sol_status api_list(const struct api_object *o, const char *key, json_t **to);
enum sol_status api_map(const struct api_object *o, const char *key, json_t **to);
/* A text that must be there. */
enum sol_status api_needed(const struct api_object *o, const char *key, struct chat_text *to);

#endif
