/* What is around a result: whether it worked, the runs behind it, what was left out of it, and the
 * next step. The rest of the bytes are the result's (mcp_rank.h). */
#include "serve/mcp_answer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/mcp_rank.h"
#include "store/store.h"
#include "store/store_json.h"

/* ---- evidence ---- */

/* Keys whose text is a run or an iteration; a commit's hash may look like one. */
static bool names_run(const char *key)
{
    static const char *const keys[] = {"run",         "id",          "report",    "bench_run",
                                       "compare_run", "profile_run", "iteration", "baseline_run"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
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
            if (text && names_run(key) && store_id_valid(text))
                add_evidence(list, text);
            else
                find_evidence(value, list, depth + 1);
        }
}

/* ---- next ---- */

static json_t *own_call(const struct mcp_outcome *o, const json_t *result)
{
    const char *own = json_string_value(json_object_get(result, "next"));
    return own ? mcp_next_call(&o->offer, own) : NULL;
}

/* A tool's step after success, for the newest run of the answer; without one, what there is. */
static json_t *usual_call(const struct mcp_outcome *o, const char *command, const json_t *evidence)
{
    char line[120];
    const char *run = json_string_value(json_array_get(evidence, 0));
    const char *mark = strstr(command, " RUN");
    if (mark && !run) return mcp_next_call(&o->offer, "sol runs");
    snprintf(line, sizeof line, "sol %.*s%s%s",
             (int)(mark ? (size_t)(mark - command) : strlen(command)), command, mark ? " " : "",
             mark ? run : "");
    return mcp_next_call(&o->offer, line);
}

/* Kernels with times, or advice (its rows, or how many). */
static bool can_be_advised(const json_t *json)
{
    static const char *const times[] = {"us_per_step", "total_ns", "ns_per_token"};
    const json_t *advice = json_object_get(json, "advice");
    json_t *row;
    size_t i;
    if (json_array_size(advice) || json_integer_value(advice) > 0) return true;
    json_array_foreach(json_object_get(json, "kernels"), i, row)
    {
        for (size_t k = 0; k < sizeof times / sizeof *times; k++)
            if (json_number_value(json_object_get(row, times[k])) > 0) return true;
    }
    return false;
}

/* Of the result, or of a row of one of its lists. */
static bool holds_times(const json_t *json, int depth)
{
    const char *name;
    json_t *value;
    size_t i;
    if (can_be_advised(json)) return true;
    if (depth == 0) return false;
    json_array_foreach((json_t *)(uintptr_t)json, i, value)
    {
        if (holds_times(value, depth - 1)) return true;
    }
    json_object_foreach((json_t *)(uintptr_t)json, name, value)
    {
        if (holds_times(value, depth - 1)) return true;
    }
    return false;
}

/* The same call with one argument more. */
static json_t *call_again(const struct mcp_outcome *o, const char *name, json_t *value)
{
    json_t *arguments = o->arguments ? json_deep_copy(o->arguments) : json_object();
    json_object_set_new(arguments, name, value);
    return json_pack("{s:s, s:o}", "tool", o->tool->name, "arguments", arguments);
}

/* What tells where time goes needs times. */
static json_t *call_after(const struct mcp_outcome *o, const json_t *result, const json_t *evidence)
{
    const char *next = o->tool->next;
    bool advice = next && strcmp(next, "advise RUN") == 0;
    bool times = holds_times(result, 2);
    if (advice && !times && strcmp(o->tool->name, "bench") == 0)
        return call_again(o, "ops", json_true());
    if (advice && !times)
        return usual_call(o, strcmp(o->tool->name, "run_show") ? "runs show RUN" : "runs",
                          evidence);
    return usual_call(o, next ? next : "runs", evidence);
}

/* A next step that works as it stands; NULL where none is known to. */
static json_t *choose_next(const struct mcp_outcome *o, const json_t *result, bool failed,
                           const json_t *evidence)
{
    double seconds = 2 * o->max_seconds;
    json_t *own = own_call(o, result);
    if (own) return own;
    if (o->end == MCP_TIMED_OUT)
        return seconds <= MCP_MAX_SECONDS ? call_again(o, "max_seconds", json_real(seconds)) : NULL;
    if (o->end == MCP_TOO_MUCH) return NULL;
    if (failed) {
        bool of_run = json_object_get(o->arguments, "run") || json_object_get(o->arguments, "old");
        return of_run ? mcp_next_call(&o->offer, "sol runs") : NULL;
    }
    /* Its command named one that this server may not run. */
    if (json_is_string(json_object_get(result, "next")))
        return usual_call(o, "runs show RUN", evidence);
    return call_after(o, result, evidence);
}

/* "sol opt compare" is the tool opt_compare. */
static json_t *with_tool_names(const char *text)
{
    char out[700];
    size_t n = 0;
    while (*text && n + 8 < sizeof out) {
        bool command = strncmp(text, "sol opt ", 8) == 0;
        if (command) n += (size_t)snprintf(out + n, sizeof out - n, "opt_");
        if (!command) out[n++] = *text;
        text += command ? 8 : 1;
    }
    out[n] = '\0';
    return store_json_string(out);
}

static json_t *choose_first(const struct mcp_outcome *o, const json_t *result, bool failed)
{
    const char *own = json_string_value(json_object_get(result, "first"));
    if (own) return with_tool_names(own);
    if (o->end == MCP_TIMED_OUT) return json_string("it needs longer; or ask for less");
    if (o->end == MCP_TOO_MUCH) return json_string("ask for less at once");
    if (!failed || json_is_string(json_object_get(result, "next"))) return NULL;
    return json_sprintf(o->exit_status == 2
                            ? "correct the arguments as the error says, and call %s again"
                            : "remove the cause that the error names, and call %s again",
                        o->tool->name);
}

/* ---- the whole ---- */

/* Errors are for reading: their beginning says what, their end why. */
static json_t *short_text(const char *text)
{
    enum { TEXT_MAX = 1400 };
    char cut[TEXT_MAX + 1];
    snprintf(cut, sizeof cut, "%s", text);
    return store_json_string(cut);
}

/* "sol: error: " lines, else the last of what was printed there. */
static json_t *error_text(const char *errors)
{
    const char *at = strstr(errors, "sol: error: ");
    size_t length = strlen(errors);
    return short_text(at ? at + 12 : length > 600 ? errors + length - 600 : errors);
}

static json_t *error_of(const struct mcp_outcome *o, const json_t *result, bool failed)
{
    const char *own = json_string_value(json_object_get(result, "error"));
    if (o->end == MCP_TIMED_OUT)
        return json_sprintf("ended after max_seconds = %.0f", o->max_seconds);
    if (o->end == MCP_TOO_MUCH) return json_string("ended because it printed too much");
    if (own) return short_text(own);
    if (o->exit_status != 0 && *o->errors) return error_text(o->errors);
    return failed ? json_sprintf("exit status %d", o->exit_status) : NULL;
}

static void set_if(json_t *json, const char *key, json_t *value)
{
    if (value) json_object_set_new(json, key, value);
}

/* Everything but the result. Its place is kept, so that what decides is read first. */
static json_t *frame_of(const struct mcp_outcome *o, const json_t *result, bool failed)
{
    /* Slower, undecided and invalid are answers too; see sol compare --help. */
    bool is_verdict = o->exit_status >= 10 && o->exit_status <= 13;
    json_t *json = json_pack("{s:s, s:b, s:i, s:o}", "tool", o->tool->name, "ok",
                             !failed && (o->exit_status == 0 || is_verdict), "exit_status",
                             o->exit_status, "seconds", json_real(o->seconds));
    json_t *evidence = json_array();
    find_evidence(result, evidence, 0);
    set_if(json, "error", error_of(o, result, failed));
    if (result) json_object_set_new(json, "result", json_null());
    if (json_array_size(evidence)) json_object_set(json, "evidence", evidence);
    set_if(json, "first", choose_first(o, result, failed));
    set_if(json, "next", choose_next(o, result, failed, evidence));
    json_decref(evidence);
    return json;
}

/* Said once, in the frame. */
static json_t *without_frame(const json_t *result)
{
    if (!json_is_object(result)) return json_incref((json_t *)(uintptr_t)result);
    json_t *copy = json_copy((json_t *)(uintptr_t)result);
    json_object_del(copy, "next");
    json_object_del(copy, "first");
    json_object_del(copy, "error");
    return copy;
}

static void set_more(json_t *json, const char *id, json_t *left_out, const char *within)
{
    char path[700];
    const char *first = json_object_iter_key(json_object_iter(left_out));
    json_t *arguments = json_pack("{s:s}", "id", id);
    snprintf(path, sizeof path, "%s%s%s", within, *within && first && *first ? "." : "",
             first ? first : "");
    if (*path)
        json_object_set_new(arguments, "path", json_string(path));
    else
        json_object_set_new(arguments, "offset", json_integer(0));
    json_object_set(json, "left_out", left_out);
    json_object_set_new(json, "more",
                        json_pack("{s:s, s:o}", "tool", "more", "arguments", arguments));
}

/* `json` with as much of `result` as there is room for. */
static char *fill(json_t *json, const json_t *result, const char *id, const char *within, bool *cut)
{
    enum { MORE_BYTES = 120 };
    char *text = mcp_rank_dump(json);
    size_t used = text ? strlen(text) : MCP_ANSWER_MAX, within_size = strlen(within);
    for (size_t slack = 0; text && result && used + slack + 200 < MCP_ANSWER_MAX; slack += 300) {
        json_t *left_out = NULL, *whole = without_frame(result);
        size_t room = MCP_ANSWER_MAX - used - slack;
        json_t *part = mcp_rank_fit(whole, room - 8, &left_out);
        if (left_out) {
            json_decref(part);
            json_decref(left_out);
            part = mcp_rank_fit(whole, room - 8 - MORE_BYTES - 2 * within_size, &left_out);
        }
        json_decref(whole);
        *cut = left_out != NULL;
        if (part) json_object_set_new(json, "result", part);
        if (left_out) set_more(json, id, left_out, within);
        json_decref(left_out);
        free(text);
        text = mcp_rank_dump(json);
        if (text && strlen(text) <= MCP_ANSWER_MAX) return text;
    }
    if (text && strlen(text) <= MCP_ANSWER_MAX) return text;
    free(text);
    return NULL;
}

/* A program that is traced prints first, the report comes last: an object that begins a line and
 * ends with the text. What was printed before goes with it as "output". */
static json_t *report_at_end(const char *text, size_t size)
{
    enum { TRIES = 200 };
    const char *at = text;
    for (int i = 0; i < TRIES && (at = strstr(at, "\n{")); i++) {
        at++;
        json_t *json = json_loadb(at, size - (size_t)(at - text), JSON_ALLOW_NUL, NULL);
        if (!json) continue;
        json_t *before = json_stringn(text, (size_t)(at - text));
        if (before) json_object_set_new(json, "output", before);
        return json;
    }
    return NULL;
}

/* NULL where there is none. */
static json_t *read_result(const struct mcp_outcome *o)
{
    json_t *result = NULL;
    if (!o->output_size) return NULL;
    result = json_loadb(o->output, o->output_size, JSON_ALLOW_NUL, NULL);
    if (result || o->end != MCP_EXITED) return result;
    result = report_at_end(o->output, o->output_size);
    if (result || o->exit_status != 0) return result;
    result = json_stringn(o->output, o->output_size);
    return result ? result : json_string("the output is not UTF-8");
}

char *mcp_answer(const struct mcp_outcome *o, bool *failed, bool *cut, json_t **next)
{
    json_t *result = read_result(o);
    *cut = false;
    *failed = o->end != MCP_EXITED ||
              (o->exit_status != 0 && (!result || json_object_get(result, "error")));
    json_t *json = frame_of(o, result, *failed);
    *next = json_incref(json_object_get(json, "next"));
    char *text = fill(json, result, o->more_id, "", cut);
    json_decref(json);
    json_decref(result);
    if (text) return text;
    /* Arguments or an error of nothing but characters that escapes make long. */
    *cut = true;
    json_t *least = json_pack("{s:s, s:b, s:i, s:{s:s, s:{s:s, s:i}}}", "tool", o->tool->name, "ok",
                              !*failed, "exit_status", o->exit_status, "more", "tool", "more",
                              "arguments", "id", o->more_id, "offset", 0);
    text = least ? mcp_rank_dump(least) : NULL;
    json_decref(least);
    return text;
}

char *mcp_answer_error(const struct mcp_tool *tool, const char *error, const char *first,
                       json_t *next)
{
    json_t *message = store_json_string(error); /* may be cut within a character */
    json_t *json = json_pack("{s:s, s:b, s:o, s:s}", "tool", tool->name, "ok", 0, "error",
                             message ? message : json_string("?"), "first", first);
    if (json && next) json_object_set_new(json, "next", next);
    char *text = json ? mcp_rank_dump(json) : NULL;
    json_decref(json);
    return text;
}

/* Bytes of a text, from a character's beginning; what follows is the same call with the end as its
 * offset. */
static char *text_part(const struct mcp_kept *kept, const char *path, const char *text, size_t size,
                       size_t offset)
{
    char *out = NULL;
    if (offset > size) offset = size;
    while (offset < size && offset && ((unsigned char)text[offset] & 0xC0) == 0x80) offset++;
    for (size_t length = 3600; !out && length; length = length * 3 / 4) {
        size_t end = size - offset < length ? size : offset + length;
        while (end < size && end > offset && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
        json_t *part = json_stringn(text + offset, end - offset);
        if (!part) part = json_string("not UTF-8");
        json_t *json = json_pack("{s:s, s:b, s:s, s:s*, s:I, s:I, s:o}", "tool", "more", "ok", 1,
                                 "id", kept->id, "path", path, "offset", (json_int_t)offset, "size",
                                 (json_int_t)size, "text", part);
        json_t *again = json_pack("{s:s, s:{s:s, s:s*, s:I}}", "tool", "more", "arguments", "id",
                                  kept->id, "path", path, "offset", (json_int_t)end);
        if (end < size)
            json_object_set(json, "next", again);
        else if (kept->next)
            json_object_set(json, "next", kept->next);
        json_decref(again);
        out = json ? mcp_rank_dump(json) : NULL;
        json_decref(json);
        if (out && strlen(out) > MCP_ANSWER_MAX) {
            free(out);
            out = NULL;
        }
    }
    return out;
}

static char *tree_part(const struct mcp_kept *kept, const char *path, const json_t *part)
{
    bool cut;
    json_t *json = json_pack("{s:s, s:b, s:s, s:s, s:n}", "tool", "more", "ok", 1, "id", kept->id,
                             "path", path, "result");
    if (json && kept->next) json_object_set(json, "next", kept->next);
    char *text = json ? fill(json, part, kept->id, path, &cut) : NULL;
    json_decref(json);
    return text;
}

char *mcp_answer_part(const struct mcp_kept *kept, const char *path, size_t offset)
{
    if (!path) return text_part(kept, NULL, kept->text, kept->size, offset);
    json_t *whole = json_loadb(kept->text, kept->size, JSON_ALLOW_NUL, NULL);
    if (!whole) whole = report_at_end(kept->text, kept->size);
    json_t *part = whole ? mcp_rank_part(whole, path) : NULL;
    char *text = NULL;
    if (json_is_string(part))
        text = text_part(kept, path, json_string_value(part), json_string_length(part), offset);
    else if (part)
        text = tree_part(kept, path, part);
    json_decref(part);
    json_decref(whole);
    return text;
}
