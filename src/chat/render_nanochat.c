/* nanochat's format: <|bos|>, then each message between the start and the end of its role. */
#include "chat/format_private.h"

struct renderer {
    const struct chat_vocabulary *v;
    const struct render_options *options;
    struct token_list *ids;
    struct text_buffer system; /* what the user's next message begins with */
    bool instructed;           /* there is such a text, perhaps an empty one */
};

static enum sol_status refuse(const char *what)
{
    return status_set(SOL_E_FORMAT, "nanochat's chat format has no %s", what);
}

/* Nothing of the system waits for a message of the user. */
static enum sol_status check_said(const struct renderer *r)
{
    if (!r->instructed) return SOL_OK;
    return status_set(
        SOL_E_FORMAT,
        "a message of the system or a developer has none of the user behind it, which "
        "it goes into in nanochat's chat format");
}

/* ---- contents ---- */

/* Of a message of text alone, joined: a piece of the tokenizer may reach over a part's end. */
static enum sol_status put_texts(struct text_buffer *to, const struct chat_message *message)
{
    for (size_t i = 0; i < message->n_contents; i++) {
        const struct chat_content *content = &message->contents[i];
        switch (content->kind) {
        case CHAT_CONTENT_TEXT:
            text_put_text(to, content->text);
            break;
        case CHAT_CONTENT_DEVELOPER:
            if (content->developer->tools.count) return refuse("functions");
            text_put_text(to, content->developer->instructions);
            break;
        case CHAT_CONTENT_SYSTEM:
            return refuse("system_content: the system's message is a text");
        default:
            return refuse("python but in messages of the assistant");
        }
    }
    return SOL_OK;
}

/* The assistant's parts are encoded on their own, as their tokens stand between them. */
static enum sol_status put_part(struct renderer *r, const struct chat_content *part)
{
    const struct nanochat_tokens *t = &r->v->nanochat;
    const bool python = part->kind == CHAT_CONTENT_PYTHON;
    if (part->kind == CHAT_CONTENT_TEXT) return render_put_text(r->v, part->text, r->ids);
    if (!python && part->kind != CHAT_CONTENT_OUTPUT)
        return refuse("system or developer content in a message of the assistant");
    SOL_TRY(render_put_token(r->ids, python ? t->python_start : t->output_start));
    SOL_TRY(render_put_text(r->v, part->text, r->ids));
    return render_put_token(r->ids, python ? t->python_end : t->output_end);
}

/* ---- messages ---- */

/* Texts of the system one after the other, and the user's, have an empty line between them. */
static enum sol_status put_system(struct renderer *r, const struct chat_message *message)
{
    if (r->instructed) text_puts(&r->system, "\n\n");
    r->instructed = true;
    return put_texts(&r->system, message);
}

static enum sol_status put_user(struct renderer *r, const struct chat_message *message)
{
    SOL_TRY(render_put_token(r->ids, r->v->nanochat.user_start));
    if (r->instructed) text_puts(&r->system, "\n\n");
    SOL_TRY(put_texts(&r->system, message));
    SOL_TRY(text_check(&r->system, "a message"));
    SOL_TRY(render_put_text(r->v, text_of(&r->system), r->ids));
    r->system.length = 0;
    r->instructed = false;
    return render_put_token(r->ids, r->v->nanochat.user_end);
}

/* What python printed is no writing of the assistant. */
static enum sol_status put_assistant(struct renderer *r, const struct chat_message *message)
{
    size_t begin;
    if (message->recipient.data && !text_is(message->recipient, "all"))
        return refuse("calls of functions");
    SOL_TRY(check_said(r));
    SOL_TRY(render_put_token(r->ids, r->v->nanochat.assistant_start));
    begin = r->ids->count;
    for (size_t i = 0; i < message->n_contents; i++) {
        const size_t before = r->ids->count;
        SOL_TRY(put_part(r, &message->contents[i]));
        if (message->contents[i].kind != CHAT_CONTENT_OUTPUT) continue;
        struct token_list said = {.count = before};
        if (before > begin) SOL_TRY(render_map_written(r->options->map, begin, &said));
        begin = r->ids->count;
    }
    SOL_TRY(render_put_token(r->ids, r->v->nanochat.assistant_end));
    return render_map_written(r->options->map, begin, r->ids);
}

static enum sol_status put_message(struct renderer *r, const struct chat_message *message)
{
    switch (message->role) {
    case CHAT_SYSTEM:
    case CHAT_DEVELOPER:
        return put_system(r, message);
    case CHAT_USER:
        return put_user(r, message);
    case CHAT_ASSISTANT:
        if (!text_is(message->channel, "analysis")) return put_assistant(r, message);
        return r->options->history == CHAT_HISTORY_OPEN
                   ? SOL_OK
                   : refuse("thoughts (channel analysis): leave them out");
    default:
        return refuse("results of functions");
    }
}

/* ---- conversations ---- */

static enum sol_status put_next(struct renderer *r)
{
    const struct nanochat_tokens *t = &r->v->nanochat;
    if (r->options->next == CHAT_NOBODY) return SOL_OK;
    if (r->options->next == CHAT_USER) return render_put_token(r->ids, t->user_start);
    if (r->options->next == CHAT_ASSISTANT) return render_put_token(r->ids, t->assistant_start);
    return refuse("turns but the user's and the assistant's");
}

static enum sol_status put_all(struct renderer *r, const struct conversation *c)
{
    const size_t count = conversation_count(c);
    SOL_TRY(render_put_token(r->ids, r->v->nanochat.bos));
    for (size_t i = 0; i < count; i++) {
        render_map_start(r->options->map, r->ids);
        enum sol_status status = put_message(r, conversation_message(c, i));
        if (status != SOL_OK) return status_prefix(status, "messages[%zu]", i);
    }
    SOL_TRY(check_said(r));
    if (r->options->goes_on && count) r->ids->count--;
    return put_next(r);
}

enum sol_status nanochat_render(const struct chat_vocabulary *v, const struct conversation *c,
                                const struct render_options *options, struct token_list *ids)
{
    struct renderer r = {.v = v, .options = options, .ids = ids};
    SOL_TRY(chat_format_effort(v->format, options->effort));
    enum sol_status status = put_all(&r, c);
    text_buffer_free(&r.system);
    return status;
}
