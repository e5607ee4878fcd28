/* Cutting goes in rounds: each allows shorter lists, shorter texts and less depth, until the whole
 * fits. What is read first (the first entries, verdicts, the next step) stays to the end. */
#include "serve/mcp_answer.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_json.h"

struct limits {
    size_t items, text;
    int depth;
    bool cut; /* out: something was left out */
};

/* Long lists of raw figures that no answer needs. */
static const char *const dropped[] = {"samples",     "samples_ns",  "samples_ts", "samples_old",
                                      "samples_new", "environment", "config",     "argv"};

static bool is_dropped(const char *key)
{
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        if (strcmp(key, dropped[i]) == 0) return true;
    return false;
}

/* Cut at the start of a character. */
static json_t *condense_text(const json_t *text, struct limits *l)
{
    const char *all = json_string_value(text);
    size_t length = json_string_length(text);
    if (length <= l->text) return json_stringn(all, length);
    l->cut = true;
    length = l->text;
    while (length && ((unsigned char)all[length] & 0xC0) == 0x80) length--;
    char *cut = malloc(length + 3);
    if (!cut) return NULL;
    memcpy(cut, all, length);
    memcpy(cut + length, "...", 3);
    json_t *json = json_stringn(cut, length + 3);
    free(cut);
    return json;
}

static json_t *condense(const json_t *json, struct limits *l, int depth)
{
    if (json_is_string(json)) return condense_text(json, l);
    if (!json_is_object(json) && !json_is_array(json)) return json_deep_copy(json);
    if (depth >= l->depth) {
        l->cut = true;
        return json_string("...");
    }
    if (json_is_array(json)) {
        json_t *list = json_array();
        size_t count = json_array_size(json);
        for (size_t i = 0; i < count && i < l->items; i++)
            json_array_append_new(list, condense(json_array_get(json, i), l, depth + 1));
        if (count > l->items) {
            l->cut = true;
            json_array_append_new(list, json_sprintf("... %zu more", count - l->items));
        }
        return list;
    }
    json_t *object = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (json_is_null(value)) continue;
        if (is_dropped(key) || strlen(key) > 120 || json_object_size(object) > 3 * l->items + 6)
            l->cut = true;
        else
            json_object_set_new(object, key, condense(value, l, depth + 1));
    }
    return object;
}

/* ---- evidence ---- */

/* "b1f09c3a7": an id of the store. */
static bool is_id(const char *text)
{
    if (!text || strlen(text) != 9 || !islower((unsigned char)text[0])) return false;
    return strspn(text + 1, "0123456789abcdef") == 8;
}

static void add_evidence(json_t *list, const char *id)
{
    if (json_array_size(list) >= 8) return;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), id) == 0) return;
    json_array_append_new(list, json_string(id));
}

static void find_evidence(const json_t *json, json_t *list, int depth)
{
    const char *key;
    json_t *value;
    if (depth > 8) return;
    if (json_is_array(json))
        for (size_t i = 0; i < json_array_size(json); i++)
            find_evidence(json_array_get(json, i), list, depth + 1);
    else if (json_is_object(json))
        json_object_foreach((json_t *)(uintptr_t)json, key, value)
        {
            const char *text = json_string_value(value);
            if (text && is_id(text))
                add_evidence(list, text);
            else
                find_evidence(value, list, depth + 1);
        }
}

/* ---- next ---- */

/* "sol opt compare" is the tool opt_compare. */
static json_t *next_json(const char *text)
{
    char out[600];
    size_t n = 0;
    while (*text && n + 8 < sizeof out) {
        if (strncmp(text, "sol opt ", 8) == 0) {
            n += (size_t)snprintf(out + n, sizeof out - n, "opt_");
            text += 8;
        } else {
            out[n++] = *text++;
        }
    }
    out[n] = '\0';
    json_t *json = json_string(out);
    return json ? json : json_string("");
}

static json_t *choose_next(const struct mcp_outcome *o, const json_t *result)
{
    const char *own = json_string_value(json_object_get(result, "next"));
    if (o->end == MCP_TIMED_OUT)
        return json_sprintf("call %s again with max_seconds %.0f, or ask for less", o->tool->name,
                            2 * o->max_seconds < MCP_MAX_SECONDS ? 2 * o->max_seconds
                                                                 : (double)MCP_MAX_SECONDS);
    if (o->end == MCP_TOO_MUCH) return json_sprintf("call %s for less at once", o->tool->name);
    if (own && *own) return next_json(own);
    bool within = strncmp(o->tool->name, "opt_", 4) == 0 &&
                  strcmp(o->tool->name, "opt_start") != 0 && strcmp(o->tool->name, "opt_init") != 0;
    if (o->exit_status == 2 && within) /* the steps of an iteration were called out of order */
        return json_string("opt_status, which says where the iteration stands");
    if (o->exit_status == 2)
        return json_sprintf("correct the arguments as the error says, then call %s", o->tool->name);
    if (o->exit_status != 0 && !result)
        return json_sprintf("remove the cause that the error names, then call %s", o->tool->name);
    return json_string(o->tool->next ? o->tool->next : "opt_status");
}

/* ---- the whole ---- */

/* "sol: error: " lines, else the last of what was printed there. */
static json_t *error_text(const char *errors)
{
    const char *at = strstr(errors, "sol: error: ");
    if (at) return store_json_string(at + 12);
    size_t length = strlen(errors);
    return store_json_string(length > 600 ? errors + length - 600 : errors);
}

static json_t *base_of(const struct mcp_outcome *o, const json_t *result, bool failed)
{
    json_t *json = json_pack("{s:s, s:b, s:i, s:o}", "tool", o->tool->name, "ok",
                             !failed && o->exit_status != 7 && o->exit_status != 2, "exit_status",
                             o->exit_status, "seconds", json_real(o->seconds));
    json_t *error = NULL;
    if (o->end == MCP_TIMED_OUT)
        error = json_sprintf("ended after max_seconds = %.0f", o->max_seconds);
    else if (o->end == MCP_TOO_MUCH)
        error = json_string("ended because it printed too much");
    else if (o->exit_status != 0 && *o->errors)
        error = error_text(o->errors);
    else if (failed)
        error = json_sprintf("exit status %d", o->exit_status);
    if (error) json_object_set_new(json, "error", error);
    (void)result;
    return json;
}

static char *dump(const json_t *json)
{
    return json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6));
}

static char *fit(const struct mcp_outcome *o, const json_t *result, bool failed, bool *cut)
{
    static const struct limits rounds[] = {
        {200, 1500, 12, false}, {60, 800, 12, false}, {30, 400, 10, false}, {16, 250, 8, false},
        {10, 160, 7, false},    {6, 120, 6, false},   {4, 90, 5, false},    {3, 60, 4, false},
        {2, 40, 3, false},      {1, 20, 2, false},    {0, 16, 1, false},
    };
    json_t *evidence = json_array();
    find_evidence(result, evidence, 0);
    char *text = NULL;
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        struct limits l = rounds[i], texts = {8, l.text < 200 ? 400 : 1500, 3, false};
        json_t *base = base_of(o, result, failed), *json = condense(base, &texts, 0);
        json_decref(base);
        if (result) json_object_set_new(json, "result", condense(result, &l, 0));
        if (json_is_object(json_object_get(json, "result")))
            json_object_del(json_object_get(json, "result"), "next");
        if (json_array_size(evidence)) json_object_set(json, "evidence", evidence);
        *cut = l.cut;
        if (l.cut) json_object_set_new(json, "more", json_string(o->more_id));
        json_object_set_new(json, "next", choose_next(o, result));
        free(text);
        text = dump(json);
        json_decref(json);
        if (!text || strlen(text) < MCP_ANSWER_MAX) break;
    }
    json_decref(evidence);
    if (!text || strlen(text) < MCP_ANSWER_MAX) return text;
    /* Keys or messages of nothing but characters that escapes make long. */
    free(text);
    json_t *least =
        json_pack("{s:s, s:b, s:i, s:s, s:s}", "tool", o->tool->name, "ok", !failed, "exit_status",
                  o->exit_status, "more", o->more_id, "next", "more, with the id above");
    text = least ? dump(least) : NULL;
    json_decref(least);
    *cut = true;
    return text;
}

char *mcp_answer(const struct mcp_outcome *o, bool *failed, bool *cut)
{
    json_t *result = NULL;
    *cut = false;
    if (o->output_size) result = json_loadb(o->output, o->output_size, JSON_ALLOW_NUL, NULL);
    if (!result && o->output_size && o->end == MCP_EXITED && o->exit_status == 0) {
        result = json_stringn(o->output, o->output_size);
        if (!result) result = json_string("the output is not UTF-8");
    }
    *failed = o->end != MCP_EXITED || (o->exit_status != 0 && !result);
    char *text = fit(o, result, *failed, cut);
    json_decref(result);
    return text;
}

char *mcp_answer_error(const struct mcp_tool *tool, const char *error, const char *next)
{
    json_t *message = store_json_string(error); /* may be cut within a character */
    json_t *json = json_pack("{s:s, s:b, s:o, s:s}", "tool", tool->name, "ok", 0, "error",
                             message ? message : json_string("?"), "next", next);
    char *text = json ? dump(json) : NULL;
    json_decref(json);
    return text;
}

char *mcp_answer_part(const char *id, const char *text, size_t size, size_t offset)
{
    char *out = NULL;
    if (offset > size) offset = size;
    while (offset < size && offset && ((unsigned char)text[offset] & 0xC0) == 0x80) offset++;
    for (size_t length = 3600; !out && length; length = length * 3 / 4) {
        size_t end = size - offset < length ? size : offset + length;
        while (end < size && end > offset && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
        json_t *part = json_stringn(text + offset, end - offset);
        if (!part) part = json_string("not UTF-8");
        json_t *next = end < size
                           ? json_sprintf("more with id %s and offset %zu", id, end)
                           : json_string("that was all of it; go on with the answer's own next");
        json_t *json = json_pack("{s:s, s:b, s:s, s:I, s:I, s:o, s:o}", "tool", "more", "ok", 1,
                                 "id", id, "offset", (json_int_t)offset, "size", (json_int_t)size,
                                 "text", part, "next", next);
        out = json ? dump(json) : NULL;
        json_decref(json);
        if (out && strlen(out) >= MCP_ANSWER_MAX) {
            free(out);
            out = NULL;
        }
    }
    return out;
}
