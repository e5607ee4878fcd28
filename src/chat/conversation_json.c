/* Conversations from and to openai-harmony's JSON. A field that is missing and one that is null
 * are the same. */
#include "chat/conversation.h"

#include <stdlib.h>

#include "base/memory.h"
#include "chat/json.h"

/* Puts the place before the message: "messages[2]", "content[0]", "tools". */
#define AT(call, ...)                                                                              \
    do {                                                                                           \
        enum sol_status at_status_ = (call);                                                       \
        if (at_status_ != SOL_OK) return status_prefix(at_status_, __VA_ARGS__);                   \
    } while (0)

/* ---- fields ---- */

static enum sol_status wrong(const char *key, const char *wanted, const json_t *value)
{
    return status_set(SOL_E_FORMAT, "'%s' is %s; it must be %s", key, chat_json_kind(value),
                      wanted);
}

static enum sol_status no_object(const json_t *value)
{
    return status_set(SOL_E_FORMAT, "is %s; it must be an object", chat_json_kind(value));
}

static enum sol_status optional_text(struct conversation *c, const json_t *object, const char *key,
                                     struct chat_text *to)
{
    const json_t *value = json_object_get(object, key);
    *to = (struct chat_text){0};
    if (!value || json_is_null(value)) return SOL_OK;
    if (!chat_json_is_string(value)) return wrong(key, "a string", value);
    return conversation_copy(c, chat_json_text(value), to);
}

static enum sol_status needed_text(struct conversation *c, const json_t *object, const char *key,
                                   struct chat_text *to)
{
    SOL_TRY(optional_text(c, object, key, to));
    return to->data ? SOL_OK : wrong(key, "a string", json_object_get(object, key));
}

/* ---- tools ---- */

static enum sol_status read_tool(struct conversation *c, const json_t *json, struct chat_tool *tool)
{
    if (!json_is_object(json)) return no_object(json);
    SOL_TRY(needed_text(c, json, "name", &tool->name));
    SOL_TRY(needed_text(c, json, "description", &tool->description));
    json_t *parameters = json_object_get(json, "parameters");
    if (!parameters || json_is_null(parameters)) return SOL_OK;
    tool->parameters = parameters;
    return SOL_OK;
}

enum sol_status chat_namespace_read(struct conversation *c, const json_t *json,
                                    struct chat_namespace *space)
{
    const json_t *list = json_object_get(json, "tools");
    *space = (struct chat_namespace){.key = space->key};
    if (!json_is_object(json)) return no_object(json);
    SOL_TRY(needed_text(c, json, "name", &space->name));
    SOL_TRY(optional_text(c, json, "description", &space->description));
    if (!json_is_array(list)) return wrong("tools", "an array", list);
    space->n_tools = json_array_size(list);
    struct chat_tool *tools = conversation_alloc(c, space->n_tools * sizeof *tools);
    if (!tools) return SOL_E_MEMORY;
    for (size_t i = 0; i < space->n_tools; i++)
        AT(read_tool(c, json_array_get(list, i), &tools[i]), "tools[%zu]", i);
    space->tools = tools;
    return SOL_OK;
}

static int by_key(const void *a, const void *b)
{
    const struct chat_namespace *x = a, *y = b;
    return strcmp(x->key.data, y->key.data);
}

/* Keys hold no NUL (jansson), and strcmp orders them by their bytes. */
static enum sol_status read_tools(struct conversation *c, const json_t *object,
                                  struct chat_tools *tools)
{
    json_t *map = json_object_get(object, "tools"), *value;
    const char *key;
    if (!map || json_is_null(map)) return SOL_OK;
    if (!json_is_object(map)) return wrong("tools", "an object of namespaces", map);
    struct chat_namespace *spaces = conversation_alloc(c, json_object_size(map) * sizeof *spaces);
    if (!spaces) return SOL_E_MEMORY;
    size_t n = 0;
    json_object_foreach(map, key, value)
    {
        SOL_TRY(conversation_copy(c, (struct chat_text){key, strlen(key)}, &spaces[n].key));
        AT(chat_namespace_read(c, value, &spaces[n]), "tools.%.64s", key);
        n++;
    }
    qsort(spaces, n, sizeof *spaces, by_key);
    *tools = (struct chat_tools){spaces, n};
    return SOL_OK;
}

/* ---- contents ---- */

static enum sol_status read_channels(struct conversation *c, const json_t *object,
                                     struct chat_system *system)
{
    const json_t *config = json_object_get(object, "channel_config");
    if (!config || json_is_null(config)) return SOL_OK;
    if (!json_is_object(config)) return wrong("channel_config", "an object", config);
    const json_t *list = json_object_get(config, "valid_channels");
    const json_t *required = json_object_get(config, "channel_required");
    if (!json_is_array(list)) return wrong("valid_channels", "an array of strings", list);
    if (!json_is_boolean(required)) return wrong("channel_required", "a boolean", required);
    size_t count = json_array_size(list);
    struct chat_text *channels = conversation_alloc(c, count * sizeof *channels);
    if (!channels) return SOL_E_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const json_t *name = json_array_get(list, i);
        if (!chat_json_is_string(name)) return wrong("valid_channels", "an array of strings", list);
        SOL_TRY(conversation_copy(c, chat_json_text(name), &channels[i]));
    }
    system->channels = channels;
    system->n_channels = count;
    system->channel_required = json_is_true(required);
    return SOL_OK;
}

static enum sol_status read_system(struct conversation *c, const json_t *json,
                                   struct chat_content *content)
{
    struct chat_text effort;
    struct chat_system *system = conversation_alloc(c, sizeof *system);
    if (!system) return SOL_E_MEMORY;
    content->system = system;
    SOL_TRY(optional_text(c, json, "model_identity", &system->identity));
    SOL_TRY(optional_text(c, json, "conversation_start_date", &system->date));
    SOL_TRY(optional_text(c, json, "knowledge_cutoff", &system->cutoff));
    SOL_TRY(optional_text(c, json, "reasoning_effort", &effort));
    if (effort.data) {
        static const char *const names[] = {"Low", "Medium", "High"};
        for (size_t i = 0; i < 3; i++)
            if (text_is(effort, names[i])) system->effort = CHAT_LOW + (enum chat_effort)i;
        if (system->effort == CHAT_EFFORT_UNSET)
            return status_set(SOL_E_FORMAT,
                              "'reasoning_effort' is '%.32s'; it must be Low, Medium or High",
                              effort.data);
    }
    SOL_TRY(read_channels(c, json, system));
    return read_tools(c, json, &system->tools);
}

static enum sol_status read_content(struct conversation *c, const json_t *json,
                                    struct chat_content *content)
{
    struct chat_text kind = chat_json_text(json_object_get(json, "type"));
    if (text_is(kind, "python")) content->kind = CHAT_CONTENT_PYTHON;
    if (text_is(kind, "python_output")) content->kind = CHAT_CONTENT_OUTPUT;
    if (text_is(kind, "text") || content->kind != CHAT_CONTENT_TEXT)
        return needed_text(c, json, "text", &content->text);
    if (text_is(kind, "system_content")) {
        content->kind = CHAT_CONTENT_SYSTEM;
        return read_system(c, json, content);
    }
    if (!text_is(kind, "developer_content"))
        return wrong("type", "text, system_content, developer_content, python or python_output",
                     json_object_get(json, "type"));
    content->kind = CHAT_CONTENT_DEVELOPER;
    content->developer = conversation_alloc(c, sizeof *content->developer);
    if (!content->developer) return SOL_E_MEMORY;
    SOL_TRY(optional_text(c, json, "instructions", &content->developer->instructions));
    return read_tools(c, json, &content->developer->tools);
}

static enum sol_status read_contents(struct conversation *c, const json_t *json,
                                     struct chat_message *message)
{
    const json_t *value = json_object_get(json, "content");
    bool plain = chat_json_is_string(value);
    if (!plain && !json_is_array(value)) return wrong("content", "a string or an array", value);
    size_t count = plain ? 1 : json_array_size(value);
    struct chat_content *contents = conversation_alloc(c, count * sizeof *contents);
    if (!contents) return SOL_E_MEMORY;
    message->contents = contents;
    message->n_contents = count;
    if (plain) return conversation_copy(c, chat_json_text(value), &contents->text);
    for (size_t i = 0; i < count; i++)
        AT(read_content(c, json_array_get(value, i), &contents[i]), "content[%zu]", i);
    return SOL_OK;
}

/* ---- messages ---- */

static enum sol_status read_message(struct conversation *c, const json_t *json)
{
    struct chat_message message = {0};
    if (!json_is_object(json)) return no_object(json);
    message.role = chat_role_find(chat_json_text(json_object_get(json, "role")));
    if (message.role == CHAT_NOBODY)
        return wrong("role", "user, assistant, system, developer or tool",
                     json_object_get(json, "role"));
    SOL_TRY(optional_text(c, json, "name", &message.name));
    SOL_TRY(optional_text(c, json, "recipient", &message.recipient));
    SOL_TRY(optional_text(c, json, "channel", &message.channel));
    SOL_TRY(optional_text(c, json, "content_type", &message.content_type));
    SOL_TRY(read_contents(c, json, &message));
    return conversation_add(c, &message);
}

enum sol_status conversation_add_json(struct conversation *c, json_t *json)
{
    const json_t *list = json_object_get(json, "messages");
    size_t before = conversation_count(c);
    if (!json_is_array(list)) return wrong("messages", "an array", list);
    SOL_TRY(conversation_keep(c, json)); /* schemas stay where they are */
    for (size_t i = 0; i < json_array_size(list); i++) {
        enum sol_status status = read_message(c, json_array_get(list, i));
        if (status == SOL_OK) continue;
        conversation_truncate(c, before);
        return status_prefix(status, "messages[%zu]", i);
    }
    return SOL_OK;
}

/* ---- writing ---- */

static void set_text(json_t *object, const char *key, struct chat_text text)
{
    if (text.data) json_object_set_new(object, key, json_stringn(text.data, text.length));
}

static json_t *tools_json(const struct chat_tools *tools)
{
    json_t *map = json_object();
    for (size_t i = 0; i < tools->count; i++) {
        const struct chat_namespace *from = &tools->spaces[i];
        json_t *space = json_object(), *list = json_array();
        set_text(space, "name", from->name);
        set_text(space, "description", from->description);
        for (size_t t = 0; t < from->n_tools; t++) {
            json_t *tool = json_object();
            set_text(tool, "name", from->tools[t].name);
            set_text(tool, "description", from->tools[t].description);
            if (from->tools[t].parameters) /* only counted up */
                json_object_set(tool, "parameters", (json_t *)(uintptr_t)from->tools[t].parameters);
            json_array_append_new(list, tool);
        }
        json_object_set_new(space, "tools", list);
        json_object_setn_new(map, from->key.data, from->key.length, space);
    }
    return map;
}

static json_t *system_json(const struct chat_system *system)
{
    static const char *const efforts[] = {NULL, "Low", "Medium", "High"};
    json_t *json = json_pack("{s:s}", "type", "system_content");
    set_text(json, "model_identity", system->identity);
    if (system->effort)
        json_object_set_new(json, "reasoning_effort", json_string(efforts[system->effort]));
    set_text(json, "conversation_start_date", system->date);
    set_text(json, "knowledge_cutoff", system->cutoff);
    if (system->n_channels) {
        json_t *list = json_array();
        for (size_t i = 0; i < system->n_channels; i++)
            json_array_append_new(
                list, json_stringn(system->channels[i].data, system->channels[i].length));
        json_object_set_new(json, "channel_config",
                            json_pack("{s:o, s:b}", "valid_channels", list, "channel_required",
                                      system->channel_required));
    }
    if (system->tools.count) json_object_set_new(json, "tools", tools_json(&system->tools));
    return json;
}

static json_t *content_json(const struct chat_content *content)
{
    static const char *const types[] = {[CHAT_CONTENT_TEXT] = "text",
                                        [CHAT_CONTENT_PYTHON] = "python",
                                        [CHAT_CONTENT_OUTPUT] = "python_output"};
    json_t *json;
    switch (content->kind) {
    case CHAT_CONTENT_SYSTEM:
        return system_json(content->system);
    case CHAT_CONTENT_DEVELOPER:
        json = json_pack("{s:s}", "type", "developer_content");
        set_text(json, "instructions", content->developer->instructions);
        if (content->developer->tools.count)
            json_object_set_new(json, "tools", tools_json(&content->developer->tools));
        return json;
    default:
        json = json_pack("{s:s}", "type", types[content->kind]);
        set_text(json, "text", content->text);
        return json;
    }
}

json_t *chat_message_json(const struct chat_message *message)
{
    json_t *contents = json_array();
    json_t *json = json_pack("{s:s, s:n}", "role", chat_role_name(message->role), "name");
    set_text(json, "name", message->name);
    for (size_t i = 0; i < message->n_contents; i++)
        json_array_append_new(contents, content_json(&message->contents[i]));
    json_object_set_new(json, "content", contents);
    set_text(json, "channel", message->channel);
    set_text(json, "recipient", message->recipient);
    set_text(json, "content_type", message->content_type);
    return json;
}

json_t *conversation_json(const struct conversation *c, size_t first, size_t end)
{
    json_t *list = json_array();
    for (size_t i = first; i < end; i++) {
        if (json_array_append_new(list, chat_message_json(conversation_message(c, i))) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    return list;
}
