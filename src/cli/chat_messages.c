/* A conversation with parts of it left out or others in their place: a new one, whose messages are
 * copied as JSON, with all that they have. */
#include "base/status.h"
#include "chat/format.h"
#include "cli/chat_talk.h"

static const struct chat_format *chat_format(const struct chat *chat)
{
    return turn_model_vocabulary(chat->turns)->format;
}

static enum sol_status copy(struct conversation *to, const struct conversation *from, size_t first,
                            size_t end)
{
    json_t *all = json_pack("{s:o}", "messages", conversation_json(from, first, end));
    if (!all) return status_set(SOL_E_MEMORY, "no memory for a conversation");
    enum sol_status status = conversation_add_json(to, all);
    json_decref(all);
    return status;
}

static enum sol_status instruct(const struct chat *chat, struct conversation *c,
                                struct chat_text text)
{
    if (text.length == 0) return SOL_OK;
    return conversation_instruct(chat_format(chat), c, &(struct chat_instructions){.text = text});
}

/* Puts `c` in the place of the chat's, unless it could not be made. */
static enum sol_status replace(struct chat *chat, struct conversation *c, enum sol_status made)
{
    struct conversation *gone = made == SOL_OK ? chat->conversation : c;
    if (made == SOL_OK) chat->conversation = c;
    conversation_destroy(gone);
    return made;
}

enum sol_status chat_begin(struct chat *chat, struct chat_text instructions)
{
    struct conversation *c;
    char today[CHAT_DATE_SIZE];
    chat_today(today);
    SOL_TRY(conversation_create(&c));
    enum sol_status status = conversation_open(chat_format(chat), c, today);
    if (status == SOL_OK) status = instruct(chat, c, instructions);
    return replace(chat, c, status);
}

enum sol_status chat_drop(struct chat *chat, size_t first, size_t end)
{
    const struct conversation *old = chat->conversation;
    struct conversation *c;
    SOL_TRY(conversation_create(&c));
    enum sol_status status = copy(c, old, 0, first);
    if (status == SOL_OK) status = copy(c, old, end, conversation_count(old));
    return replace(chat, c, status);
}

enum sol_status chat_instruct(struct chat *chat, struct chat_text instructions)
{
    const struct conversation *old = chat->conversation;
    struct conversation *c;
    size_t n = 0, head = conversation_head(old);
    while (n < head && conversation_message(old, n)->role != chat_format(chat)->instructs) n++;
    SOL_TRY(conversation_create(&c));
    enum sol_status status = copy(c, old, 0, n);
    if (status == SOL_OK) status = instruct(chat, c, instructions);
    if (status == SOL_OK) status = copy(c, old, head, conversation_count(old));
    return replace(chat, c, status);
}

enum sol_status chat_set_effort(struct chat *chat, enum chat_effort effort)
{
    SOL_TRY(chat_format_set_effort(chat_format(chat), chat->conversation, effort));
    chat->effort = effort == CHAT_EFFORT_OFF ? CHAT_EFFORT_OFF : CHAT_EFFORT_UNSET;
    return SOL_OK;
}
