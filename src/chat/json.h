/* JSON from strangers, with limits, and printed as openai-harmony prints values into a prompt. */
#ifndef CHAT_JSON_H
#define CHAT_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "chat/text.h"

enum {
    CHAT_JSON_DEPTH_MAX = 64,       /* of objects and arrays in each other */
    CHAT_JSON_BYTES_MAX = 64 << 20, /* of a text */
};

/* `name` is for messages. SOL_E_FORMAT with line and fault: no JSON, a key named twice, deeper or
 * larger than the limits, a number beyond a double. Whole numbers above INT64_MAX, which jansson
 * does not hold, become strings that chat_json_print knows. Free with json_decref. */
enum sol_status chat_json_read(const char *data, size_t length, const char *name, json_t **out);

/* A string that is one of the file, not a number too big for json_integer. */
bool chat_json_is_string(const json_t *value);
/* data is NULL where `value` is NULL or no string. Borrowed. */
struct chat_text chat_json_text(const json_t *value);

/* Compact: no blanks, the keys in their order, characters beyond ASCII as they are. */
void chat_json_print(const json_t *value, struct text_buffer *to);
/* A text, which is UTF-8, as a JSON string with its quotes. */
void chat_json_print_text(struct chat_text text, struct text_buffer *to);
/* "an object", for messages; NULL is "missing". */
const char *chat_json_kind(const json_t *value);

#endif
