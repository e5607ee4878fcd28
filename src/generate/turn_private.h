/* What the files of turns share. */
#ifndef GENERATE_TURN_PRIVATE_H
#define GENERATE_TURN_PRIVATE_H

#include "chat/format.h"
#include "chat/header_grammar.h"
#include "generate/turn.h"

struct turn_model {
    struct chat_vocabulary v;
    struct token_trie *trie;
    int64_t vocab;
    /* Any text, and the one token that ends it. */
    uint32_t *text_end, *text_call;
};

struct turn {
    const struct turn_model *m;
    enum turn_calls calls;
    int64_t thinking; /* 0 where there is to be none */
    const struct turn_arguments *arguments;
    size_t n_arguments;
    const struct grammar *answer;
    struct mask_cache *answer_cache;
    bool strict; /* texts may not end in another way than their own */

    struct token_list prompt;
    int64_t *points;
    size_t n_points;
    struct chat_text *functions, *builtins; /* names; their texts are in `messages` */
    size_t n_functions, n_builtins;
    struct header_grammar *thinking_headers; /* with reasoning, NULL where there is to be none */
    struct header_grammar *headers;          /* without; both NULL in a format without headers */

    struct chat_parser *parser;
    struct conversation *messages; /* the parser's, with headers mended */
    struct chat_message head;      /* of the message that is open, mended */
    enum turn_part part;
    bool unsaid;             /* it began in the prompt, and no event has said so */
    struct matcher *matcher; /* of its text; NULL: any, also where it was left */
    struct mask_cache *cache;
    bool left; /* the open header's grammar: text that looks like a control token is no way back */
    int32_t finish; /* an answer or a call is complete: what ends the turn; -1 before */

    uint32_t *bits; /* of turn_mask */
    struct token_list ids;
    struct turn_counts counts;
};

/* Everything of a turn that is known before its first token: prompt, points, names, headers. */
enum sol_status turn_prepare(struct turn *t, const struct conversation *c,
                             const struct turn_params *params);
/* Where the conversation's last message is the beginning of an answer. */
bool turn_goes_on(const struct conversation *c);

#endif
