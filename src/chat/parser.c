#include "chat/parser.h"

#include <stdlib.h>

#include "chat/parser_private.h"
#include "tok/pretokenize.h"

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
    p->role = p->unknown.role = CHAT_NOBODY;
    if (role != CHAT_NOBODY) v->format->begin(p, role);
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

void parser_give(struct chat_parser *p, const char *data, size_t length)
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
    parser_give(p, p->held.data, at);
    if (at < p->held.length && size < 0) {
        at += utf8_bad_length(p->held.data + at, p->held.length - at);
        parser_give(p, "\xef\xbf\xbd", 3);
        p->faults.bytes++;
    }
    p->held.length -= at;
    if (p->held.length) memmove(p->held.data, p->held.data + at, p->held.length);
}

void parser_begin_content(struct chat_parser *p, struct chat_step *step)
{
    p->state = CHAT_IN_CONTENT;
    p->role = p->unknown.role = CHAT_NOBODY;
    p->content.length = p->held.length = 0;
    step->began = true;
}

enum sol_status parser_end_content(struct chat_parser *p, struct chat_step *step)
{
    struct text_buffer last = {0};
    utf8_put(&last, p->held.data, p->held.length, false, &p->faults.bytes);
    p->held.length = 0;
    parser_give(p, last.data, last.length);
    p->content.failed = p->content.failed || last.failed;
    text_buffer_free(&last);
    SOL_TRY(text_check(&p->content, "a message"));
    SOL_TRY(conversation_add_text(p->messages, &p->header.head, text_of(&p->content)));
    p->state = CHAT_EXPECT_START;
    p->header.head = (struct chat_message){0};
    step->ended = true;
    return SOL_OK;
}

void parser_push_content(struct chat_parser *p, int32_t id)
{
    char room[CHAT_TOKEN_NAME_MAX];
    struct chat_text text = chat_token_text(&p->v, id, room);
    if (text.data == room || tokenizer_is_control(p->v.tokenizer, id)) p->faults.control++;
    text_put_text(&p->held, text);
    give_held(p);
}

/* ---- tokens ---- */

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

static void begin_step(struct chat_parser *p, struct chat_step *step)
{
    *step = (struct chat_step){0};
    p->delta.length = 0;
}

enum sol_status chat_parser_push(struct chat_parser *p, int32_t id, struct chat_step *step)
{
    begin_step(p, step);
    return finish_step(p, p->v.format->push(p, id, step), step);
}

enum sol_status chat_parser_finish(struct chat_parser *p, struct chat_step *step)
{
    begin_step(p, step);
    return finish_step(p, p->v.format->finish(p, step), step);
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
