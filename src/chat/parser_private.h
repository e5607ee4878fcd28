/* Inside the parsers of the formats: what they have in common is the content of messages. */
#ifndef CHAT_PARSER_PRIVATE_H
#define CHAT_PARSER_PRIVATE_H

#include "chat/format_private.h"
#include "chat/header.h"

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

/* A text of the message that is open: to its content and to the step's delta. */
void parser_give(struct chat_parser *p, const char *data, size_t length);
/* The message of p->header.head begins its content. */
void parser_begin_content(struct chat_parser *p, struct chat_step *step);
/* It is complete, and added to the messages. */
enum sol_status parser_end_content(struct chat_parser *p, struct chat_step *step);
/* Any token as text. */
void parser_push_content(struct chat_parser *p, int32_t id);

#endif
