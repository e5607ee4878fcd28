/* Messages of the harmony format: a header, up to <|message|>, and a text. */
#include "chat/parser_private.h"

/* ---- headers ---- */

void harmony_begin(struct chat_parser *p, enum chat_role role)
{
    p->state = CHAT_IN_HEADER;
    p->role = p->unknown.role = role;
    p->header_text.length = p->channels = 0;
}

/* The parts that are clear, and the rest as the first text of the message. */
static void recover(struct chat_parser *p, struct chat_step *step)
{
    header_recover(text_of(&p->header_text), p->role, &p->header);
    parser_begin_content(p, step);
    parser_give(p, p->header.rest.data, p->header.rest.length);
}

static void end_header(struct chat_parser *p, struct chat_step *step)
{
    struct text_buffer text = {0};
    size_t bad = 0;
    utf8_put(&text, p->header_text.data, p->header_text.length, false, &bad);
    bool good = bad == 0 && !text.failed && p->channels < 2 &&
                header_read(text_of(&text), p->role, &p->header);
    text_buffer_free(&text);
    if (good) {
        parser_begin_content(p, step);
        return;
    }
    p->faults.headers++;
    recover(p, step);
}

/* A header that nothing follows: its text, if it has any, is a message. */
static enum sol_status drop_header(struct chat_parser *p, struct chat_step *step, bool count)
{
    header_recover(text_of(&p->header_text), p->role, &p->header);
    bool says = p->header.rest.length || p->header.head.recipient.data;
    if (count || says) p->faults.no_message++;
    p->state = CHAT_EXPECT_START;
    p->role = p->unknown.role = CHAT_NOBODY;
    if (!says) return SOL_OK;
    parser_begin_content(p, step);
    parser_give(p, p->header.rest.data, p->header.rest.length);
    return parser_end_content(p, step);
}

static enum sol_status push_header(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    char room[CHAT_TOKEN_NAME_MAX];
    if (id == p->v.message) {
        end_header(p, step);
        return SOL_OK;
    }
    if (chat_ends(&p->v, id)) return drop_header(p, step, true);
    if (id == p->v.start) {
        p->faults.control++;
        SOL_TRY(drop_header(p, step, false));
        harmony_begin(p, CHAT_NOBODY);
        return SOL_OK;
    }
    p->channels += id == p->v.channel;
    text_put_text(&p->header_text, chat_token_text(&p->v, id, room));
    if (p->header_text.length > CHAT_HEADER_MAX) {
        p->faults.headers++;
        recover(p, step);
    }
    return SOL_OK;
}

/* ---- between messages ---- */

static enum sol_status push_between(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    if (id == p->v.start) {
        harmony_begin(p, CHAT_NOBODY);
        return SOL_OK;
    }
    if (chat_ends(&p->v, id)) {
        p->faults.control++;
        return SOL_OK;
    }
    p->faults.no_start++;
    if (id == p->v.channel || id == p->v.message) {
        harmony_begin(p, CHAT_ASSISTANT);
        return push_header(p, id, step);
    }
    p->header.head = (struct chat_message){.role = CHAT_ASSISTANT, .channel = CHAT_TEXT("final")};
    parser_begin_content(p, step);
    parser_push_content(p, id);
    return SOL_OK;
}

/* ---- all together ---- */

enum sol_status harmony_push(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    if (p->state == CHAT_EXPECT_START) return push_between(p, id, step);
    if (p->state == CHAT_IN_HEADER) return push_header(p, id, step);
    if (id != p->v.start && !chat_ends(&p->v, id)) {
        parser_push_content(p, id);
        return SOL_OK;
    }
    SOL_TRY(parser_end_content(p, step));
    if (id != p->v.start) return SOL_OK;
    p->faults.no_end++;
    harmony_begin(p, CHAT_NOBODY);
    return SOL_OK;
}

enum sol_status harmony_finish(struct chat_parser *p, struct chat_step *step)
{
    if (p->state == CHAT_IN_HEADER) return drop_header(p, step, false);
    return p->state == CHAT_IN_CONTENT ? parser_end_content(p, step) : SOL_OK;
}
