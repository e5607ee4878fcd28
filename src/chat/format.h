/* Formats of conversations: how a model was taught to see messages as tokens. Which one a model has
 * its vocabulary says, by its control tokens (chat/vocabulary.h); all else asks this table. */
#ifndef CHAT_FORMAT_H
#define CHAT_FORMAT_H

#include "chat/opening.h"
#include "chat/parser.h"
#include "chat/render.h"

struct chat_format {
    const char *name;         /* "harmony" */
    bool reasons;             /* it has levels of reasoning, and thoughts apart from answers */
    bool calls;               /* it has functions that the model may call */
    enum chat_role instructs; /* says what conversation_instruct adds */

    /* The id of each token; where the vocabulary lacks one *missing is its name, else NULL. */
    void (*find)(struct chat_vocabulary *v, const char **missing);
    /* What stands before all messages; may add nothing. conversation_open's and
     * conversation_instruct's contracts. */
    enum sol_status (*open)(struct conversation *c, const char *date);
    enum sol_status (*instruct)(struct conversation *c, const struct chat_instructions *what);
    /* render_conversation's contract. */
    enum sol_status (*render)(const struct chat_vocabulary *v, const struct conversation *c,
                              const struct render_options *options, struct token_list *ids);
    /* What `role` (not CHAT_NOBODY) has begun; a token; the end: chat/parser_private.h. */
    void (*begin)(struct chat_parser *p, enum chat_role role);
    enum sol_status (*push)(struct chat_parser *p, int32_t id, struct chat_step *step);
    enum sol_status (*finish)(struct chat_parser *p, struct chat_step *step);
};

extern const struct chat_format chat_harmony;  /* of gpt-oss: docs/CHAT.md */
extern const struct chat_format chat_nanochat; /* of what `sol train` makes: docs/CHAT.md */

/* All of them, NULL behind the last. A vocabulary with the tokens of several has the first. */
extern const struct chat_format *const chat_formats[];

/* Any effort where the format has levels of it; else UNSET and OFF alone, SOL_E_ARGUMENT for
 * others. */
enum sol_status chat_format_effort(const struct chat_format *format, enum chat_effort effort);
/* SOL_OK where the format has functions, else SOL_E_UNSUPPORTED. */
enum sol_status chat_format_calls(const struct chat_format *format);
/* Where the format has levels: conversation_set_effort. Where it has none, an effort that may be is
 * no part of the conversation, and nothing changes. */
enum sol_status chat_format_set_effort(const struct chat_format *format, struct conversation *c,
                                       enum chat_effort effort);

#endif
