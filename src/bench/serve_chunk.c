#include "bench/serve_chunk.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static bool has_text(const json_t *value)
{
    return json_string_length(value) > 0;
}

/* A call of a tool is output too: its name or some of its arguments. */
static bool calls_tool(const json_t *delta)
{
    const json_t *call =
        json_object_get(json_array_get(json_object_get(delta, "tool_calls"), 0), "function");
    return has_text(json_object_get(call, "name")) || has_text(json_object_get(call, "arguments"));
}

static void read_choice(const json_t *choice, struct serve_chunk *out)
{
    const json_t *delta = json_object_get(choice, "delta");
    out->text |= has_text(json_object_get(choice, "text")) ||
                 has_text(json_object_get(delta, "content")) ||
                 has_text(json_object_get(delta, "reasoning")) ||
                 has_text(json_object_get(delta, "reasoning_content")) || calls_tool(delta);
    out->finished |= has_text(json_object_get(choice, "finish_reason"));
}

static void read_count(const json_t *usage, const char *name, int64_t *out)
{
    const json_t *value = json_object_get(usage, name);
    if (json_is_integer(value) && json_integer_value(value) >= 0) *out = json_integer_value(value);
}

static void copy_line(char text[CHUNK_ERROR], const char *from, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < CHUNK_ERROR; i++)
        text[n++] = from[i] == '\n' || from[i] == '\r' ? ' ' : from[i];
    text[n] = '\0';
}

/* {"error": {"message": "..."}}, {"error": "..."}, {"message": "..."}, {"detail": "..."}. */
static bool read_error(const json_t *object, char text[CHUNK_ERROR])
{
    const json_t *error = json_object_get(object, "error");
    const json_t *message = json_is_object(error) ? json_object_get(error, "message") : error;
    if (!json_is_string(message)) message = json_object_get(object, "message");
    if (!json_is_string(message)) message = json_object_get(object, "detail");
    if (json_is_string(message))
        copy_line(text, json_string_value(message), json_string_length(message));
    return error && !json_is_null(error);
}

char *serve_error_text(const char *body, size_t length, char text[CHUNK_ERROR])
{
    json_t *object = length ? json_loadb(body, length, 0, NULL) : NULL;
    text[0] = '\0';
    read_error(object, text);
    if (!*text && length) copy_line(text, body, length);
    json_decref(object);
    return text;
}

bool serve_chunk_read(const char *data, size_t length, struct serve_chunk *out)
{
    *out = (struct serve_chunk){.prompt_tokens = -1, .output_tokens = -1, .cached_tokens = -1};
    out->done = length == 6 && memcmp(data, "[DONE]", 6) == 0;
    if (out->done) return true;
    json_t *object = json_loadb(data, length, JSON_ALLOW_NUL, NULL); /* tokens may be any byte */
    const bool good = json_is_object(object);
    if (good) {
        const json_t *choices = json_object_get(object, "choices");
        const json_t *usage = json_object_get(object, "usage");
        for (size_t i = 0; i < json_array_size(choices); i++)
            read_choice(json_array_get(choices, i), out);
        read_count(usage, "prompt_tokens", &out->prompt_tokens);
        read_count(usage, "completion_tokens", &out->output_tokens);
        read_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens",
                   &out->cached_tokens);
        out->failed = read_error(object, out->error);
    }
    json_decref(object);
    return good;
}
