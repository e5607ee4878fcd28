/* What both ways to write types share (typescript.c: as openai-harmony; typescript_full.c). */
#ifndef CHAT_TYPESCRIPT_PRIVATE_H
#define CHAT_TYPESCRIPT_PRIVATE_H

#include "chat/json.h"
#include "chat/typescript.h"

void typescript_indent(struct text_buffer *to, int blanks);
/* Whether `to` has the word from `mark` on. */
bool typescript_has(const struct text_buffer *to, size_t mark, const char *word);
/* " | null" behind a type that begins at `mark`, where the schema says nullable. */
void typescript_nullable(const json_t *schema, size_t mark, struct text_buffer *to);
/* An "enum" with something in it. */
bool typescript_is_enum(const json_t *schema);
bool typescript_requires(const json_t *schema, const char *key);

/* In lines as Rust splits them: at \n or \r\n, and nothing behind the last line end. `text` moves
 * behind the line; false at the end. */
bool typescript_line(struct chat_text *text, struct chat_text *line);

void typescript_full(const json_t *schema, struct text_buffer *to);

#endif
