/* From fields to a conversation, and what both APIs ask of it. */
#include "serve/api_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/bytes_hash.h"
#include "chat/json.h"
#include "generate/recommended.h"
#include "serve/server.h"

/* ---- begin and end ---- */

enum sol_status api_reading_begin(struct api_reading *rd, const struct api_reader *reader,
                                  json_t *body, struct api_fault *fault)
{
    *fault = (struct api_fault){0};
    *rd = (struct api_reading){.reader = reader, .fault = fault, .body = {fault, NULL, body}};
    struct api_request *request = calloc(1, sizeof *request);
    if (!request) return status_set(SOL_E_MEMORY, "no memory for a request");
    rd->request = request;
    request->schemas = reader->schemas;
    turn_params_init(&request->turn);
    request->turn.types = reader->types;
    job_params_init(&request->job);
    if (reader->model) model_recommends(reader->model, &request->job.sampling);
    rd->calls = json_object();
    rd->open = json_object();
    if (!rd->calls || !rd->open) return status_set(SOL_E_MEMORY, "no memory for a request");
    SOL_TRY(conversation_create(&request->conversation));
    return conversation_keep(request->conversation, body);
}

enum sol_status api_reading_end(struct api_reading *rd, enum sol_status status,
                                struct api_request **out)
{
    text_buffer_free(&rd->instructions);
    json_decref(rd->calls);
    json_decref(rd->open);
    *out = NULL;
    if (status == SOL_OK)
        *out = rd->request;
    else
        api_request_destroy(rd->request);
    return status;
}

void api_request_destroy(struct api_request *request)
{
    if (!request) return;
    for (size_t i = 0; i < request->n_holds; i++)
        schema_cache_release(request->schemas, &request->holds[i]);
    free(request->holds);
    conversation_destroy(request->conversation);
    free(request);
}

/* ---- options ---- */

/* Fields that would change the answer. A value that means nothing is fine. */
static enum sol_status refuse_fields(const struct api_reading *rd)
{
    static const struct {
        const char *key;
        double neutral; /* a number that asks for nothing */
        const char *instead;
    } fields[] = {
        {"repetition_penalty", 1, "leave it out"},
        {"audio", 0, "the model writes text alone"},
        {"functions", 0, "use 'tools'"},
        {"function_call", 0, "use 'tool_choice'"},
        {"web_search_options", 0, "leave it out"},
        {"moderation", 0, "leave it out"},
        {"grammar", 0, "ask for a JSON schema"},
        {"guided_json", 0, "ask for a JSON schema"},
        {"guided_regex", 0, "ask for a JSON schema"},
        {"structured_outputs", 0, "ask for a JSON schema"},
        {"conversation", 0, "use 'previous_response_id'"},
        {"prompt", 0, "send its text"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *value = api_field(&rd->body, fields[i].key);
        if (!value || (json_is_number(value) && json_number_value(value) == fields[i].neutral))
            continue;
        if (json_is_object(value) && json_object_size(value) == 0) continue;
        if (json_is_array(value) && json_array_size(value) == 0) continue;
        return api_wrong(rd->fault, API_KEY(NULL, fields[i].key), "is not supported; %s",
                         fields[i].instead);
    }
    return SOL_OK;
}

static enum sol_status read_modalities(const struct api_reading *rd)
{
    json_t *list;
    SOL_TRY(api_list(&rd->body, "modalities", &list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!text_is(chat_json_text(json_array_get(list, i)), "text"))
            return api_wrong(rd->fault, API_AT(API_KEY(NULL, "modalities"), i),
                             "must be \"text\": the model writes nothing else");
    return SOL_OK;
}

/* "reasoning_effort", or "effort" in "reasoning". */
static enum sol_status read_effort(struct api_reading *rd, const struct api_object *o,
                                   const char *key)
{
    struct chat_text text = {0};
    char name[16];
    SOL_TRY(api_text(o, key, &text));
    if (!text.data) return SOL_OK;
    snprintf(name, sizeof name, "%.*s", (int)(text.length < 15 ? text.length : 15), text.data);
    enum chat_effort *effort = &rd->request->turn.effort;
    enum sol_status status = chat_effort_find(name, effort);
    if (status == SOL_OK) status = chat_format_effort(rd->reader->format, *effort);
    return status == SOL_OK ? SOL_OK : api_blame(rd->fault, API_KEY(o->place, key), status);
}

/* How many tokens may be thought, by the names that servers have for it. */
static enum sol_status read_thinking(struct api_reading *rd)
{
    static const char *const names[] = {"thinking_token_budget", "thinking_budget_tokens",
                                        "thinking_budget"};
    int64_t *thinking = &rd->request->turn.thinking;
    json_t *json;
    SOL_TRY(api_map(&rd->body, "reasoning", &json));
    struct api_object reasoning = {rd->fault, API_KEY(NULL, "reasoning"), json};
    SOL_TRY(read_effort(rd, &rd->body, "reasoning_effort"));
    if (json) {
        SOL_TRY(read_effort(rd, &reasoning, "effort"));
        SOL_TRY(api_integer(&reasoning, "max_tokens", -1, INT64_MAX, thinking));
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        SOL_TRY(api_integer(&rd->body, names[i], -1, INT64_MAX, thinking));
    return SOL_OK;
}

enum sol_status api_read_verbosity(const struct api_object *o)
{
    struct chat_text verbosity = {0};
    SOL_TRY(api_text(o, "verbosity", &verbosity));
    if (!verbosity.data || text_is(verbosity, "medium")) return SOL_OK;
    return api_wrong(o->fault, API_KEY(o->place, "verbosity"),
                     "must be \"medium\": the model knows no other; ask for it in the text");
}

enum sol_status api_read_options(struct api_reading *rd, const char *limit)
{
    struct api_request *request = rd->request;
    json_t *stream;
    SOL_TRY(refuse_fields(rd));
    SOL_TRY(read_modalities(rd));
    SOL_TRY(read_thinking(rd));
    SOL_TRY(request_sampling(rd->reader->key, &rd->body, limit, request->stops, &request->job));
    SOL_TRY(api_read_verbosity(&rd->body));
    SOL_TRY(api_flag(&rd->body, "stream", &request->stream));
    SOL_TRY(api_map(&rd->body, "stream_options", &stream));
    if (stream)
        SOL_TRY(api_flag(&(struct api_object){rd->fault, API_KEY(NULL, "stream_options"), stream},
                         "include_usage", &request->usage));
    return SOL_OK;
}

/* ---- contents ---- */

static enum sol_status read_part(struct api_reading *rd, const struct api_object *part,
                                 const char *const *types, struct chat_content *content)
{
    struct chat_text type;
    if (!json_is_object(part->json))
        return api_not(rd->fault, part->place, part->json, "an object");
    SOL_TRY(api_needed(part, "type", &type));
    if (text_is(type, "refusal")) return api_needed(part, "refusal", &content->text);
    for (; *types; types++)
        if (text_is(type, *types)) return api_needed(part, "text", &content->text);
    return api_wrong(rd->fault, API_KEY(part->place, "type"),
                     "is \"%.*s\": the model reads and writes text alone, and here it must be "
                     "\"%s\"",
                     (int)(type.length < 40 ? type.length : 40), type.data, types[-1]);
}

enum sol_status api_read_contents(struct api_reading *rd, const struct api_object *o,
                                  const char *key, const char *const *types,
                                  const struct chat_content **contents, size_t *n)
{
    const json_t *value = api_field(o, key);
    const struct api_place *place = API_KEY(o->place, key);
    bool plain = value && chat_json_is_string(value);
    *n = plain ? 1 : json_array_size(value);
    *contents = NULL;
    if (!value) return SOL_OK;
    if (!plain && !json_is_array(value))
        return api_not(rd->fault, place, value, "a string or an array of parts");
    if (*n > API_MESSAGES_MAX) return api_wrong(rd->fault, place, "has too many parts");
    struct chat_content *list = conversation_alloc(rd->request->conversation, *n * sizeof *list);
    if (!list) return SOL_E_MEMORY;
    *contents = list;
    if (plain) {
        list->text = chat_json_text(value);
        return SOL_OK;
    }
    for (size_t i = 0; i < *n; i++) {
        struct api_object part = {rd->fault, API_AT(place, i), json_array_get(value, i)};
        SOL_TRY(read_part(rd, &part, types, &list[i]));
    }
    return SOL_OK;
}

/* ---- the first messages ---- */

/* Those that are not hidden, as the model sees them. */
static enum sol_status list_functions(struct api_reading *rd, struct chat_namespace *space)
{
    struct api_request *request = rd->request;
    struct chat_tool *tools =
        conversation_alloc(request->conversation, (request->n_functions + 1) * sizeof *tools);
    if (!tools) return SOL_E_MEMORY;
    *space = (struct chat_namespace){
        .key = CHAT_TEXT("functions"), .name = CHAT_TEXT("functions"), .tools = tools};
    for (size_t i = 0; i < request->n_functions; i++) {
        const struct api_function *f = &request->functions[i];
        const size_t before = sizeof "functions." - 1;
        if (rd->hidden && rd->hidden[i]) continue;
        tools[space->n_tools++] = (struct chat_tool){
            .name = {f->full.data + before, f->full.length - before},
            .description = f->description.data ? f->description : CHAT_TEXT(""),
            .parameters = f->parameters,
        };
    }
    return SOL_OK;
}

enum sol_status api_open(struct api_reading *rd)
{
    struct conversation *c = rd->request->conversation;
    struct chat_namespace functions;
    if (rd->opened) return SOL_OK;
    rd->opened = true;
    SOL_TRY(text_check(&rd->instructions, "the instructions"));
    SOL_TRY(conversation_open(rd->reader->format, c, NULL));
    SOL_TRY(list_functions(rd, &functions));
    return conversation_instruct(
        rd->reader->format, c,
        &(struct chat_instructions){.text = rd->instructed ? text_of(&rd->instructions)
                                                           : (struct chat_text){0},
                                    .functions = &functions,
                                    .schema = rd->format_schema,
                                    .schema_name = rd->format_name,
                                    .schema_description = rd->format_description});
}

enum sol_status api_add_instruction(struct api_reading *rd, const struct chat_content *contents,
                                    size_t n)
{
    struct text_buffer text = {0}, *to = rd->opened ? &text : &rd->instructions;
    if (!rd->opened && rd->instructed) text_puts(to, "\n\n");
    for (size_t i = 0; i < n; i++) text_put_text(to, contents[i].text);
    if (!rd->opened) {
        rd->instructed = true;
        return SOL_OK;
    }
    enum sol_status status = text_check(&text, "a message");
    if (status == SOL_OK)
        status = conversation_instruct(rd->reader->format, rd->request->conversation,
                                       &(struct chat_instructions){.text = text_of(&text)});
    text_buffer_free(&text);
    return status;
}

/* ---- messages ---- */

enum sol_status api_add_message(struct api_reading *rd, enum chat_role role, const char *channel,
                                struct chat_text name, const struct chat_content *contents,
                                size_t n)
{
    struct chat_message message = {
        .role = role, .name = name, .contents = contents, .n_contents = n};
    SOL_TRY(api_open(rd));
    if (channel) message.channel = (struct chat_text){channel, strlen(channel)};
    return conversation_add(rd->request->conversation, &message);
}

enum sol_status api_add_reasoning(struct api_reading *rd, struct chat_text text)
{
    struct chat_content *content = conversation_alloc(rd->request->conversation, sizeof *content);
    if (!content) return SOL_E_MEMORY;
    content->text = text;
    return api_add_message(rd, CHAT_ASSISTANT, "analysis", (struct chat_text){0}, content, 1);
}

enum sol_status api_recall_reasoning(struct api_reading *rd, struct chat_text call_id)
{
    struct recall *recall = rd->reader->recall;
    struct text_buffer kept = {0};
    struct chat_text text;
    enum sol_status status = SOL_OK;
    if (recall && recall_get(recall, 'r', rd->reader->key->salt, call_id, &kept)) {
        status = text_check(&kept, "what was thought");
        if (status == SOL_OK)
            status = conversation_copy(rd->request->conversation, text_of(&kept), &text);
        if (status == SOL_OK) status = api_add_reasoning(rd, text);
    }
    text_buffer_free(&kept);
    return status;
}

/* Names stand in headers, where a blank ends one. */
static bool breaks_header(struct chat_text name)
{
    for (size_t i = 0; i < name.length; i++)
        if ((unsigned char)name.data[i] <= ' ' || strchr("<|>\x7f", name.data[i])) return true;
    return false;
}

static enum sol_status check_called(struct api_reading *rd, const struct api_place *place,
                                    struct chat_text space, struct chat_text name)
{
    if (breaks_header(name) || breaks_header(space))
        return api_wrong(rd->fault, place, "has a blank or a sign that no name may have");
    if (name.length == 0 || name.length + space.length > 256)
        return api_wrong(rd->fault, place, "must have 1 to 256 bytes");
    return SOL_OK;
}

enum sol_status api_full_name(struct api_reading *rd, struct chat_text space, struct chat_text name,
                              struct chat_text *full)
{
    struct text_buffer text = {0};
    text_puts(&text, "functions.");
    text_put_text(&text, space);
    if (space.length) text_puts(&text, "__");
    text_put_text(&text, name);
    enum sol_status status = text_check(&text, "a name");
    if (status == SOL_OK)
        status = conversation_copy(rd->request->conversation, text_of(&text), full);
    text_buffer_free(&text);
    return status;
}

enum sol_status api_add_call(struct api_reading *rd, const struct api_place *place,
                             struct chat_text id, struct chat_text space, struct chat_text name,
                             struct chat_text arguments)
{
    struct conversation *c = rd->request->conversation;
    struct chat_message head = {.role = CHAT_ASSISTANT,
                                .channel = CHAT_TEXT("commentary"),
                                .content_type = CHAT_TEXT("<|constrain|>json")};
    enum sol_status status = chat_format_calls(rd->reader->format);
    if (status != SOL_OK) return api_blame(rd->fault, place, status);
    SOL_TRY(api_open(rd));
    SOL_TRY(check_called(rd, API_KEY(place, "name"), space, name));
    SOL_TRY(api_full_name(rd, space, name, &head.recipient));
    json_t *value = json_stringn(head.recipient.data, head.recipient.length);
    if (json_object_setn_new(rd->calls, id.data, id.length, value) != 0 ||
        json_object_setn_new(rd->open, id.data, id.length, json_true()) != 0)
        return status_set(SOL_E_MEMORY, "no memory for the calls of a request");
    return conversation_add_text(c, &head, arguments);
}

/* The way back of what api_tools.c makes of custom tools. */
enum sol_status api_add_custom_call(struct api_reading *rd, const struct api_place *place,
                                    struct chat_text id, struct chat_text space,
                                    struct chat_text name, struct chat_text input)
{
    struct text_buffer arguments = {0};
    text_puts(&arguments, "{\"input\": ");
    chat_json_print_text(input, &arguments);
    text_puts(&arguments, "}");
    enum sol_status status = text_check(&arguments, "a call");
    if (status == SOL_OK) status = api_add_call(rd, place, id, space, name, text_of(&arguments));
    text_buffer_free(&arguments);
    return status;
}

enum sol_status api_add_result(struct api_reading *rd, const struct api_place *place,
                               struct chat_text id, const struct chat_content *contents, size_t n)
{
    const json_t *call = json_object_getn(rd->calls, id.data, id.length);
    if (!call)
        return api_wrong(rd->fault, place,
                         "is the result of a call that no message before it makes");
    struct chat_message message = {.role = CHAT_TOOL,
                                   .recipient = CHAT_TEXT("assistant"),
                                   .channel = CHAT_TEXT("commentary"),
                                   .contents = contents,
                                   .n_contents = n};
    json_object_deln(rd->open, id.data, id.length);
    SOL_TRY(conversation_copy(rd->request->conversation, chat_json_text(call), &message.name));
    return conversation_add(rd->request->conversation, &message);
}

enum sol_status api_check_results(struct api_reading *rd, const struct api_place *place)
{
    const char *id = json_object_iter_key(json_object_iter(rd->open));
    if (!id) return SOL_OK;
    return api_wrong(rd->fault, place,
                     "comes behind the call '%.64s', which has no result: each call must be "
                     "answered before the conversation goes on",
                     id);
}

/* ---- the end ---- */

/* A conversation that goes on has the date with which it began: another would be another beginning,
 * and a whole prefill. Clients do not send it, so it is remembered by what was said first. */
static enum sol_status find_date(struct api_reading *rd)
{
    const struct api_reader *reader = rd->reader;
    struct conversation *c = rd->request->conversation;
    struct text_buffer date = {0};
    struct chat_text copy = {0};
    uint64_t first[3] = {
        bytes_hash(rd->instructions.data ? rd->instructions.data : "", rd->instructions.length)};
    bool goes_on = false, asked = false;
    for (size_t i = 0; i < conversation_count(c); i++) {
        const struct chat_message *message = conversation_message(c, i);
        goes_on |= message->role == CHAT_ASSISTANT;
        if (message->role != CHAT_USER || asked) continue;
        asked = true;
        for (size_t k = 0; k < message->n_contents; k++) {
            struct chat_text text = message->contents[k].text;
            first[1] = bytes_hash_mix(first[1] ^ bytes_hash(text.data, text.length));
            first[2] += text.length;
        }
    }
    struct chat_text key = {(const char *)first, sizeof first};
    bool known = goes_on && reader->recall &&
                 recall_get(reader->recall, 'd', reader->key->salt, key, &date) && !date.failed;
    if (!known) text_puts(&date, reader->today);
    enum sol_status status = text_check(&date, "a date");
    if (status == SOL_OK) status = conversation_copy(c, text_of(&date), &copy);
    text_buffer_free(&date);
    SOL_TRY(status);
    rd->request->date = copy.data;
    if (!known && reader->recall) recall_put(reader->recall, 'd', reader->key->salt, key, copy);
    return SOL_OK;
}

static double thread_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* Each schema's work is bounded (grammar.h); that of many together is so here. Those that were
 * compiled stay for a while, so who asks again gets further. */
static enum sol_status hold(struct api_reading *rd, const json_t *schema,
                            const struct api_place *place, const struct schema_hold **out)
{
    struct api_request *request = rd->request;
    struct schema_hold *to = &request->holds[request->n_holds];
    double start = thread_ms();
    *out = to;
    if (rd->compiled_ms > API_GRAMMARS_MS_MAX)
        return api_wrong(rd->fault, place,
                         "comes behind schemas that took %d seconds to compile, which is the most "
                         "for a request: simpler patterns and fewer repetitions help",
                         API_GRAMMARS_MS_MAX / 1000);
    enum sol_status status = schema_cache_hold(request->schemas, schema, rd->reader->trie, to);
    rd->compiled_ms += thread_ms() - start;
    if (status != SOL_OK) return api_blame(rd->fault, place, status);
    request->n_holds++;
    return SOL_OK;
}

/* Strict functions have arguments as their schema wants them. */
static enum sol_status hold_arguments(struct api_reading *rd)
{
    struct api_request *request = rd->request;
    const struct schema_hold *held;
    size_t n = 0;
    for (size_t i = 0; i < request->n_functions; i++)
        n += request->functions[i].strict && request->functions[i].parameters;
    if (n > API_GRAMMARS_MAX)
        return api_wrong(rd->fault, API_KEY(NULL, "tools"), "has more than %d strict functions",
                         API_GRAMMARS_MAX);
    request->holds = calloc(n + 1, sizeof *request->holds);
    struct turn_arguments *arguments =
        conversation_alloc(request->conversation, (n + 1) * sizeof *arguments);
    if (!request->holds || !arguments) return status_set(SOL_E_MEMORY, "no memory for schemas");
    request->turn.arguments = arguments;
    for (size_t i = 0; i < request->n_functions; i++) {
        const struct api_function *f = &request->functions[i];
        const struct api_place *at = API_AT(API_KEY(NULL, "tools"), f->index);
        if (!f->strict || !f->parameters || (rd->hidden && rd->hidden[i])) continue;
        SOL_TRY(hold(rd, f->parameters, API_KEY(at, "parameters"), &held));
        arguments[request->turn.n_arguments++] =
            (struct turn_arguments){f->full, held->grammar, held->masks};
    }
    return SOL_OK;
}

enum sol_status api_finish(struct api_reading *rd)
{
    struct api_request *request = rd->request;
    const struct schema_hold *held;
    SOL_TRY(api_open(rd));
    SOL_TRY(hold_arguments(rd));
    if (request->format != API_TEXT) {
        SOL_TRY(hold(rd, rd->format_schema, API_KEY(NULL, rd->format_field), &held));
        request->turn.answer = held->grammar;
        request->turn.answer_cache = held->masks;
    }
    if (request->turn.effort != CHAT_EFFORT_UNSET)
        SOL_TRY(chat_format_set_effort(rd->reader->format, request->conversation,
                                       request->turn.effort));
    if (!request->date) SOL_TRY(find_date(rd));
    SOL_TRY(conversation_pin_date(request->conversation, request->date));
    request->job.conversation = request->conversation;
    request->job.turn = &request->turn;
    return SOL_OK;
}

/* ---- what handlers ask ---- */

const struct api_function *api_function_find(const struct api_request *request,
                                             struct chat_text full)
{
    for (size_t i = 0; i < request->n_functions; i++) {
        struct chat_text own = request->functions[i].full;
        if (own.length == full.length && memcmp(own.data, full.data, own.length) == 0)
            return &request->functions[i];
    }
    return NULL;
}

struct chat_text api_call_name(const struct api_request *request, struct chat_text full)
{
    const struct api_function *f = api_function_find(request, full);
    if (f) return f->name;
    const size_t before = sizeof "functions." - 1;
    if (!text_begins(full, "functions.")) return full;
    return (struct chat_text){full.data + before, full.length - before};
}

void api_remember(struct recall *recall, uint64_t salt, struct chat_text call_id,
                  struct chat_text reasoning)
{
    if (recall && reasoning.length) recall_put(recall, 'r', salt, call_id, reasoning);
}
