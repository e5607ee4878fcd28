/* What a model wrote, token by token, as messages, in any format (chat/format.h). Any tokens in any
 * order are taken: nothing but want of memory fails.
 *
 * Harmony that is well-formed is read as openai-harmony's StreamableParser does. Where that refuses
 * its input, or would lose a part of it, this one goes on:
 *   - a header that cannot be read keeps the parts that are clear (header_recover), and the rest
 *     of it becomes text at the beginning of the message;
 *   - a header that ends without <|message|> becomes a message with that text; without any, and
 *     without a recipient, it is left out;
 *   - a header of more than CHAT_HEADER_MAX bytes ends there;
 *   - a header without <|start|> is one of the assistant;
 *   - text between messages becomes a message of the assistant on the channel `final`;
 *   - <|start|> in a message ends it. (The library takes it as text, and the answer that follows
 *     as part of the reasoning; and <|start|>, ends and second channels in a header as parts of
 *     names. These are the only tokens that it takes and that are read otherwise here.) Other
 *     control tokens in a message become text, their names;
 *   - bytes that are no UTF-8 become U+FFFD.
 * Each is counted. nanochat's format is read in the same spirit: docs/CHAT.md has both tables. */
#ifndef CHAT_PARSER_H
#define CHAT_PARSER_H

#include "chat/conversation.h"
#include "chat/vocabulary.h"

enum { CHAT_HEADER_MAX = 4096 };

enum chat_state { CHAT_EXPECT_START, CHAT_IN_HEADER, CHAT_IN_CONTENT };

struct chat_faults {
    size_t headers;    /* that could not be read whole */
    size_t no_message; /* headers or starts that no message follows */
    size_t no_start;   /* headers and texts without a start */
    size_t no_end;     /* messages that the next start ended, or a <|bos|> */
    size_t control;    /* control tokens where they mean nothing, passed over or made text */
    size_t bytes;      /* U+FFFD for bytes that are no UTF-8 */
};
size_t chat_faults_total(const struct chat_faults *faults);

/* What one token did. */
struct chat_step {
    struct chat_text delta; /* text of the message that is open or was ended by this token, until
                             * the next call; empty while a character is not complete. The deltas of
                             * a message together are its text. */
    bool began;             /* a message: chat_parser_head says of which kind */
    bool ended;             /* one is complete: the last of chat_parser_messages */
};

struct chat_parser;

/* `role` is who speaks where the prompt ended behind "<|start|>assistant" or
 * <|assistant_start|>; CHAT_NOBODY where the tokens begin with such a start. In nanochat's format
 * the content is open then. *v is copied, its tokenizer borrowed. */
enum sol_status chat_parser_create(const struct chat_vocabulary *v, enum chat_role role,
                                   struct chat_parser **out);
void chat_parser_destroy(struct chat_parser *p); /* takes NULL */

/* The next token, any number at all. */
enum sol_status chat_parser_push(struct chat_parser *p, int32_t id, struct chat_step *step);
/* There are no more: an open message is complete. A header that is open gives its text back. */
enum sol_status chat_parser_finish(struct chat_parser *p, struct chat_step *step);

enum chat_state chat_parser_state(const struct chat_parser *p);
/* Of the message that is open: role, name, recipient, channel, content type. Before its content
 * begins only the role, if it is known (else CHAT_NOBODY). Until the next call. */
const struct chat_message *chat_parser_head(const struct chat_parser *p);
/* All that are complete. They live as long as the parser. */
const struct conversation *chat_parser_messages(const struct chat_parser *p);
const struct chat_faults *chat_parser_faults(const struct chat_parser *p);
/* Bytes of tokens in the header so far; 0 outside of one. */
struct chat_text chat_parser_header(const struct chat_parser *p);

#endif
