/* Tools and which of them may be called; the form of the answer. */
#include "serve/api_read.h"

/* ---- names ---- */

static enum sol_status check_name(struct api_reading *rd, const struct api_place *place,
                                  struct chat_text name)
{
    if (name.length == 0 || name.length > API_NAME_MAX)
        return api_wrong(rd->fault, place, "must have 1 to %d characters", API_NAME_MAX);
    for (size_t i = 0; i < name.length; i++) {
        unsigned char c = (unsigned char)name.data[i];
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        if (!letter && !(c >= '0' && c <= '9') && c != '_' && c != '-')
            return api_wrong(rd->fault, place,
                             "has a sign that is no letter, digit, underscore or hyphen");
    }
    return SOL_OK;
}

/* ---- tools ---- */

/* {"name", "description", "parameters", "strict"} */
static enum sol_status read_function(struct api_reading *rd, const struct api_object *o,
                                     struct chat_text space, size_t index)
{
    struct api_request *request = rd->request;
    json_t *parameters;
    if (request->n_functions == API_FUNCTIONS_MAX)
        return api_wrong(rd->fault, API_KEY(NULL, "tools"), "has more than %d functions",
                         API_FUNCTIONS_MAX);
    struct api_function *f = &request->functions[request->n_functions];
    *f = (struct api_function){.space = space, .index = index};
    SOL_TRY(api_needed(o, "name", &f->name));
    SOL_TRY(check_name(rd, API_KEY(o->place, "name"), f->name));
    SOL_TRY(api_text(o, "description", &f->description));
    SOL_TRY(api_map(o, "parameters", &parameters));
    SOL_TRY(api_flag(o, "strict", &f->strict));
    f->parameters = parameters;
    SOL_TRY(api_full_name(rd, f->space, f->name, &f->full));
    if (api_function_find(request, f->full))
        return api_wrong(rd->fault, API_KEY(o->place, "name"), "is the name of another tool too");
    request->n_functions++;
    return SOL_OK;
}

/* A tool that takes any text, {"name", "description", "format"}: for the model a function of one
 * argument. The format's definition it is shown; that it follows it is not enforced. */
static enum sol_status read_custom(struct api_reading *rd, const struct api_object *o,
                                   struct chat_text space, size_t index)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
        "\"required\":[\"input\"],\"additionalProperties\":false}";
    struct conversation *c = rd->request->conversation;
    struct text_buffer text = {0};
    struct chat_text definition = {0};
    json_t *format;
    SOL_TRY(api_map(o, "format", &format));
    struct api_object of_format = {rd->fault, API_KEY(o->place, "format"), format};
    if (format) SOL_TRY(api_text(&of_format, "definition", &definition));
    json_t *parameters = json_loads(schema, 0, NULL);
    enum sol_status status = parameters ? conversation_keep(c, parameters)
                                        : status_set(SOL_E_MEMORY, "no memory for a tool");
    json_decref(parameters);
    SOL_TRY(status);
    SOL_TRY(read_function(rd, o, space, index));
    struct api_function *f = &rd->request->functions[rd->request->n_functions - 1];
    f->custom = f->strict = true;
    f->parameters = parameters;
    if (!definition.data) return SOL_OK;
    if (f->description.data) text_put_text(&text, f->description);
    text_puts(&text, "\nThe input follows this definition:\n");
    text_put_text(&text, definition);
    status = text_check(&text, "a tool");
    if (status == SOL_OK) status = conversation_copy(c, text_of(&text), &f->description);
    text_buffer_free(&text);
    return status;
}

static enum sol_status no_tool(struct api_reading *rd, const struct api_object *o,
                               struct chat_text type)
{
    return api_wrong(rd->fault, API_KEY(o->place, "type"),
                     "is \"%.*s\": this server offers no tools of its own, and calls of functions "
                     "are all that it can write; leave it out, or make it a \"function\"",
                     (int)(type.length < 40 ? type.length : 40), type.data);
}

/* {"type": "namespace", "name", "description", "tools": [functions]} */
static enum sol_status read_namespace(struct api_reading *rd, const struct api_object *o,
                                      size_t index)
{
    struct chat_text space;
    json_t *list;
    SOL_TRY(api_needed(o, "name", &space));
    SOL_TRY(check_name(rd, API_KEY(o->place, "name"), space));
    SOL_TRY(api_list(o, "tools", &list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct chat_text type;
        const struct api_place *place = API_KEY(o->place, "tools");
        struct api_object tool = {rd->fault, API_AT(place, i), json_array_get(list, i)};
        if (!json_is_object(tool.json))
            return api_not(rd->fault, tool.place, tool.json, "an object");
        SOL_TRY(api_needed(&tool, "type", &type));
        if (text_is(type, "custom"))
            SOL_TRY(read_custom(rd, &tool, space, index));
        else if (text_is(type, "function"))
            SOL_TRY(read_function(rd, &tool, space, index));
        else
            return no_tool(rd, &tool, type);
    }
    return SOL_OK;
}

static enum sol_status read_tool(struct api_reading *rd, const struct api_object *o, size_t index,
                                 bool flat)
{
    struct chat_text type;
    json_t *inner;
    if (!json_is_object(o->json)) return api_not(rd->fault, o->place, o->json, "an object");
    SOL_TRY(api_needed(o, "type", &type));
    if (flat && text_is(type, "namespace")) return read_namespace(rd, o, index);
    if (flat && text_is(type, "custom")) return read_custom(rd, o, (struct chat_text){0}, index);
    /* What a server would run itself. Clients offer it whether there is such a server or not, and
     * a model need not use it. */
    if (flat && !text_is(type, "function")) return SOL_OK;
    if (!text_is(type, "function")) return no_tool(rd, o, type);
    if (flat) return read_function(rd, o, (struct chat_text){0}, index);
    SOL_TRY(api_map(o, "function", &inner));
    if (!inner) return api_not(rd->fault, API_KEY(o->place, "function"), inner, "an object");
    struct api_object function = {rd->fault, API_KEY(o->place, "function"), inner};
    return read_function(rd, &function, (struct chat_text){0}, index);
}

/* ---- tool_choice ---- */

/* The function that {"type": "function", "name"}, or with the name in "function", means. */
static enum sol_status read_chosen(struct api_reading *rd, const struct api_object *o, bool flat,
                                   size_t *index)
{
    const struct api_place *place = API_KEY(o->place, "function"); /* of this block */
    struct api_object inner = *o;
    struct chat_text type, name, space = {0};
    json_t *json;
    if (!json_is_object(o->json)) return api_not(rd->fault, o->place, o->json, "an object");
    SOL_TRY(api_needed(o, "type", &type));
    if (!text_is(type, "function") && !(flat && text_is(type, "custom")))
        return no_tool(rd, o, type);
    if (!flat) {
        SOL_TRY(api_map(o, "function", &json));
        if (!json) return api_not(rd->fault, place, json, "an object");
        inner = (struct api_object){rd->fault, place, json};
    }
    SOL_TRY(api_needed(&inner, "name", &name));
    SOL_TRY(api_text(&inner, "namespace", &space));
    for (*index = 0; *index < rd->request->n_functions; ++*index) {
        const struct api_function *f = &rd->request->functions[*index];
        if (f->name.length == name.length && memcmp(f->name.data, name.data, name.length) == 0 &&
            f->space.length == space.length &&
            (space.length == 0 || memcmp(f->space.data, space.data, space.length) == 0))
            return SOL_OK;
    }
    return api_wrong(rd->fault, API_KEY(inner.place, "name"),
                     "is none of the functions in 'tools'");
}

static enum sol_status read_mode(struct api_reading *rd, const struct api_place *place,
                                 struct chat_text mode)
{
    struct turn_params *turn = &rd->request->turn;
    if (text_is(mode, "auto"))
        turn->calls = TURN_CALLS_AUTO;
    else if (text_is(mode, "required"))
        turn->calls = TURN_CALLS_REQUIRED;
    else if (text_is(mode, "none"))
        turn->calls = TURN_CALLS_NONE;
    else
        return api_wrong(rd->fault, place, "must be auto, required, none, or a function");
    if (turn->calls == TURN_CALLS_REQUIRED && rd->request->n_functions == 0)
        return api_wrong(rd->fault, place,
                         "is \"required\", but there are no functions in 'tools'");
    return SOL_OK;
}

/* {"type": "allowed_tools", "mode", "tools"}: the others are as if they were not there. */
static enum sol_status read_allowed(struct api_reading *rd, const struct api_object *o, bool flat)
{
    struct chat_text mode;
    json_t *list;
    SOL_TRY(api_needed(o, "mode", &mode));
    SOL_TRY(read_mode(rd, API_KEY(o->place, "mode"), mode));
    SOL_TRY(api_list(o, "tools", &list));
    if (json_array_size(list) > API_FUNCTIONS_MAX)
        return api_wrong(rd->fault, API_KEY(o->place, "tools"), "has more than %d functions",
                         API_FUNCTIONS_MAX);
    rd->hidden = conversation_alloc(rd->request->conversation,
                                    (rd->request->n_functions + 1) * sizeof *rd->hidden);
    if (!rd->hidden) return SOL_E_MEMORY;
    memset(rd->hidden, true, rd->request->n_functions * sizeof *rd->hidden);
    for (size_t i = 0, index; i < json_array_size(list); i++) {
        const struct api_place *place = API_KEY(o->place, "tools");
        struct api_object tool = {rd->fault, API_AT(place, i), json_array_get(list, i)};
        SOL_TRY(read_chosen(rd, &tool, flat, &index));
        rd->hidden[index] = false;
    }
    if (json_array_size(list) == 0 && rd->request->turn.calls == TURN_CALLS_REQUIRED)
        return api_wrong(rd->fault, API_KEY(o->place, "tools"), "is empty, but a call is required");
    return SOL_OK;
}

static enum sol_status read_choice(struct api_reading *rd, bool flat)
{
    json_t *value = api_field(&rd->body, "tool_choice"), *allowed;
    struct api_object o = {rd->fault, API_KEY(NULL, "tool_choice"), value};
    struct chat_text type, mode = {0};
    size_t index;
    if (!value) return SOL_OK;
    if (json_is_string(value)) {
        SOL_TRY(api_text(&rd->body, "tool_choice", &mode));
        return read_mode(rd, o.place, mode);
    }
    if (!json_is_object(value)) return api_not(rd->fault, o.place, value, "a string or an object");
    SOL_TRY(api_needed(&o, "type", &type));
    if (text_is(type, "allowed_tools") && flat) return read_allowed(rd, &o, flat);
    if (text_is(type, "allowed_tools")) {
        SOL_TRY(api_map(&o, "allowed_tools", &allowed));
        struct api_object inner = {rd->fault, API_KEY(o.place, "allowed_tools"), allowed};
        if (!allowed) return api_not(rd->fault, inner.place, allowed, "an object");
        return read_allowed(rd, &inner, flat);
    }
    SOL_TRY(read_chosen(rd, &o, flat, &index));
    rd->request->turn.calls = TURN_CALLS_REQUIRED;
    rd->request->turn.only = rd->request->functions[index].full;
    return SOL_OK;
}

enum sol_status api_read_tools(struct api_reading *rd, bool flat)
{
    json_t *list;
    size_t most = 0;
    SOL_TRY(api_list(&rd->body, "tools", &list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t inner = json_array_size(json_object_get(json_array_get(list, i), "tools"));
        most += inner > 1 ? inner : 1;
    }
    if (most > API_FUNCTIONS_MAX)
        return api_wrong(rd->fault, API_KEY(NULL, "tools"), "has more than %d functions",
                         API_FUNCTIONS_MAX);
    rd->request->functions =
        conversation_alloc(rd->request->conversation, most * sizeof *rd->request->functions);
    if (!rd->request->functions) return SOL_E_MEMORY;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const struct api_place *place = API_KEY(NULL, "tools");
        struct api_object tool = {rd->fault, API_AT(place, i), json_array_get(list, i)};
        SOL_TRY(read_tool(rd, &tool, i, flat));
    }
    if (rd->request->n_functions) {
        enum sol_status status = chat_format_calls(rd->reader->format);
        if (status != SOL_OK) return api_blame(rd->fault, API_KEY(NULL, "tools"), status);
    }
    return read_choice(rd, flat);
}

/* ---- the form of the answer ---- */

enum sol_status api_read_format(struct api_reading *rd, const struct api_place *place,
                                const json_t *format, bool flat)
{
    struct api_object o = {rd->fault, place, format};
    struct chat_text type;
    json_t *schema;
    if (!format) return SOL_OK;
    if (!json_is_object(format)) return api_not(rd->fault, place, format, "an object");
    SOL_TRY(api_needed(&o, "type", &type));
    if (text_is(type, "text")) return SOL_OK;
    if (text_is(type, "json_object")) {
        rd->request->format = API_JSON_OBJECT;
        return SOL_OK;
    }
    if (!text_is(type, "json_schema"))
        return api_wrong(rd->fault, API_KEY(place, "type"),
                         "must be text, json_object or json_schema");
    const struct api_place *within = API_KEY(place, "json_schema"); /* of this block */
    if (!flat) {
        json_t *inner;
        SOL_TRY(api_map(&o, "json_schema", &inner));
        if (!inner) return api_not(rd->fault, within, inner, "an object");
        o = (struct api_object){rd->fault, within, inner};
    }
    SOL_TRY(api_needed(&o, "name", &rd->format_name));
    SOL_TRY(check_name(rd, API_KEY(o.place, "name"), rd->format_name));
    SOL_TRY(api_text(&o, "description", &rd->format_description));
    SOL_TRY(api_map(&o, "schema", &schema));
    if (!schema) return api_not(rd->fault, API_KEY(o.place, "schema"), schema, "an object");
    rd->format_schema = schema;
    rd->request->format = API_JSON_SCHEMA;
    return SOL_OK;
}
