/* A conversation with parts of it left out or others in their place: a new one, whose messages are
 * copied as JSON, with all that they have. */
#include "base/status.h"
#include "chat/opening.h"
#include "cli/chat_talk.h"

size_t chat_head(const struct conversation *c)
{
    size_t n = 0;
    while (n < conversation_count(c)) {
        enum chat_role role = conversation_message(c, n)->role;
        if (role != CHAT_SYSTEM && role != CHAT_DEVELOPER) break;
        n++;
    }
    return n;
}

static enum sol_status copy(struct conversation *to, const struct conversation *from, size_t first,
                            size_t end)
{
    json_t *list = json_array();
    for (size_t i = first; i < end; i++)
        json_array_append_new(list, chat_message_json(conversation_message(from, i)));
    json_t *all = json_pack("{s:o}", "messages", list);
    if (!all || json_array_size(list) != end - first) {
        json_decref(all);
        return status_set(SOL_E_MEMORY, "no memory for a conversation");
    }
    enum sol_status status = conversation_add_json(to, all);
    json_decref(all);
    return status;
}

static enum sol_status add_instructions(struct conversation *c, struct chat_text text)
{
    if (!text.length) return SOL_OK;
    struct chat_developer *developer = conversation_alloc(c, sizeof *developer);
    struct chat_content *content = conversation_alloc(c, sizeof *content);
    if (!developer || !content) return SOL_E_MEMORY;
    SOL_TRY(conversation_copy(c, text, &developer->instructions));
    *content = (struct chat_content){.kind = CHAT_CONTENT_DEVELOPER, .developer = developer};
    return conversation_add(
        c, &(struct chat_message){.role = CHAT_DEVELOPER, .contents = content, .n_contents = 1});
}

static void replace(struct chat *chat, struct conversation *c)
{
    conversation_destroy(chat->conversation);
    chat->conversation = c;
}

enum sol_status chat_begin(struct chat *chat, struct chat_text instructions)
{
    struct conversation *c;
    char today[CHAT_DATE_SIZE];
    chat_today(today);
    SOL_TRY(conversation_create(&c));
    enum sol_status status = conversation_open(c, today);
    if (status == SOL_OK) status = add_instructions(c, instructions);
    if (status == SOL_OK)
        replace(chat, c);
    else
        conversation_destroy(c);
    return status;
}

enum sol_status chat_drop(struct chat *chat, size_t first, size_t end)
{
    const struct conversation *old = chat->conversation;
    struct conversation *c;
    SOL_TRY(conversation_create(&c));
    enum sol_status status = copy(c, old, 0, first);
    if (status == SOL_OK) status = copy(c, old, end, conversation_count(old));
    if (status == SOL_OK)
        replace(chat, c);
    else
        conversation_destroy(c);
    return status;
}

enum sol_status chat_instruct(struct chat *chat, struct chat_text instructions)
{
    const struct conversation *old = chat->conversation;
    struct conversation *c;
    size_t n = 0, head = chat_head(old);
    while (n < head && conversation_message(old, n)->role == CHAT_SYSTEM) n++;
    SOL_TRY(conversation_create(&c));
    enum sol_status status = copy(c, old, 0, n);
    if (status == SOL_OK) status = add_instructions(c, instructions);
    if (status == SOL_OK) status = copy(c, old, head, conversation_count(old));
    if (status == SOL_OK)
        replace(chat, c);
    else
        conversation_destroy(c);
    return status;
}

enum sol_status chat_set_effort(struct chat *chat, enum chat_effort effort)
{
    SOL_TRY(conversation_set_effort(chat->conversation, effort));
    chat->effort = effort == CHAT_EFFORT_OFF ? CHAT_EFFORT_OFF : CHAT_EFFORT_UNSET;
    return SOL_OK;
}
