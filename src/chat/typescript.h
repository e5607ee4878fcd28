/* Tools as the model reads them: TypeScript, made of their JSON schemas. */
#ifndef CHAT_TYPESCRIPT_H
#define CHAT_TYPESCRIPT_H

#include <jansson.h>

#include "chat/conversation.h"

enum chat_types {
    CHAT_TYPES_HARMONY, /* exactly as openai-harmony writes them. What that does not know (anyOf,
                         * allOf, $ref, const, enums of numbers, ...) is `any` there */
    CHAT_TYPES_FULL,    /* the same layout with every type kept, names quoted where they are no
                         * identifiers, and comments that stay comments over several lines */
};

/* FULL for "full"; HARMONY for every other name, and for NULL. */
enum chat_types typescript_types_find(const char *name);

/* Of a schema: what stands for T in `type f = (_: T) => any;`. FULL: SOL_E_UNSUPPORTED where
 * references written out take more than 256 KiB; a reference inside of itself is `any`. */
enum sol_status typescript_schema(const json_t *schema, enum chat_types types,
                                  struct text_buffer *to);

/* "# Tools" and a section for each namespace; without any nothing. FULL: SOL_E_UNSUPPORTED also
 * where all types together take more than 1 MiB. */
enum sol_status typescript_tools(const struct chat_tools *tools, enum chat_types types,
                                 struct text_buffer *to);

#endif
