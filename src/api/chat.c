/* The public C API of chats over the inner modules. */
#include "sol/chat.h"

#include <stdlib.h>
#include <string.h>

#include "api/api_private.h"
#include "base/memory.h"
#include "base/status.h"
#include "chat/format.h"
#include "chat/json.h"
#include "generate/session.h"
#include "grammar/grammar.h"
#include "tok/pretokenize.h"

/* What a text must be, and the masks that were made for it. */
struct rule {
    struct grammar *grammar; /* NULL: any text */
    struct mask_cache *cache;
};

struct function {
    char *name, *description; /* "functions.get"; may be NULL */
    json_t *parameters;       /* NULL: it takes nothing */
    struct rule rule;         /* where it is strict */
};

struct sol_chat {
    struct turn_model *turns;
    struct engine *engine;
    struct session *session;
    struct conversation *conversation;
    bool opened; /* its first messages are there */
    struct sampler_params sampler;
    enum sol_effort effort;
    int64_t thinking, limit;
    char *system, *date;
    struct function *functions;
    size_t n_functions, functions_room;
    json_t *schema; /* of answers */
    struct rule answer_rule;
    /* Of the last reply. */
    struct text_buffer reasoning, answer, name, arguments;
};

static const char namespace[] = "functions.";
enum { NAMESPACE = sizeof namespace - 1, NAME_MAX_LENGTH = 64 };

static struct chat_text view(const char *text)
{
    return (struct chat_text){text, text ? strlen(text) : 0};
}

static const char *c_string(struct text_buffer *b)
{
    text_put(b, "", 1);
    if (b->failed) return "";
    b->length--;
    return b->data;
}

static const struct chat_format *format_of(const struct sol_chat *chat)
{
    return turn_model_vocabulary(chat->turns)->format;
}

/* ---- what callers may get wrong ---- */

static enum sol_status check_text(const char *text, const char *what)
{
    const size_t length = text ? strlen(text) : 0;
    uint32_t code;
    if (!text) return status_set(SOL_E_ARGUMENT, "%s is NULL", what);
    for (size_t at = 0; at < length;) {
        int n = utf8_decode(text + at, length - at, &code);
        if (n <= 0) return status_set(SOL_E_ARGUMENT, "%s is no UTF-8 at byte %zu", what, at);
        at += (size_t)n;
    }
    return SOL_OK;
}

static enum sol_status check_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t length = name ? strlen(name) : 0;
    if (length && length <= NAME_MAX_LENGTH && strspn(name, letters) == length) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "'%.80s' is no name of a function: 1 to %d letters, digits, _ and -",
                      name ? name : "", NAME_MAX_LENGTH);
}

static enum sol_status copy_text(const char *from, const char *what, char **to)
{
    if (!from) return SOL_OK;
    SOL_TRY(check_text(from, what));
    *to = strdup(from);
    return *to ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for %s", what);
}

/* ---- rules ---- */

static void rule_free(struct rule *r)
{
    mask_cache_destroy(r->cache);
    grammar_destroy(r->grammar);
    *r = (struct rule){0};
}

static enum sol_status rule_from_schema(const struct sol_chat *chat, const json_t *schema,
                                        struct rule *out)
{
    enum sol_status status = grammar_from_schema(schema, GRAMMAR_SPACE_ONE, &out->grammar);
    if (status == SOL_OK) status = mask_cache_create(turn_model_trie(chat->turns), &out->cache);
    if (status != SOL_OK) rule_free(out);
    return status;
}

/* ---- life ---- */

void sol_chat_params_init(struct sol_chat_params *params)
{
    struct sol_session_params session;
    sol_session_params_init(&session);
    *params = (struct sol_chat_params){.context = session.context,
                                       .threads = session.threads,
                                       .effort = SOL_EFFORT_MEDIUM,
                                       .thinking = -1};
    sol_sampler_params_init(&params->sampler);
}

static enum sol_status check_effort(enum sol_effort effort)
{
    if ((unsigned)effort <= SOL_EFFORT_NONE) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "%d is no effort", (int)effort);
}

static enum sol_status check_params(const struct sol_chat_params *p)
{
    SOL_TRY(check_effort(p->effort));
    if (p->limit < 0)
        return status_set(SOL_E_ARGUMENT,
                          "a reply of %lld tokens: 1 or more are possible, 0 for any number",
                          (long long)p->limit);
    return SOL_OK;
}

static enum sol_status open_session(struct sol_chat *chat, const struct sol_model *model,
                                    const struct sol_chat_params *p)
{
    const struct sol_session_params wanted = {
        .context = p->context, .threads = p->threads, .exact = p->exact};
    struct engine_params engine;
    struct sampler *sampler;
    SOL_TRY(api_engine_params(model, &wanted, &engine));
    SOL_TRY(turn_sampler(chat->turns, &chat->sampler, &sampler)); /* what is wrong shows now */
    sampler_destroy(sampler);
    session_engine_params(&engine);
    SOL_TRY(engine_create(model->model, &engine, &chat->engine));
    return session_create(chat->engine, &chat->session);
}

enum sol_status sol_chat_create(struct sol_model *model, const struct sol_chat_params *params,
                                struct sol_chat **out)
{
    *out = NULL;
    struct sol_chat_params defaults;
    char today[CHAT_DATE_SIZE];
    sol_chat_params_init(&defaults);
    chat_today(today);
    if (!params) params = &defaults;
    SOL_TRY(check_params(params));
    struct sol_chat *chat = calloc(1, sizeof *chat);
    if (!chat) return status_set(SOL_E_MEMORY, "no memory for a chat");
    chat->sampler = api_sampler_params(&params->sampler);
    chat->effort = params->effort;
    chat->thinking = params->thinking;
    chat->limit = params->limit ? params->limit : INT64_MAX;
    enum sol_status status = copy_text(params->system, "the system text", &chat->system);
    if (status == SOL_OK)
        status = copy_text(params->date ? params->date : today, "the date", &chat->date);
    if (status == SOL_OK) status = conversation_create(&chat->conversation);
    if (status == SOL_OK) status = turn_model_create(model->model, &chat->turns);
    if (status == SOL_OK) status = open_session(chat, model, params);
    if (status == SOL_OK)
        *out = chat;
    else
        sol_chat_destroy(chat);
    return status;
}

static void function_free(struct function *f)
{
    rule_free(&f->rule);
    json_decref(f->parameters);
    free(f->description);
    free(f->name);
}

static void forget_reply(struct sol_chat *chat)
{
    text_buffer_free(&chat->reasoning);
    text_buffer_free(&chat->answer);
    text_buffer_free(&chat->name);
    text_buffer_free(&chat->arguments);
}

void sol_chat_destroy(struct sol_chat *chat)
{
    if (!chat) return;
    session_destroy(chat->session);
    engine_destroy(chat->engine);
    conversation_destroy(chat->conversation);
    for (size_t i = 0; i < chat->n_functions; i++) function_free(&chat->functions[i]);
    free(chat->functions);
    rule_free(&chat->answer_rule);
    json_decref(chat->schema);
    turn_model_destroy(chat->turns);
    forget_reply(chat);
    free(chat->system);
    free(chat->date);
    free(chat);
}

/* ---- functions and answers ---- */

static enum sol_status function_read(const struct sol_chat *chat, const char *name,
                                     const char *description, const char *parameters, bool strict,
                                     struct function *f)
{
    f->name = malloc(NAMESPACE + strlen(name) + 1);
    if (!f->name) return status_set(SOL_E_MEMORY, "no memory for a function");
    memcpy(f->name, namespace, NAMESPACE);
    strcpy(f->name + NAMESPACE, name);
    SOL_TRY(copy_text(description, "a description", &f->description));
    if (parameters)
        SOL_TRY(chat_json_read(parameters, strlen(parameters), "parameters", &f->parameters));
    if (f->parameters && !json_is_object(f->parameters))
        return status_set(SOL_E_FORMAT, "parameters are a JSON Schema, an object");
    return strict && f->parameters ? rule_from_schema(chat, f->parameters, &f->rule) : SOL_OK;
}

enum sol_status sol_chat_add_function(struct sol_chat *chat, const char *name,
                                      const char *description, const char *parameters, bool strict)
{
    struct function f = {0};
    SOL_TRY(check_name(name));
    SOL_TRY(chat_format_calls(format_of(chat)));
    if (chat->opened)
        return status_set(SOL_E_ARGUMENT, "functions are added before the first message");
    for (size_t i = 0; i < chat->n_functions; i++)
        if (strcmp(chat->functions[i].name + NAMESPACE, name) == 0)
            return status_set(SOL_E_ARGUMENT, "the function '%s' is there already", name);
    SOL_TRY(array_grow(&chat->functions, chat->n_functions, &chat->functions_room, sizeof f,
                       "functions"));
    enum sol_status status = function_read(chat, name, description, parameters, strict, &f);
    if (status == SOL_OK) {
        chat->functions[chat->n_functions++] = f;
        return SOL_OK;
    }
    function_free(&f);
    return status_prefix(status, "function '%s'", name);
}

enum sol_status sol_chat_set_answer(struct sol_chat *chat, const char *schema)
{
    struct rule rule = {0};
    json_t *json = NULL;
    if (schema) {
        SOL_TRY(chat_json_read(schema, strlen(schema), "schema", &json));
        enum sol_status status = rule_from_schema(chat, json, &rule);
        if (status != SOL_OK) {
            json_decref(json);
            return status;
        }
    }
    rule_free(&chat->answer_rule);
    json_decref(chat->schema);
    chat->answer_rule = rule;
    chat->schema = json;
    return SOL_OK;
}

/* ---- messages ---- */

static enum sol_status list_functions(const struct sol_chat *chat, struct conversation *c,
                                      struct chat_namespace *space)
{
    struct chat_tool *tools = conversation_alloc(c, chat->n_functions * sizeof *tools);
    if (!tools) return SOL_E_MEMORY;
    *space = (struct chat_namespace){.key = CHAT_TEXT("functions"),
                                     .name = CHAT_TEXT("functions"),
                                     .tools = tools,
                                     .n_tools = chat->n_functions};
    for (size_t i = 0; i < chat->n_functions; i++) {
        const struct function *f = &chat->functions[i];
        SOL_TRY(conversation_copy(c, view(f->name + NAMESPACE), &tools[i].name));
        SOL_TRY(conversation_copy(c, view(f->description ? f->description : ""),
                                  &tools[i].description));
        tools[i].parameters = f->parameters;
        if (f->parameters) SOL_TRY(conversation_keep(c, f->parameters));
    }
    return SOL_OK;
}

static enum chat_effort inner_effort(enum sol_effort effort)
{
    static const enum chat_effort efforts[] = {CHAT_LOW, CHAT_MEDIUM, CHAT_HIGH, CHAT_EFFORT_OFF};
    return efforts[effort];
}

/* The default is a level: a format that has none takes any. */
static enum sol_status set_effort(struct sol_chat *chat, enum sol_effort effort)
{
    if (!format_of(chat)->reasons) return SOL_OK;
    return conversation_set_effort(chat->conversation, inner_effort(effort));
}

/* What stands before the first message. */
static enum sol_status open_conversation(struct sol_chat *chat)
{
    struct conversation *c = chat->conversation;
    struct chat_namespace functions;
    if (chat->opened) return SOL_OK;
    conversation_truncate(c, 0); /* of an earlier try */
    SOL_TRY(list_functions(chat, c, &functions));
    const struct chat_instructions instructions = {
        .text = view(chat->system), .functions = &functions, .schema = chat->schema};
    SOL_TRY(conversation_open(format_of(chat), c, chat->date));
    SOL_TRY(set_effort(chat, chat->effort));
    SOL_TRY(conversation_instruct(format_of(chat), c, &instructions));
    chat->opened = true;
    return SOL_OK;
}

enum sol_status sol_chat_add_user(struct sol_chat *chat, const char *text)
{
    const struct chat_message head = {.role = CHAT_USER};
    SOL_TRY(check_text(text, "a message"));
    SOL_TRY(open_conversation(chat));
    return conversation_add_text(chat->conversation, &head, view(text));
}

enum sol_status sol_chat_add_result(struct sol_chat *chat, const char *function, const char *result)
{
    char name[NAMESPACE + NAME_MAX_LENGTH + 1];
    SOL_TRY(check_name(function));
    SOL_TRY(check_text(result, "a result"));
    memcpy(name, namespace, NAMESPACE);
    strcpy(name + NAMESPACE, function);
    const struct chat_message head = {.role = CHAT_TOOL,
                                      .name = view(name),
                                      .recipient = CHAT_TEXT("assistant"),
                                      .channel = CHAT_TEXT("commentary")};
    SOL_TRY(open_conversation(chat));
    return conversation_add_text(chat->conversation, &head, view(result));
}

/* ---- replies ---- */

struct listener {
    struct sol_chat *chat;
    sol_chat_fn fn;
    void *arg;
    struct text_buffer piece;
    bool stopped;
};

static struct text_buffer *buffer_of(struct sol_chat *chat, enum turn_part part)
{
    if (part == TURN_REASONING) return &chat->reasoning;
    return part == TURN_CALL ? &chat->arguments : &chat->answer;
}

/* Messages of one kind are one text; of calls there is one. */
static void begin_message(struct sol_chat *chat, const struct turn_event *event)
{
    struct text_buffer *to = buffer_of(chat, event->part);
    if (event->part == TURN_CALL) {
        struct chat_text name = event->name;
        if (text_begins(name, namespace)) {
            name.data += NAMESPACE;
            name.length -= NAMESPACE;
        }
        chat->name.length = to->length = 0;
        text_put_text(&chat->name, name);
    } else if (to->length) {
        text_puts(to, "\n\n");
    }
}

static bool on_event(void *arg, const struct turn_event *event)
{
    static const enum sol_chat_part parts[] = {[TURN_REASONING] = SOL_CHAT_REASONING,
                                               [TURN_PREAMBLE] = SOL_CHAT_PREAMBLE,
                                               [TURN_ANSWER] = SOL_CHAT_ANSWER,
                                               [TURN_CALL] = SOL_CHAT_CALL};
    struct listener *l = arg;
    if (!event->began && !event->ended && !event->delta.length) return true;
    if (event->began) begin_message(l->chat, event);
    text_put_text(buffer_of(l->chat, event->part), event->delta);
    if (!l->fn || l->stopped) return true;
    l->piece.length = 0;
    text_put_text(&l->piece, event->delta);
    const struct sol_chat_piece piece = {
        .part = parts[event->part],
        .begins = event->began,
        .ends = event->ended,
        .name = event->part == TURN_CALL ? c_string(&l->chat->name) : NULL,
        .text = c_string(&l->piece),
    };
    l->stopped = !l->fn(l->arg, &piece);
    return !l->stopped;
}

static bool is_call(const struct chat_message *m)
{
    return m->role == CHAT_ASSISTANT && m->recipient.data;
}

/* Adds what was said to the conversation. A call that was cut short would have the model wait for
 * its result. */
static enum sol_status add_messages(struct sol_chat *chat, const struct turn *turn, bool whole)
{
    const struct conversation *said = turn_messages(turn);
    const size_t before = conversation_count(chat->conversation);
    for (size_t i = 0; i < conversation_count(said); i++) {
        const struct chat_message *m = conversation_message(said, i);
        if (is_call(m) && !whole) continue;
        enum sol_status status = conversation_add_text(chat->conversation, m, m->contents[0].text);
        if (status == SOL_OK) continue;
        conversation_truncate(chat->conversation, before);
        return status;
    }
    return SOL_OK;
}

static enum sol_chat_end end_of(const struct sol_chat *chat, enum session_end end)
{
    const size_t n = conversation_count(chat->conversation);
    switch (end) {
    case SESSION_STOP:
        return is_call(conversation_message(chat->conversation, n - 1)) ? SOL_CHAT_CALLED
                                                                        : SOL_CHAT_ANSWERED;
    case SESSION_LENGTH:
        return SOL_CHAT_LENGTH;
    case SESSION_CONTEXT:
        return SOL_CHAT_FULL;
    default:
        return SOL_CHAT_STOPPED;
    }
}

static void fill_reply(struct sol_chat *chat, const struct turn *turn,
                       const struct session_result *result, struct sol_chat_reply *reply)
{
    struct turn_counts counts;
    turn_count(turn, &counts);
    *reply = (struct sol_chat_reply){
        .end = end_of(chat, result->end),
        .reasoning = c_string(&chat->reasoning),
        .answer = c_string(&chat->answer),
        .prompt_tokens = result->prompt,
        .cached_tokens = result->cached,
        .tokens = result->generated,
        .reasoning_tokens = counts.reasoning,
        .prompt_seconds = result->prompt_s,
        .seconds = result->generate_s,
    };
    if (reply->end != SOL_CHAT_CALLED) return;
    reply->function = c_string(&chat->name);
    reply->arguments = c_string(&chat->arguments);
}

static enum sol_status open_turn(const struct sol_chat *chat, struct turn_arguments *rules,
                                 struct turn **out)
{
    struct turn_params params;
    turn_params_init(&params);
    if (chat->effort == SOL_EFFORT_NONE) params.effort = CHAT_EFFORT_OFF;
    params.thinking = chat->thinking;
    params.answer = chat->answer_rule.grammar;
    params.answer_cache = chat->answer_rule.cache;
    params.arguments = rules;
    for (size_t i = 0; i < chat->n_functions; i++) {
        const struct function *f = &chat->functions[i];
        if (f->rule.grammar)
            rules[params.n_arguments++] =
                (struct turn_arguments){view(f->name), f->rule.grammar, f->rule.cache};
    }
    return turn_create(chat->turns, chat->conversation, &params, out);
}

/* Each reply has a sampler of its own, so that what it draws depends on nothing before it but the
 * number of messages. */
static enum sol_status open_sampler(const struct sol_chat *chat, struct sampler **out)
{
    struct sampler_params params = chat->sampler;
    params.seed += conversation_count(chat->conversation) * UINT64_C(0x9e3779b97f4a7c15);
    return turn_sampler(chat->turns, &params, out);
}

static enum sol_status say(struct sol_chat *chat, struct turn *turn, struct sampler *sampler,
                           struct listener *listener, struct session_result *result)
{
    const struct session_params params = {
        .sampler = sampler, .limit = chat->limit, .on_event = on_event, .arg = listener};
    SOL_TRY(session_turn(chat->session, turn, &params, result));
    SOL_TRY(text_check(&chat->reasoning, "the reasoning"));
    SOL_TRY(text_check(&chat->answer, "the answer"));
    SOL_TRY(text_check(&chat->name, "the name of a function"));
    SOL_TRY(text_check(&chat->arguments, "the arguments of a call"));
    return add_messages(chat, turn, result->end == SESSION_STOP);
}

enum sol_status sol_chat_reply(struct sol_chat *chat, sol_chat_fn fn, void *arg,
                               struct sol_chat_reply *reply)
{
    const size_t n = conversation_count(chat->conversation);
    struct listener listener = {.chat = chat, .fn = fn, .arg = arg};
    struct turn_arguments *rules = NULL;
    struct sampler *sampler = NULL;
    struct turn *turn = NULL;
    struct session_result result;
    if (n == conversation_head(chat->conversation) ||
        conversation_message(chat->conversation, n - 1)->role == CHAT_ASSISTANT)
        return status_set(
            SOL_E_ARGUMENT,
            "there is nothing to reply to: add a message of the user, or the result of the "
            "function that was called");
    rules = calloc(chat->n_functions + 1, sizeof *rules);
    enum sol_status status = rules ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a reply");
    forget_reply(chat);
    if (status == SOL_OK) status = open_turn(chat, rules, &turn);
    if (status == SOL_OK) status = open_sampler(chat, &sampler);
    if (status == SOL_OK) status = say(chat, turn, sampler, &listener, &result);
    if (status == SOL_OK && reply) fill_reply(chat, turn, &result, reply);
    text_buffer_free(&listener.piece);
    turn_destroy(turn);
    sampler_destroy(sampler);
    free(rules);
    return status;
}

/* ---- the conversation ---- */

enum sol_status sol_chat_set_effort(struct sol_chat *chat, enum sol_effort effort)
{
    SOL_TRY(check_effort(effort));
    if (chat->opened) SOL_TRY(set_effort(chat, effort));
    chat->effort = effort;
    return SOL_OK;
}

enum sol_status sol_chat_clear(struct sol_chat *chat)
{
    struct conversation *c;
    SOL_TRY(conversation_create(&c));
    conversation_destroy(chat->conversation);
    chat->conversation = c;
    chat->opened = false;
    return SOL_OK;
}

size_t sol_chat_count(const struct sol_chat *chat)
{
    return conversation_count(chat->conversation) - conversation_head(chat->conversation);
}

static enum sol_chat_part part_of(const struct chat_message *m)
{
    if (is_call(m)) return SOL_CHAT_CALL;
    if (text_is(m->channel, "analysis")) return SOL_CHAT_REASONING;
    return text_is(m->channel, "commentary") ? SOL_CHAT_PREAMBLE : SOL_CHAT_ANSWER;
}

/* The conversation's copies of texts end with a NUL. */
enum sol_status sol_chat_get(const struct sol_chat *chat, size_t n, struct sol_chat_message *out)
{
    *out = (struct sol_chat_message){0};
    if (n >= sol_chat_count(chat))
        return status_set(SOL_E_ARGUMENT, "message %zu of %zu", n, sol_chat_count(chat));
    const struct chat_message *m =
        conversation_message(chat->conversation, conversation_head(chat->conversation) + n);
    const bool tool = m->role == CHAT_TOOL;
    const struct chat_text name = tool ? m->name : m->recipient;
    *out = (struct sol_chat_message){.role = chat_role_name(m->role), .text = ""};
    if (m->n_contents && m->contents->kind == CHAT_CONTENT_TEXT) out->text = m->contents->text.data;
    if (m->role == CHAT_ASSISTANT) out->part = part_of(m);
    if (tool || is_call(m))
        out->function = text_begins(name, namespace) ? name.data + NAMESPACE : name.data;
    return SOL_OK;
}

int64_t sol_chat_position(const struct sol_chat *chat)
{
    size_t n;
    session_tokens(chat->session, &n);
    return (int64_t)n;
}

enum sol_status sol_chat_save(struct sol_chat *chat, const char *path)
{
    SOL_TRY(open_conversation(chat));
    return session_save(chat->session, chat->conversation, path);
}

enum sol_status sol_chat_load(struct sol_chat *chat, const char *path)
{
    struct conversation *c;
    SOL_TRY(conversation_create(&c));
    enum sol_status status = session_load(chat->session, path, c);
    if (status != SOL_OK) {
        conversation_destroy(c);
        return status;
    }
    conversation_destroy(chat->conversation);
    chat->conversation = c;
    chat->opened = conversation_count(c) > 0;
    return SOL_OK;
}
