#include "chat/parser.h"

#include <stdlib.h>

#include "chat/header.h"
#include "tok/pretokenize.h"

struct chat_parser {
    struct chat_vocabulary v;
    struct conversation *messages;
    enum chat_state state;
    enum chat_role role;            /* known before the header */
    struct text_buffer header_text; /* of the header that is open */
    size_t channels;                /* tokens <|channel|> in it */
    struct chat_header header;      /* of the message that is open */
    struct text_buffer content, delta;
    struct text_buffer held; /* bytes that are no whole character yet */
    struct chat_faults faults;
    struct chat_message unknown; /* what head gives while there is none */
};

size_t chat_faults_total(const struct chat_faults *f)
{
    return f->headers + f->no_message + f->no_start + f->no_end + f->control + f->bytes;
}

enum sol_status chat_parser_create(const struct chat_vocabulary *v, enum chat_role role,
                                   struct chat_parser **out)
{
    *out = NULL;
    struct chat_parser *p = calloc(1, sizeof *p);
    if (!p) return status_set(SOL_E_MEMORY, "no memory for a parser");
    p->v = *v;
    p->role = role;
    p->state = role == CHAT_NOBODY ? CHAT_EXPECT_START : CHAT_IN_HEADER;
    p->unknown.role = role;
    enum sol_status status = conversation_create(&p->messages);
    if (status != SOL_OK) {
        chat_parser_destroy(p);
        return status;
    }
    *out = p;
    return SOL_OK;
}

void chat_parser_destroy(struct chat_parser *p)
{
    if (!p) return;
    conversation_destroy(p->messages);
    text_buffer_free(&p->header_text);
    text_buffer_free(&p->header.room);
    text_buffer_free(&p->content);
    text_buffer_free(&p->delta);
    text_buffer_free(&p->held);
    free(p);
}

/* ---- content ---- */

static void give(struct chat_parser *p, const char *data, size_t length)
{
    text_put(&p->content, data, length);
    text_put(&p->delta, data, length);
}

/* Of the bytes that are held, those that are characters now. At most one part that is none is
 * replaced for each token, as the library does; what is behind it follows with the next one. */
static void give_held(struct chat_parser *p)
{
    size_t at = 0;
    uint32_t code;
    int size = 0;
    while (at < p->held.length &&
           (size = utf8_decode(p->held.data + at, p->held.length - at, &code)) > 0)
        at += (size_t)size;
    give(p, p->held.data, at);
    if (at < p->held.length && size < 0) {
        at += utf8_bad_length(p->held.data + at, p->held.length - at);
        give(p, "\xef\xbf\xbd", 3);
        p->faults.bytes++;
    }
    p->held.length -= at;
    if (p->held.length) memmove(p->held.data, p->held.data + at, p->held.length);
}

static void begin_content(struct chat_parser *p, struct chat_step *step)
{
    p->state = CHAT_IN_CONTENT;
    p->role = p->unknown.role = CHAT_NOBODY;
    p->content.length = p->held.length = 0;
    step->began = true;
}

static enum sol_status end_content(struct chat_parser *p, struct chat_step *step)
{
    struct text_buffer last = {0};
    utf8_put(&last, p->held.data, p->held.length, false, &p->faults.bytes);
    p->held.length = 0;
    give(p, last.data, last.length);
    p->content.failed = p->content.failed || last.failed;
    text_buffer_free(&last);
    SOL_TRY(text_check(&p->content, "a message"));
    SOL_TRY(conversation_add_text(p->messages, &p->header.head, text_of(&p->content)));
    p->state = CHAT_EXPECT_START;
    p->header.head = (struct chat_message){0};
    step->ended = true;
    return SOL_OK;
}

static void push_content(struct chat_parser *p, int32_t id)
{
    char room[CHAT_TOKEN_NAME_MAX];
    struct chat_text text = chat_token_text(&p->v, id, room);
    if (text.data == room || tokenizer_is_control(p->v.tokenizer, id)) p->faults.control++;
    text_put_text(&p->held, text);
    give_held(p);
}

/* ---- headers ---- */

static void begin_header(struct chat_parser *p, enum chat_role role)
{
    p->state = CHAT_IN_HEADER;
    p->role = p->unknown.role = role;
    p->header_text.length = p->channels = 0;
}

/* The parts that are clear, and the rest as the first text of the message. */
static void recover(struct chat_parser *p, struct chat_step *step)
{
    header_recover(text_of(&p->header_text), p->role, &p->header);
    begin_content(p, step);
    give(p, p->header.rest.data, p->header.rest.length);
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
        begin_content(p, step);
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
    begin_content(p, step);
    give(p, p->header.rest.data, p->header.rest.length);
    return end_content(p, step);
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
        begin_header(p, CHAT_NOBODY);
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
        begin_header(p, CHAT_NOBODY);
        return SOL_OK;
    }
    if (chat_ends(&p->v, id)) {
        p->faults.control++;
        return SOL_OK;
    }
    p->faults.no_start++;
    if (id == p->v.channel || id == p->v.message) {
        begin_header(p, CHAT_ASSISTANT);
        return push_header(p, id, step);
    }
    p->header.head = (struct chat_message){.role = CHAT_ASSISTANT, .channel = CHAT_TEXT("final")};
    begin_content(p, step);
    push_content(p, id);
    return SOL_OK;
}

/* ---- all together ---- */

static enum sol_status finish_step(struct chat_parser *p, enum sol_status status,
                                   struct chat_step *step)
{
    step->delta = text_of(&p->delta);
    if (status != SOL_OK) return status;
    const struct text_buffer *buffers[] = {&p->header_text, &p->header.room, &p->content, &p->delta,
                                           &p->held};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        SOL_TRY(text_check(buffers[i], "a message"));
    return SOL_OK;
}

enum sol_status chat_parser_push(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    enum sol_status status = SOL_OK;
    *step = (struct chat_step){0};
    p->delta.length = 0;
    switch (p->state) {
    case CHAT_EXPECT_START:
        status = push_between(p, id, step);
        break;
    case CHAT_IN_HEADER:
        status = push_header(p, id, step);
        break;
    default:
        if (id == p->v.start || chat_ends(&p->v, id))
            status = end_content(p, step);
        else
            push_content(p, id);
        if (id == p->v.start) {
            p->faults.no_end++;
            begin_header(p, CHAT_NOBODY);
        }
    }
    return finish_step(p, status, step);
}

enum sol_status chat_parser_finish(struct chat_parser *p, struct chat_step *step)
{
    enum sol_status status = SOL_OK;
    *step = (struct chat_step){0};
    p->delta.length = 0;
    if (p->state == CHAT_IN_HEADER) status = drop_header(p, step, false);
    if (p->state == CHAT_IN_CONTENT) status = end_content(p, step);
    return finish_step(p, status, step);
}

enum chat_state chat_parser_state(const struct chat_parser *p)
{
    return p->state;
}

const struct chat_message *chat_parser_head(const struct chat_parser *p)
{
    return p->state == CHAT_IN_CONTENT ? &p->header.head : &p->unknown;
}

const struct conversation *chat_parser_messages(const struct chat_parser *p)
{
    return p->messages;
}

const struct chat_faults *chat_parser_faults(const struct chat_parser *p)
{
    return &p->faults;
}

struct chat_text chat_parser_header(const struct chat_parser *p)
{
    if (p->state != CHAT_IN_HEADER) return (struct chat_text){"", 0};
    return text_of(&p->header_text);
}
