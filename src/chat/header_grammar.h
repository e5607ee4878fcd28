/* The headers that a model may write, and so the few tokens that may follow at each place in one:
 * for masking while sampling, so that no turn is lost to a header that nobody can read. */
#ifndef CHAT_HEADER_GRAMMAR_H
#define CHAT_HEADER_GRAMMAR_H

#include "chat/parser.h"

struct header_rules {
    const struct chat_text *functions; /* full names, "functions.get"; called on commentary */
    size_t n_functions;
    const struct chat_text *builtins; /* "python", "browser.search"; also on analysis, with the
                                       * content type `code` too */
    size_t n_builtins;
    bool analysis, preamble, final; /* messages to the user that may come; preamble: commentary
                                     * without a recipient */
    bool constrained;               /* `final` may say that it is JSON */
};

struct header_grammar;

/* Of a call both places of the recipient are legal, before the channel and behind it, and no type,
 * ` json`, and `<|constrain|>json` with or without a blank. SOL_E_ARGUMENT for a name that cannot
 * stand in a header (empty, with blanks, controls or '<'), and where nothing may come at all. *v is
 * copied. Immutable. */
enum sol_status header_grammar_create(const struct chat_vocabulary *v,
                                      const struct header_rules *rules,
                                      struct header_grammar **out);
void header_grammar_destroy(struct header_grammar *g); /* takes NULL */

/* Places in a header: before the role, behind "assistant", and behind <|message|>. */
enum { GRAMMAR_START = 0, GRAMMAR_DONE = -1, GRAMMAR_ILLEGAL = -2 };
int32_t header_grammar_role(const struct header_grammar *g);
/* Where a token leads; GRAMMAR_DONE at <|message|>. */
int32_t header_grammar_step(const struct header_grammar *g, int32_t place, int32_t id);
/* Appends every token that may come there, in any order, each once. */
enum sol_status header_grammar_next(const struct header_grammar *g, int32_t place,
                                    struct token_list *ids);

/* What may follow in a generation of the assistant: the tokens in *ids (emptied first), and with
 * *text every ordinary token too. Between messages <|start|>; in a header what the grammar says
 * (anything, where it was left already); in a message what ends it: <|call|> with a recipient,
 * <|return|> or <|end|> on `final`, else <|end|>. */
enum sol_status chat_next_tokens(const struct chat_parser *p, const struct chat_vocabulary *v,
                                 const struct header_grammar *g, struct token_list *ids,
                                 bool *text);

#endif
