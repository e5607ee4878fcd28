/* How conversations begin, as the model was trained. */
#ifndef CHAT_OPENING_H
#define CHAT_OPENING_H

#include "chat/conversation.h"

enum { CHAT_DATE_SIZE = 11 }; /* "2026-11-24" */

/* Today, by the machine's clock and time zone. */
void chat_today(char date[CHAT_DATE_SIZE]);

struct chat_format;

/* Adds what stands before all messages. In harmony the system message: identity, knowledge cutoff,
 * the date, medium effort, the three channels; `date` NULL: conversation_pin_date gives it later.
 * In nanochat's format nothing. */
enum sol_status conversation_open(const struct chat_format *format, struct conversation *c,
                                  const char *date);

/* How many messages of the system and the developer stand before all others. */
size_t conversation_head(const struct conversation *c);

/* What the developer says before the first message. */
struct chat_instructions {
    struct chat_text text; /* without data: none; copied */
    /* NULL or without tools: none. Copied but for what it points to, which must be the
     * conversation's. */
    const struct chat_namespace *functions;
    const json_t *schema;                             /* that answers follow; NULL: none; copied */
    struct chat_text schema_name, schema_description; /* without data: "answer"; none */
};

/* Adds it as the model was trained to see it, in harmony as a developer message, else as one of the
 * system; nothing where it says nothing. A format without calls refuses functions
 * (SOL_E_UNSUPPORTED), and one without a place for a schema leaves that out: an answer can be held
 * to it all the same. */
enum sol_status conversation_instruct(const struct chat_format *format, struct conversation *c,
                                      const struct chat_instructions *instructions);

#endif
