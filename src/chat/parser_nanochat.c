/* Messages of nanochat's format: a text between the start and the end of its role. A start token is
 * a header without words: the message begins with the next token, so that no step ends one and
 * begins another. The tokens of its calls of python become text, their names, as they stand in the
 * message. */
#include "chat/parser_private.h"

/* The prompt ended behind the role's start: its text has begun. */
void nanochat_begin(struct chat_parser *p, enum chat_role role)
{
    p->header.head = (struct chat_message){.role = role};
    p->state = CHAT_IN_CONTENT;
}

static bool starts(const struct chat_parser *p, int32_t id)
{
    return id == p->v.nanochat.user_start || id == p->v.nanochat.assistant_start;
}

static bool ends(const struct chat_parser *p, int32_t id)
{
    return id == p->v.nanochat.user_end || id == p->v.nanochat.assistant_end;
}

static void begin_header(struct chat_parser *p, int32_t id)
{
    p->role = p->unknown.role = id == p->v.nanochat.user_start ? CHAT_USER : CHAT_ASSISTANT;
    p->state = CHAT_IN_HEADER;
}

static void begin_message(struct chat_parser *p, enum chat_role role, struct chat_step *step)
{
    p->header.head = (struct chat_message){.role = role};
    parser_begin_content(p, step);
}

/* An end of the other role ends a message too. */
static enum sol_status end_message(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    const struct nanochat_tokens *t = &p->v.nanochat;
    const int32_t own = p->header.head.role == CHAT_ASSISTANT ? t->assistant_end : t->user_end;
    if (!ends(p, id)) p->faults.no_end++;
    p->faults.control += ends(p, id) && id != own;
    return parser_end_content(p, step);
}

static enum sol_status push_between(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    if (starts(p, id)) {
        begin_header(p, id);
    } else if (ends(p, id)) {
        p->faults.control++;
    } else if (id != p->v.nanochat.bos) {
        p->faults.no_start++;
        begin_message(p, CHAT_ASSISTANT, step);
        parser_push_content(p, id);
    }
    return SOL_OK;
}

/* Behind a start without any text. */
static enum sol_status push_first(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    if (starts(p, id) || id == p->v.nanochat.bos) {
        p->faults.no_message++;
        p->state = CHAT_EXPECT_START;
        p->role = p->unknown.role = CHAT_NOBODY;
        return push_between(p, id, step);
    }
    begin_message(p, p->role, step);
    if (ends(p, id)) return end_message(p, id, step);
    parser_push_content(p, id);
    return SOL_OK;
}

enum sol_status nanochat_push(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    if (p->state == CHAT_EXPECT_START) return push_between(p, id, step);
    if (p->state == CHAT_IN_HEADER) return push_first(p, id, step);
    if (!chat_token_in(&p->v.uses.borders, id)) {
        parser_push_content(p, id);
        return SOL_OK;
    }
    SOL_TRY(end_message(p, id, step));
    if (starts(p, id)) begin_header(p, id);
    return SOL_OK;
}

enum sol_status nanochat_finish(struct chat_parser *p, struct chat_step *step)
{
    if (p->state == CHAT_IN_CONTENT) return parser_end_content(p, step);
    p->state = CHAT_EXPECT_START;
    p->role = p->unknown.role = CHAT_NOBODY;
    return SOL_OK;
}
