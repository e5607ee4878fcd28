/* Each piece of a header is encoded on its own, as openai-harmony does: tokens do not reach over
 * their ends. */
#include "chat/format_private.h"

struct renderer {
    const struct chat_vocabulary *v;
    struct token_list *ids;
    enum chat_types types;
    enum chat_effort effort; /* UNSET: what each system content says */
    bool has_functions;
};

static enum sol_status put_token(struct renderer *r, int32_t id)
{
    return render_put_token(r->ids, id);
}

static enum sol_status put_text(struct renderer *r, struct chat_text text)
{
    return render_put_text(r->v, text, r->ids);
}

static enum sol_status put_word(struct renderer *r, const char *word)
{
    return put_text(r, (struct chat_text){word, strlen(word)});
}

/* Both together as one piece. */
static enum sol_status put_joined(struct renderer *r, const char *before, struct chat_text text)
{
    struct text_buffer joined = {0};
    text_puts(&joined, before);
    text_put_text(&joined, text);
    enum sol_status status = text_check(&joined, "a message");
    if (status == SOL_OK) status = put_text(r, text_of(&joined));
    text_buffer_free(&joined);
    return status;
}

/* ---- contents ---- */

/* Blocks of text with an empty line between them; they may be empty themselves. */
struct blocks {
    struct text_buffer text;
    size_t count;
};

static void begin(struct blocks *b)
{
    if (b->count++) text_puts(&b->text, "\n\n");
}

static void put_line(struct blocks *b, const char *before, struct chat_text text, bool *first)
{
    if (!text.data) return;
    if (*first)
        begin(b);
    else
        text_puts(&b->text, "\n");
    *first = false;
    text_puts(&b->text, before);
    text_put_text(&b->text, text);
}

static enum sol_status put_tools(struct blocks *b, const struct chat_tools *tools,
                                 enum chat_types types)
{
    if (tools->count == 0) return SOL_OK;
    begin(b);
    return typescript_tools(tools, types, &b->text);
}

static void put_channels(struct blocks *b, const struct chat_system *system, bool has_functions)
{
    if (system->n_channels == 0) return;
    begin(b);
    text_puts(&b->text, "# Valid channels: ");
    for (size_t i = 0; i < system->n_channels; i++) {
        if (i) text_puts(&b->text, ", ");
        text_put_text(&b->text, system->channels[i]);
    }
    text_puts(&b->text, ".");
    if (system->channel_required)
        text_puts(&b->text, " Channel must be included for every message.");
    if (has_functions)
        text_puts(&b->text, "\nCalls to these tools must go to the commentary channel: "
                            "'functions'.");
}

static enum sol_status system_text(const struct renderer *r, const struct chat_system *system,
                                   struct blocks *b)
{
    static const char *const efforts[] = {"", "low", "medium", "high", "low"};
    enum chat_effort effort = r->effort ? r->effort : system->effort;
    bool first = true;
    put_line(b, "", system->identity, &first);
    put_line(b, "Knowledge cutoff: ", system->cutoff, &first);
    put_line(b, "Current date: ", system->date, &first);
    if (effort) {
        begin(b);
        text_puts(&b->text, "Reasoning: ");
        text_puts(&b->text, efforts[effort]);
    }
    SOL_TRY(put_tools(b, &system->tools, r->types));
    put_channels(b, system, r->has_functions);
    return SOL_OK;
}

static enum sol_status developer_text(const struct renderer *r,
                                      const struct chat_developer *developer, struct blocks *b)
{
    if (developer->instructions.data) {
        begin(b);
        text_puts(&b->text, "# Instructions\n\n");
        text_put_text(&b->text, developer->instructions);
    }
    return put_tools(b, &developer->tools, r->types);
}

static enum sol_status put_content(struct renderer *r, const struct chat_message *message,
                                   const struct chat_content *content)
{
    struct blocks b = {0};
    enum sol_status status;
    if (content->kind == CHAT_CONTENT_TEXT) return put_text(r, content->text);
    if (content->kind == CHAT_CONTENT_PYTHON || content->kind == CHAT_CONTENT_OUTPUT)
        return status_set(SOL_E_FORMAT, "python and its output are content of nanochat's format, "
                                        "which the vocabulary is not for");
    bool system = content->kind == CHAT_CONTENT_SYSTEM;
    enum chat_role wanted = system ? CHAT_SYSTEM : CHAT_DEVELOPER;
    if (message->role != wanted)
        return status_set(SOL_E_FORMAT, "%s_content in a message of role %s",
                          chat_role_name(wanted), chat_role_name(message->role));
    status =
        system ? system_text(r, content->system, &b) : developer_text(r, content->developer, &b);
    if (status == SOL_OK) status = text_check(&b.text, "a message");
    if (status == SOL_OK) status = put_text(r, text_of(&b.text));
    text_buffer_free(&b.text);
    return status;
}

/* ---- messages ---- */

static enum sol_status put_type(struct renderer *r, struct chat_text type)
{
    static const char marker[] = "<|constrain|>";
    if (!type.data) return SOL_OK;
    if (!text_begins(type, marker)) return put_joined(r, " ", type);
    SOL_TRY(put_word(r, " "));
    SOL_TRY(put_token(r, r->v->constrain));
    size_t length = sizeof marker - 1;
    return put_text(r, (struct chat_text){type.data + length, type.length - length});
}

static enum sol_status put_header(struct renderer *r, const struct chat_message *message)
{
    SOL_TRY(put_token(r, r->v->start));
    if (message->role == CHAT_TOOL) {
        if (!message->name.data)
            return status_set(SOL_E_FORMAT, "a message of role tool needs a name, the tool's");
        SOL_TRY(put_text(r, message->name));
    } else {
        SOL_TRY(put_word(r, chat_role_name(message->role)));
        if (message->name.data) SOL_TRY(put_joined(r, ":", message->name));
    }
    if (message->recipient.data && !text_is(message->recipient, "all"))
        SOL_TRY(put_joined(r, " to=", message->recipient));
    if (message->channel.data) {
        SOL_TRY(put_token(r, r->v->channel));
        SOL_TRY(put_text(r, message->channel));
    }
    return put_type(r, message->content_type);
}

static enum sol_status put_message(struct renderer *r, const struct chat_message *message)
{
    SOL_TRY(put_header(r, message));
    SOL_TRY(put_token(r, r->v->message));
    for (size_t i = 0; i < message->n_contents; i++)
        SOL_TRY(put_content(r, message, &message->contents[i]));
    bool call = message->role == CHAT_ASSISTANT && message->recipient.data;
    return put_token(r, call ? r->v->call : r->v->end);
}

enum sol_status render_message(const struct chat_vocabulary *v, const struct chat_message *message,
                               bool has_functions, enum chat_types types, struct token_list *ids)
{
    struct renderer r = {.v = v, .ids = ids, .types = types, .has_functions = has_functions};
    return put_message(&r, message);
}

/* ---- conversations ---- */

static bool declares_functions(const struct chat_message *message)
{
    for (size_t i = 0; i < message->n_contents; i++) {
        const struct chat_content *content = &message->contents[i];
        if (content->kind != CHAT_CONTENT_DEVELOPER) continue;
        const struct chat_tools *tools = &content->developer->tools;
        for (size_t n = 0; n < tools->count; n++)
            if (text_is(tools->spaces[n].key, "functions") && tools->spaces[n].n_tools) return true;
    }
    return false;
}

static bool is_answer(const struct chat_message *message)
{
    return message->role == CHAT_ASSISTANT && text_is(message->channel, "final");
}

size_t render_answered(const struct conversation *c, const struct render_options *options)
{
    size_t n = options->history == CHAT_HISTORY_OPEN ? conversation_count(c) : 0;
    if (options->goes_on && n) n--;
    while (n && !is_answer(conversation_message(c, n - 1))) n--;
    return n;
}

bool render_drops(const struct conversation *c, size_t n, size_t answered)
{
    return n < answered && text_is(conversation_message(c, n)->channel, "analysis");
}

static enum sol_status put_next(struct renderer *r, const struct render_options *options)
{
    if (options->next == CHAT_NOBODY) return SOL_OK;
    SOL_TRY(put_token(r, r->v->start));
    SOL_TRY(put_word(r, chat_role_name(options->next)));
    if (!options->answer) return SOL_OK;
    SOL_TRY(put_token(r, r->v->channel));
    SOL_TRY(put_word(r, "final"));
    return put_token(r, r->v->message);
}

/* The assistant writes what follows its role, which the prompt has. */
static enum sol_status map_message(struct renderer *r, const struct chat_message *message,
                                   struct render_map *map, size_t begin)
{
    size_t at = begin;
    if (!map || message->role != CHAT_ASSISTANT) return SOL_OK;
    while (r->ids->ids[at] != r->v->channel && r->ids->ids[at] != r->v->message) at++;
    return render_map_written(map, at, r->ids);
}

enum sol_status harmony_render(const struct chat_vocabulary *v, const struct conversation *c,
                               const struct render_options *options, struct token_list *ids)
{
    struct renderer r = {.v = v, .ids = ids, .types = options->types, .effort = options->effort};
    size_t count = conversation_count(c), answered = render_answered(c, options);
    for (size_t i = 0; i < count && !r.has_functions; i++)
        r.has_functions = declares_functions(conversation_message(c, i));
    for (size_t i = 0; i < count; i++) {
        const struct chat_message *message = conversation_message(c, i);
        const size_t begin = ids->count;
        render_map_start(options->map, ids);
        if (render_drops(c, i, answered)) continue;
        enum sol_status status = put_message(&r, message);
        if (status == SOL_OK) status = map_message(&r, message, options->map, begin);
        if (status != SOL_OK) return status_prefix(status, "messages[%zu]", i);
    }
    if (options->training && count && is_answer(conversation_message(c, count - 1)))
        ids->ids[ids->count - 1] = v->ret;
    if (options->goes_on && count) ids->count--;
    return put_next(&r, options);
}
