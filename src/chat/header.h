/* Headers of messages, the part between <|start|> and <|message|>, from their text. */
#ifndef CHAT_HEADER_H
#define CHAT_HEADER_H

#include "chat/conversation.h"

struct chat_header {
    struct chat_message head; /* role, name, recipient, channel, content type; no contents */
    struct chat_text rest;    /* what is no part of a header; without data: nothing */
    struct text_buffer room;  /* where the texts are; free with text_buffer_free */
};

/* As openai-harmony reads a header: false, and *out undefined, where it refuses one. Of two
 * channels it makes one word; who can tell that there are two does not ask here. `role` is that of
 * the speaker where it is known already (the prompt ended behind it), else CHAT_NOBODY. `text` must
 * be UTF-8. Room that *out has is used again. Without memory out->room.failed is set. */
bool header_read(struct chat_text text, enum chat_role role, struct chat_header *out);

/* Of any text, in UTF-8 or not: the parts that are clear, and the rest as text (in UTF-8).
 *   role          that is known, or the first word if it is one; else the assistant
 *   channel       the last one that is named; for the assistant `final` where there is none
 *   to=, type     if they come before anything else
 * What is neither stays as it was written, without blanks at both ends. */
void header_recover(struct chat_text text, enum chat_role role, struct chat_header *out);

/* What models mean by headers that can be read but say something else: a recipient that is a
 * content type ("final <|constrain|>json"), a content type glued to a name, and a name without
 * its namespace that `functions` (the names of the tools, may be NULL) has: recipient `get` for
 * `functions.get`. Changes the texts of *head; new ones are put into `c`. *changed says whether
 * anything was. */
enum sol_status header_mend(struct conversation *c, const struct chat_namespace *functions,
                            struct chat_message *head, bool *changed);

/* Bytes of `data` as UTF-8: characters as they are, U+FFFD for each part that is none (as Rust and
 * Unicode cut them). With `more` an unfinished character at the end is left. Returns how many bytes
 * were used; *replaced counts. */
size_t utf8_put(struct text_buffer *to, const char *data, size_t length, bool more,
                size_t *replaced);
/* Length of the first part that is no character; the bytes there begin none. */
size_t utf8_bad_length(const char *data, size_t length);

#endif
