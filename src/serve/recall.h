/* Texts that a server remembers for clients that do not send them back: the reasoning before a call
 * of a tool, the date a conversation began. Bounded; what was not used for longest goes first. Any
 * thread. */
#ifndef SERVE_RECALL_H
#define SERVE_RECALL_H

#include <stdint.h>

#include "chat/text.h"

struct recall;

/* `bytes`: of all keys and texts, with what keeping them takes. */
enum sol_status recall_create(size_t bytes, struct recall **out);
void recall_destroy(struct recall *recall); /* takes NULL */

/* `kind` and `salt` (whose) are part of the key. What was under the key is replaced. A text that is
 * larger than a quarter of all that may be kept is not kept; nor is any without memory. */
void recall_put(struct recall *recall, char kind, uint64_t salt, struct chat_text key,
                struct chat_text text);
/* Whether there is one; it is appended to `to`. */
bool recall_get(struct recall *recall, char kind, uint64_t salt, struct chat_text key,
                struct text_buffer *to);

#endif
