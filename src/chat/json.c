#include "chat/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "chat/numbers.h"

/* ---- reading ---- */

/* Begins strings that stand for a whole number above INT64_MAX: U+FDD0, which Unicode keeps for
 * use inside of programs. */
static const char big_mark[] = "\xef\xb7\x90";

/* Writes a number so that jansson reads what serde_json would have. What is none stays as it is,
 * and jansson says so. Returns how long it was. */
static size_t copy_number(const char *text, size_t size, struct text_buffer *to)
{
    char out[48];
    size_t length;
    struct number n = number_read(text, size, &length);
    switch (n.kind) {
    case NUMBER_BIG:
        snprintf(out, sizeof out, "\"%s%" PRIu64 "\"", big_mark, n.big);
        break;
    case NUMBER_REAL:
        snprintf(out, sizeof out, "%.17g", n.real);
        if (!strpbrk(out, ".e")) strcat(out, ".0");
        break;
    default:
        if (length == 0) length = 1;
        text_put(to, text, length);
        return length;
    }
    text_puts(to, out);
    return length;
}

static size_t string_length(const char *text, size_t size)
{
    size_t at = 1;
    for (; at < size && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < size ? at + 1 : size;
}

static size_t line_at(const char *data, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at; i++) line += data[i] == '\n';
    return line;
}

/* A copy with numbers that jansson holds; refuses depth before anything recurses. */
static enum sol_status prepare(const char *data, size_t length, const char *name,
                               struct text_buffer *to)
{
    int depth = 0;
    for (size_t at = 0, n; at < length; at += n) {
        char c = data[at];
        n = 1;
        if (c == '[' || c == '{') depth++;
        if (c == ']' || c == '}') depth--;
        if (depth > CHAT_JSON_DEPTH_MAX)
            return status_set(SOL_E_FORMAT, "%s:%zu: nested more than %d deep", name,
                              line_at(data, at), CHAT_JSON_DEPTH_MAX);
        if (c == '-' || (c >= '0' && c <= '9')) {
            n = copy_number(data + at, length - at, to);
            continue;
        }
        if (c == '"') n = string_length(data + at, length - at);
        text_put(to, data + at, n);
    }
    return text_check(to, name);
}

enum sol_status chat_json_read(const char *data, size_t length, const char *name, json_t **out)
{
    struct text_buffer text = {0};
    json_error_t error;
    *out = NULL;
    if (length > CHAT_JSON_BYTES_MAX)
        return status_set(SOL_E_FORMAT, "%s: %zu bytes of JSON; %d are allowed", name, length,
                          CHAT_JSON_BYTES_MAX);
    enum sol_status status = prepare(data, length, name, &text);
    if (status == SOL_OK) {
        *out = json_loadb(text.data ? text.data : "", text.length,
                          JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        if (!*out)
            status = json_error_code(&error) == json_error_out_of_memory
                         ? status_set(SOL_E_MEMORY, "no memory for the JSON of %s", name)
                         : status_set(SOL_E_FORMAT, "%s:%d: %s", name, error.line, error.text);
    }
    text_buffer_free(&text);
    return status;
}

/* ---- values ---- */

static bool is_big(const json_t *value)
{
    size_t mark = sizeof big_mark - 1, length = json_string_length(value);
    if (!json_is_string(value) || length <= mark || length > mark + 20) return false;
    const char *text = json_string_value(value);
    return memcmp(text, big_mark, mark) == 0 && strspn(text + mark, "0123456789") == length - mark;
}

bool chat_json_is_string(const json_t *value)
{
    return json_is_string(value) && !is_big(value);
}

struct chat_text chat_json_text(const json_t *value)
{
    if (!value || !chat_json_is_string(value)) return (struct chat_text){0};
    return (struct chat_text){json_string_value(value), json_string_length(value)};
}

/* ---- printing ---- */

void chat_json_print_text(struct chat_text text, struct text_buffer *to)
{
    static const char named[32] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    size_t from = 0;
    text_puts(to, "\"");
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        char escape[8];
        if (c >= 32 && c != '"' && c != '\\') continue;
        text_put(to, text.data + from, i - from);
        from = i + 1;
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (named[c])
            snprintf(escape, sizeof escape, "\\%c", named[c]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", c);
        text_puts(to, escape);
    }
    text_put(to, text.data + from, text.length - from);
    text_puts(to, "\"");
}

static void print_number(const json_t *value, struct text_buffer *to)
{
    char out[NUMBER_TEXT_MAX];
    if (json_is_real(value))
        text_put(to, out, number_print(json_real_value(value), out));
    else
        text_put(to, out,
                 (size_t)snprintf(out, sizeof out, "%" PRId64, (int64_t)json_integer_value(value)));
}

static void print_object(const json_t *object, struct text_buffer *to)
{
    const char *key;
    json_t *value;
    const char *between = "{";
    /* jansson's macro wants an object that is not const, and changes nothing. */
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        text_puts(to, between);
        chat_json_print_text((struct chat_text){key, strlen(key)}, to);
        text_puts(to, ":");
        chat_json_print(value, to);
        between = ",";
    }
    text_puts(to, json_object_size(object) ? "}" : "{}");
}

static void print_array(const json_t *array, struct text_buffer *to)
{
    text_puts(to, "[");
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i) text_puts(to, ",");
        chat_json_print(json_array_get(array, i), to);
    }
    text_puts(to, "]");
}

void chat_json_print(const json_t *value, struct text_buffer *to)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        print_object(value, to);
        break;
    case JSON_ARRAY:
        print_array(value, to);
        break;
    case JSON_STRING:
        if (is_big(value))
            text_puts(to, json_string_value(value) + sizeof big_mark - 1);
        else
            chat_json_print_text(
                (struct chat_text){json_string_value(value), json_string_length(value)}, to);
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        print_number(value, to);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        text_puts(to, json_is_true(value) ? "true" : "false");
        break;
    default:
        text_puts(to, "null");
    }
}

const char *chat_json_kind(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",  [JSON_NULL] = "null",
    };
    if (!value) return "missing";
    return json_is_string(value) && !chat_json_is_string(value) ? "a number"
                                                                : names[json_typeof(value)];
}
