/* Requests for /v1/chat/completions. */
#include "chat/json.h"
#include "serve/api_read.h"

static const char *const text_types[] = {"text", NULL};

/* ---- an assistant's message ---- */

static enum sol_status read_call(struct api_reading *rd, const struct api_object *o,
                                 struct chat_text *id)
{
    struct chat_text type = CHAT_TEXT("function"), name, arguments = {0};
    json_t *inner;
    if (!json_is_object(o->json)) return api_not(rd->fault, o->place, o->json, "an object");
    SOL_TRY(api_text(o, "type", &type));
    if (!text_is(type, "function"))
        return api_wrong(rd->fault, API_KEY(o->place, "type"),
                         "must be \"function\": other calls cannot be told to the model");
    SOL_TRY(api_needed(o, "id", id));
    SOL_TRY(api_map(o, "function", &inner));
    struct api_object function = {rd->fault, API_KEY(o->place, "function"), inner};
    if (!inner) return api_not(rd->fault, function.place, inner, "an object");
    SOL_TRY(api_needed(&function, "name", &name));
    SOL_TRY(api_needed(&function, "arguments", &arguments));
    return api_add_call(rd, function.place, *id, (struct chat_text){0}, name, arguments);
}

/* As the client has it, or as it is remembered by the id of the first call. */
static enum sol_status read_reasoning(struct api_reading *rd, const struct api_object *o,
                                      const json_t *calls)
{
    struct chat_text text = {0};
    SOL_TRY(api_text(o, "reasoning", &text));
    if (!text.data) SOL_TRY(api_text(o, "reasoning_content", &text));
    if (text.length) return api_add_reasoning(rd, text);
    struct chat_text id = chat_json_text(json_object_get(json_array_get(calls, 0), "id"));
    return text.data || !id.data ? SOL_OK : api_recall_reasoning(rd, id);
}

static enum sol_status read_assistant(struct api_reading *rd, const struct api_object *o, bool last)
{
    const struct chat_content *contents;
    struct chat_text refusal = {0}, id;
    json_t *calls;
    size_t n, length = 0;
    if (api_field(o, "function_call"))
        return api_wrong(rd->fault, API_KEY(o->place, "function_call"),
                         "is not supported; use 'tool_calls'");
    SOL_TRY(api_list(o, "tool_calls", &calls));
    if (json_array_size(calls) > API_FUNCTIONS_MAX)
        return api_wrong(rd->fault, API_KEY(o->place, "tool_calls"), "has more than %d calls",
                         API_FUNCTIONS_MAX);
    SOL_TRY(read_reasoning(rd, o, calls));
    SOL_TRY(api_read_contents(rd, o, "content", text_types, &contents, &n));
    SOL_TRY(api_text(o, "refusal", &refusal));
    for (size_t i = 0; i < n; i++) length += contents[i].text.length;
    bool calling = json_array_size(calls) > 0;
    if (length || (n && !calling && !last))
        SOL_TRY(api_add_message(rd, CHAT_ASSISTANT, calling ? "commentary" : "final",
                                (struct chat_text){0}, contents, n));
    else if (refusal.length) {
        SOL_TRY(api_open(rd));
        SOL_TRY(conversation_add_text(
            rd->request->conversation,
            &(const struct chat_message){.role = CHAT_ASSISTANT, .channel = CHAT_TEXT("final")},
            refusal));
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const struct api_place *place = API_KEY(o->place, "tool_calls");
        struct api_object call = {rd->fault, API_AT(place, i), json_array_get(calls, i)};
        SOL_TRY(read_call(rd, &call, &id));
    }
    return SOL_OK;
}

/* ---- messages ---- */

static enum sol_status read_user(struct api_reading *rd, const struct api_object *o)
{
    const struct chat_content *contents;
    struct chat_text name = {0};
    size_t n;
    SOL_TRY(api_text(o, "name", &name));
    for (size_t i = 0; i < name.length; i++)
        if ((unsigned char)name.data[i] <= ' ' || strchr("<|\\/>\x7f", name.data[i]))
            return api_wrong(rd->fault, API_KEY(o->place, "name"),
                             "has a blank or a sign that no name may have");
    if (name.length > API_NAME_MAX)
        return api_wrong(rd->fault, API_KEY(o->place, "name"), "has more than %d bytes",
                         API_NAME_MAX);
    SOL_TRY(api_read_contents(rd, o, "content", text_types, &contents, &n));
    if (!contents)
        return api_not(rd->fault, API_KEY(o->place, "content"), api_field(o, "content"),
                       "a string or an array of parts");
    if (name.length == 0) name = (struct chat_text){0};
    return api_add_message(rd, CHAT_USER, NULL, name, contents, n);
}

static enum sol_status read_message(struct api_reading *rd, const struct api_object *o, bool last)
{
    const struct chat_content *contents;
    struct chat_text role, id;
    size_t n;
    if (!json_is_object(o->json)) return api_not(rd->fault, o->place, o->json, "an object");
    SOL_TRY(api_needed(o, "role", &role));
    if (text_is(role, "tool")) {
        SOL_TRY(api_needed(o, "tool_call_id", &id));
        SOL_TRY(api_read_contents(rd, o, "content", text_types, &contents, &n));
        return api_add_result(rd, API_KEY(o->place, "tool_call_id"), id, contents, n);
    }
    SOL_TRY(api_check_results(rd, o->place));
    if (text_is(role, "user")) return read_user(rd, o);
    if (text_is(role, "assistant")) return read_assistant(rd, o, last);
    if (!text_is(role, "system") && !text_is(role, "developer"))
        return api_wrong(rd->fault, API_KEY(o->place, "role"),
                         "must be system, developer, user, assistant or tool");
    SOL_TRY(api_read_contents(rd, o, "content", text_types, &contents, &n));
    return api_add_instruction(rd, contents, n);
}

static enum sol_status read_messages(struct api_reading *rd)
{
    const struct api_place *place = API_KEY(NULL, "messages");
    json_t *list;
    SOL_TRY(api_list(&rd->body, "messages", &list));
    if (!list) return api_not(rd->fault, place, list, "an array of messages");
    size_t n = json_array_size(list);
    if (n == 0 || n > API_MESSAGES_MAX)
        return api_wrong(rd->fault, place, "must have 1 to %d messages", API_MESSAGES_MAX);
    for (size_t i = 0; i < n; i++) {
        struct api_object message = {rd->fault, API_AT(place, i), json_array_get(list, i)};
        SOL_TRY(read_message(rd, &message, i + 1 == n));
    }
    return api_check_results(rd, place);
}

/* "logprobs" is a flag here, and "top_logprobs" how many others. */
static enum sol_status read_logprobs(struct api_reading *rd)
{
    struct job_params *job = &rd->request->job;
    int64_t top = -1;
    SOL_TRY(api_flag(&rd->body, "logprobs", &job->logprobs));
    SOL_TRY(api_integer(&rd->body, "top_logprobs", 0, JOB_TOP_MAX, &top));
    if (top > 0 && !job->logprobs)
        return api_wrong(rd->fault, API_KEY(NULL, "top_logprobs"),
                         "needs \"logprobs\": true beside it");
    job->top = top > 0 ? (int)top : 0;
    return SOL_OK;
}

static enum sol_status read_request(struct api_reading *rd)
{
    SOL_TRY(api_read_options(rd, "max_completion_tokens"));
    SOL_TRY(read_logprobs(rd));
    SOL_TRY(api_read_tools(rd, false));
    rd->format_field = "response_format";
    SOL_TRY(api_read_format(rd, API_KEY(NULL, "response_format"),
                            api_field(&rd->body, "response_format"), false));
    SOL_TRY(read_messages(rd));
    return api_finish(rd);
}

enum sol_status api_read_chat(const struct api_reader *reader, json_t *body,
                              struct api_fault *fault, struct api_request **out)
{
    struct api_reading rd;
    enum sol_status status = api_reading_begin(&rd, reader, body, fault);
    if (status == SOL_OK) status = read_request(&rd);
    return api_reading_end(&rd, status, out);
}
