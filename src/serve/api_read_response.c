/* Requests for /v1/responses. */
#include <stdio.h>

#include "chat/json.h"
#include "serve/api_print.h"
#include "serve/api_read.h"

/* Not encrypted: who may read the answer may read what was thought. */
const char api_encrypted_mark[] = "sol1:";

/* ---- items ---- */

static const char *const input_types[] = {"input_text", "text", NULL};
static const char *const output_types[] = {"output_text", "text", "input_text", NULL};

static bool is_call(const json_t *item)
{
    struct chat_text type = chat_json_text(json_object_get(item, "type"));
    return text_is(type, "function_call") || text_is(type, "custom_tool_call");
}

/* An assistant's message is for the user while it works, or the answer. Clients that do not keep
 * the phase still send the call that followed. */
static enum sol_status read_spoken(struct api_reading *rd, const struct api_object *o,
                                   const struct chat_content *contents, size_t n,
                                   const json_t *next)
{
    struct chat_text phase = {0};
    size_t length = 0;
    SOL_TRY(api_text(o, "phase", &phase));
    for (size_t i = 0; i < n; i++) length += contents[i].text.length;
    bool commentary = phase.data ? text_is(phase, "commentary") : is_call(next);
    if (length == 0 && !next) return SOL_OK; /* the beginning of nothing */
    return api_add_message(rd, CHAT_ASSISTANT, commentary ? "commentary" : "final",
                           (struct chat_text){0}, contents, n);
}

static enum sol_status read_message(struct api_reading *rd, const struct api_object *o,
                                    const json_t *next)
{
    const struct chat_content *contents;
    struct chat_text role;
    size_t n;
    SOL_TRY(api_needed(o, "role", &role));
    bool assistant = text_is(role, "assistant");
    SOL_TRY(api_check_results(rd, o->place));
    SOL_TRY(
        api_read_contents(rd, o, "content", assistant ? output_types : input_types, &contents, &n));
    if (!contents)
        return api_not(rd->fault, API_KEY(o->place, "content"), api_field(o, "content"),
                       "a string or an array of parts");
    if (assistant) return read_spoken(rd, o, contents, n, next);
    rd->reasoned = false;
    if (text_is(role, "user"))
        return api_add_message(rd, CHAT_USER, NULL, (struct chat_text){0}, contents, n);
    if (!text_is(role, "system") && !text_is(role, "developer"))
        return api_wrong(rd->fault, API_KEY(o->place, "role"),
                         "must be system, developer, user or assistant");
    return api_add_instruction(rd, contents, n);
}

static enum sol_status read_reasoning(struct api_reading *rd, const struct api_object *o)
{
    static const char *const types[] = {"reasoning_text", "text", NULL};
    const size_t mark = strlen(api_encrypted_mark);
    const struct chat_content *contents;
    struct chat_text kept = {0};
    size_t n, length = 0;
    SOL_TRY(api_read_contents(rd, o, "content", types, &contents, &n));
    SOL_TRY(api_text(o, "encrypted_content", &kept));
    for (size_t i = 0; i < n; i++) length += contents[i].text.length;
    if (length) {
        rd->reasoned = true;
        return api_add_message(rd, CHAT_ASSISTANT, "analysis", (struct chat_text){0}, contents, n);
    }
    if (!text_begins(kept, api_encrypted_mark)) return SOL_OK; /* of another server, or empty */
    rd->reasoned = true;
    return api_add_reasoning(rd, (struct chat_text){kept.data + mark, kept.length - mark});
}

static enum sol_status read_call(struct api_reading *rd, const struct api_object *o, bool custom)
{
    struct chat_text id, name, arguments, space = {0};
    SOL_TRY(api_needed(o, "call_id", &id));
    SOL_TRY(api_needed(o, "name", &name));
    SOL_TRY(api_needed(o, custom ? "input" : "arguments", &arguments));
    SOL_TRY(api_text(o, "namespace", &space));
    if (!rd->reasoned) SOL_TRY(api_recall_reasoning(rd, id));
    rd->reasoned = false;
    if (custom) return api_add_custom_call(rd, o->place, id, space, name, arguments);
    return api_add_call(rd, o->place, id, space, name, arguments);
}

static enum sol_status read_item(struct api_reading *rd, const struct api_object *o,
                                 const json_t *next)
{
    const struct chat_content *contents;
    struct chat_text type = {0}, id;
    size_t n;
    if (!json_is_object(o->json)) return api_not(rd->fault, o->place, o->json, "an object");
    SOL_TRY(api_text(o, "type", &type));
    if (!type.data || text_is(type, "message")) return read_message(rd, o, next);
    if (text_is(type, "reasoning")) return read_reasoning(rd, o);
    if (is_call(o->json)) return read_call(rd, o, text_is(type, "custom_tool_call"));
    if (text_is(type, "function_call_output") || text_is(type, "custom_tool_call_output")) {
        SOL_TRY(api_needed(o, "call_id", &id));
        SOL_TRY(api_read_contents(rd, o, "output", input_types, &contents, &n));
        return api_add_result(rd, API_KEY(o->place, "call_id"), id, contents, n);
    }
    if (text_is(type, "item_reference"))
        return api_wrong(rd->fault, API_KEY(o->place, "type"),
                         "is \"item_reference\"; send the item itself, or previous_response_id");
    return api_wrong(rd->fault, API_KEY(o->place, "type"),
                     "is \"%.*s\"; served are message, reasoning, function_call, "
                     "custom_tool_call, and the outputs of both",
                     (int)(type.length < 40 ? type.length : 40), type.data);
}

static enum sol_status read_items(struct api_reading *rd, const char *where, const json_t *list)
{
    const struct api_place *place = API_KEY(NULL, where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct api_object item = {rd->fault, API_AT(place, i), json_array_get(list, i)};
        SOL_TRY(read_item(rd, &item, json_array_get(list, i + 1)));
    }
    return SOL_OK;
}

static enum sol_status read_input(struct api_reading *rd, const json_t *history)
{
    const json_t *input = api_field(&rd->body, "input");
    const struct api_place *place = API_KEY(NULL, "input");
    if (input && !json_is_array(input) && !chat_json_is_string(input))
        return api_not(rd->fault, place, input, "a string or an array of items");
    if (json_array_size(input) + json_array_size(history) > API_MESSAGES_MAX)
        return api_wrong(rd->fault, place, "has, with what came before, more than %d items",
                         API_MESSAGES_MAX);
    SOL_TRY(read_items(rd, "previous_response_id", history));
    if (json_is_array(input)) {
        SOL_TRY(read_items(rd, "input", input));
    } else if (input) {
        const struct chat_content *contents;
        size_t n;
        SOL_TRY(api_check_results(rd, place));
        SOL_TRY(api_read_contents(rd, &rd->body, "input", input_types, &contents, &n));
        SOL_TRY(api_add_message(rd, CHAT_USER, NULL, (struct chat_text){0}, contents, n));
    }
    if (!rd->opened && !rd->instructed)
        return api_wrong(rd->fault, place, "is missing or empty: there is nothing to answer");
    return api_check_results(rd, place);
}

/* ---- fields ---- */

static enum sol_status read_include(struct api_reading *rd)
{
    json_t *list;
    int64_t top = -1;
    SOL_TRY(api_list(&rd->body, "include", &list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct chat_text name = chat_json_text(json_array_get(list, i));
        rd->request->encrypted |= text_is(name, "reasoning.encrypted_content");
        rd->request->job.logprobs |= text_is(name, "message.output_text.logprobs");
    }
    SOL_TRY(api_integer(&rd->body, "top_logprobs", 0, JOB_TOP_MAX, &top));
    rd->request->job.logprobs |= top > 0;
    rd->request->job.top = top > 0 ? (int)top : 0;
    return SOL_OK;
}

static enum sol_status read_metadata(struct api_reading *rd)
{
    const struct api_place *place = API_KEY(NULL, "metadata");
    json_t *map, *value;
    const char *key;
    SOL_TRY(api_map(&rd->body, "metadata", &map));
    if (json_object_size(map) > 16) return api_wrong(rd->fault, place, "has more than 16 entries");
    json_object_foreach(map, key, value)
    {
        if (!chat_json_is_string(value))
            return api_not(rd->fault, API_KEY(place, key), value, "a string");
        if (strlen(key) > 64 || json_string_length(value) > 512)
            return api_wrong(rd->fault, API_KEY(place, key),
                             "is too long: 64 bytes for a key, 512 for its text");
    }
    return SOL_OK;
}

/* Names that clients give themselves, which are kept and given back. */
static enum sol_status read_names(struct api_reading *rd)
{
    static const char *const names[] = {"user", "prompt_cache_key", "safety_identifier"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_text name = {0};
        SOL_TRY(api_text(&rd->body, names[i], &name));
        if (name.length > 512)
            return api_wrong(rd->fault, API_KEY(NULL, names[i]), "is longer than 512 bytes");
    }
    return SOL_OK;
}

static enum sol_status read_text(struct api_reading *rd)
{
    json_t *map;
    SOL_TRY(api_map(&rd->body, "text", &map));
    struct api_object text = {rd->fault, API_KEY(NULL, "text"), map};
    if (!map) return SOL_OK;
    SOL_TRY(api_read_verbosity(&text));
    return api_read_format(rd, API_KEY(text.place, "format"), api_field(&text, "format"), true);
}

static enum sol_status read_keeping(struct api_reading *rd)
{
    struct api_request *request = rd->request;
    request->store = true;
    SOL_TRY(api_flag(&rd->body, "store", &request->store));
    SOL_TRY(api_flag(&rd->body, "background", &request->background));
    if (request->background && !request->store)
        return api_wrong(rd->fault, API_KEY(NULL, "background"),
                         "needs \"store\": true, or there is nothing to come back to");
    return api_text(&rd->body, "previous_response_id", &request->previous);
}

static enum sol_status read_request(struct api_reading *rd, const json_t *history, const char *date)
{
    struct chat_text instructions = {0}, copy;
    SOL_TRY(api_read_options(rd, "max_output_tokens"));
    if (rd->request->job.n != 1)
        return api_wrong(rd->fault, API_KEY(NULL, "n"), "must be 1: a response is one answer");
    SOL_TRY(read_include(rd));
    SOL_TRY(read_metadata(rd));
    SOL_TRY(read_names(rd));
    SOL_TRY(read_keeping(rd));
    SOL_TRY(api_read_tools(rd, true));
    rd->format_field = "text.format";
    SOL_TRY(read_text(rd));
    SOL_TRY(api_text(&rd->body, "instructions", &instructions));
    if (instructions.length)
        SOL_TRY(api_add_instruction(rd, &(const struct chat_content){.text = instructions}, 1));
    if (date) {
        SOL_TRY(conversation_copy(rd->request->conversation, (struct chat_text){date, strlen(date)},
                                  &copy));
        rd->request->date = copy.data;
    }
    SOL_TRY(read_input(rd, history));
    return api_finish(rd);
}

enum sol_status api_read_response(const struct api_reader *reader, json_t *body, json_t *history,
                                  const char *date, struct api_fault *fault,
                                  struct api_request **out)
{
    struct api_reading rd;
    enum sol_status status = api_reading_begin(&rd, reader, body, fault);
    if (status == SOL_OK && history) status = conversation_keep(rd.request->conversation, history);
    if (status == SOL_OK) status = read_request(&rd, history, date);
    return api_reading_end(&rd, status, out);
}

enum sol_status api_read_previous(const json_t *body, struct api_fault *fault,
                                  struct chat_text *previous)
{
    *previous = (struct chat_text){0};
    return api_text(&(struct api_object){fault, NULL, body}, "previous_response_id", previous);
}

/* ---- as they are stored ---- */

static void name_item(json_t *item)
{
    struct chat_text type = chat_json_text(json_object_get(item, "type"));
    char id[API_ID_SIZE];
    if (!type.data) json_object_set_new(item, "type", json_string("message"));
    if (json_is_string(json_object_get(item, "id"))) return;
    api_new_id(text_is(type, "reasoning")              ? "rs_"
               : text_is(type, "function_call")        ? "fc_"
               : text_is(type, "custom_tool_call")     ? "ctc_"
               : text_is(type, "function_call_output") ? "fco_"
                                                       : "msg_",
               id);
    json_object_set_new(item, "id", json_string(id));
}

json_t *api_input_items(const json_t *body)
{
    const json_t *input = json_object_get(body, "input");
    json_t *items = NULL;
    if (json_is_array(input)) items = json_deep_copy(input);
    if (!input || json_is_null(input)) items = json_array();
    if (json_is_string(input)) {
        json_t *text = json_stringn(json_string_value(input), json_string_length(input));
        items = json_pack("[{s:s, s:s, s:[{s:s, s:o}]}]", "type", "message", "role", "user",
                          "content", "type", "input_text", "text", text);
    }
    for (size_t i = 0; i < json_array_size(items); i++) name_item(json_array_get(items, i));
    return items;
}
